package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/client"
)

// What can never be sent is no outage: whoever tries ErrUnavailable again would do so for ever.
func TestHeaderThatCannotBeSent(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	defer srv.Close()
	for _, m := range []client.Message{{ID: "a\nb", Payload: []byte("x")}, {Payload: []byte("x"), Headers: map[string]string{"X A": "1"}}, {Payload: []byte("x"), Headers: map[string]string{"X-A": "1\n2"}}} {
		_, err := client.New(srv.URL, nil).Broadcast(t.Context(), client.Producer{Channel: "ch"}, m)
		require.Error(t, err)
		require.NotErrorIs(t, err, client.ErrUnavailable)
	}
}

// A worker whose clock is ahead of the broker's works all the same.
func TestClockAhead(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} { // the broker's clock
		extended, claims := 0, 0
		var state string
		now := func() time.Time { return time.Now().Add(skew).UTC() }
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Date", now().Format(http.TimeFormat))
			switch {
			case strings.HasSuffix(r.URL.Path, "/claim"):
				if claims++; claims > 1 {
					<-r.Context().Done()
					return
				}
				_, _ = fmt.Fprintf(w, `{"Result":[{"ID":"j","ClaimToken":"t","ClaimExpiresAt":%q,"Message":{"MessageID":"m"}}]}`, now().Add(4*time.Second).Format(time.RFC3339Nano))
			case strings.HasSuffix(r.URL.Path, "/extend"):
				extended++
				_, _ = fmt.Fprintf(w, `{"ClaimExpiresAt":%q}`, now().Add(4*time.Second).Format(time.RFC3339Nano))
			default:
				var req struct{ NextState string }
				_ = json.NewDecoder(r.Body).Decode(&req)
				state = req.NextState
				w.WriteHeader(http.StatusAccepted)
				cancel()
			}
		}))
		err := client.New(srv.URL, nil).Consumer("ch", "ct", "k", "kt").Consume(ctx, func(ctx context.Context, _ *client.Job) error {
			select {
			case <-time.After(3 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, client.Options{Drain: time.Second})
		require.NoError(t, err)
		srv.CloseClientConnections()
		srv.Close()
		require.Equal(t, "DELIVERED", state, "skew %s", skew)
		require.Positive(t, extended, "skew %s", skew)
		cancel()
	}
}
