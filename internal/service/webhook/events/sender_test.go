package events

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/webhook"
)

// target is the operator's URL. It fails the first requests, and a negative number of failures is for ever.
type target struct {
	failures int
	code     int // of the failures; 0: there is no answer
	bodies   []string
	headers  []http.Header
	closed   bool
}

func (p *target) Exchange(ctx context.Context, r webhook.Request) (*webhook.Answer, error) {
	payload := r.Body
	p.bodies = append(p.bodies, string(payload))
	p.headers = append(p.headers, r.Header.Clone())
	if fails := p.failures < 0 || len(p.bodies) <= p.failures; fails && p.code > 0 {
		return &webhook.Answer{Code: p.code}, nil
	} else if fails {
		return nil, errors.Join(errors.New("503"), ctx.Err())
	}
	return &webhook.Answer{Code: 200}, nil
}

func (p *target) Close() { p.closed = true }

// Events are sent in order, and again after a failure. Those beyond the limit are lost, and their sender does not wait.
func TestEventsAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &target{failures: 2}
		var log bytes.Buffer
		s := start(Config{URL: "http://127.0.0.1/events", UserAgent: "test", Log: slog.New(slog.NewTextHandler(&log, nil))}, to)
		s.Send(map[string]int{"n": 0})
		synctest.Wait()
		for i := range maxWaiting + 10 {
			s.Send(map[string]int{"n": i + 1})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, to.bodies, maxWaiting+3)
		require.Equal(t, []string{`{"n":0}`, `{"n":0}`, `{"n":0}`, `{"n":1}`, `{"n":2}`}, to.bodies[:5])
		require.EqualValues(t, 10, s.Lost())
		require.Equal(t, 10, strings.Count(log.String(), "too many wait"))
		s.Close()
		require.True(t, to.closed)
	})
}

// Four requests without success lose the event, with a line in the log.
func TestEventThatCannotBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &target{failures: 4}
		var log bytes.Buffer
		s := start(Config{URL: "http://127.0.0.1/events", UserAgent: "test", Log: slog.New(slog.NewTextHandler(&log, nil))}, to)
		s.Send(1)
		s.Send(2)
		s.Send(func() {}) // has no JSON
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"1", "1", "1", "1", "2"}, to.bodies)
		require.EqualValues(t, 2, s.Lost())
		require.Contains(t, log.String(), "an event could not be sent")
		s.Close()
	})
}

// An answer that refuses the event is final, and the log has its status once. Others are repeated.
func TestARefusedEvent(t *testing.T) {
	for code, tries := range map[int]int{302: 1, 401: 1, 404: 1, 410: 1, 408: 4, 425: 4, 429: 4, 503: 4, 0: 4} {
		synctest.Test(t, func(t *testing.T) {
			to := &target{failures: -1, code: code}
			var log bytes.Buffer
			s := start(Config{Log: slog.New(slog.NewTextHandler(&log, nil))}, to)
			defer s.Close()
			s.Send(1)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Len(t, to.bodies, tries, code)
			require.Equal(t, 1, strings.Count(log.String(), "\n"), code)
			if tries == 1 {
				require.Contains(t, log.String(), "refuses the event", code)
				require.Contains(t, log.String(), strconv.Itoa(code))
			}
		})
	}
}

// Each request is signed at its own time, and those for one event have one ID. So a receiver can refuse old requests, and skip repeated ones.
func TestEventsAreSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signer, err := webhook.NewSigner("whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 24)))
		require.NoError(t, err)
		to := &target{failures: 5}
		s := start(Config{Tries: 6, Signer: signer, Log: slog.New(slog.DiscardHandler)}, to)
		s.Send(1)
		s.Send(2)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"1", "1", "1", "1", "1", "1", "2"}, to.bodies)
		require.Zero(t, s.Lost())
		at := map[string]bool{}
		for i, h := range to.headers {
			seconds, err := strconv.ParseInt(h.Get(webhook.HeaderTimestamp), 10, 64)
			require.NoError(t, err)
			want := http.Header{}
			signer.Sign(want, h.Get(webhook.HeaderID), time.Unix(seconds, 0), []byte(to.bodies[i]))
			require.Equal(t, want.Get(webhook.HeaderSignature), h.Get(webhook.HeaderSignature))
			require.Equal(t, i < 6, h.Get(webhook.HeaderID) == to.headers[0].Get(webhook.HeaderID))
			at[h.Get(webhook.HeaderTimestamp)] = true
		}
		require.Len(t, at, 6, "the second event is sent at once after the first")
		s.Close()
	})
}

// Close sends the events that wait. It gives up after two seconds, and all that was not sent counts as lost.
func TestCloseIsBounded(t *testing.T) {
	for failures, lost := range map[int]uint64{0: 0, -1: 3} {
		synctest.Test(t, func(t *testing.T) {
			to := &target{failures: failures}
			s := start(Config{URL: "http://127.0.0.1/events", UserAgent: "test", Log: slog.New(slog.DiscardHandler)}, to)
			for i := range 3 {
				s.Send(i)
			}
			begun := time.Now()
			s.Close()
			require.LessOrEqual(t, time.Since(begun), drainTime)
			require.Equal(t, lost, s.Lost())
			require.GreaterOrEqual(t, len(to.bodies), 3)
		})
	}
}

// Without a URL nothing is sent.
func TestNoURL(t *testing.T) {
	s := Start(Config{UserAgent: "test", Timeout: time.Second, Log: slog.New(slog.DiscardHandler)})
	s.Send(1)
	require.Zero(t, s.Lost())
	s.Close()
}
