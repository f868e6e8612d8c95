package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	broker "github.com/jetpull/jetpull/broker/client"
	relay "github.com/jetpull/jetpull/relay/client"
)

// Tokens and signatures stay with the server that they are for: no client follows a redirect.
func TestNoClientFollowsRedirects(t *testing.T) {
	var followed atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	defer other.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		var asked atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			http.Redirect(w, r, other.URL+r.URL.Path, status)
		}))
		for _, line := range [][]string{
			{"broker", "backup", "--url", server.URL, "--admin-token", "secret", filepath.Join(t.TempDir(), "b")},
			{"broker", "health", "--url", server.URL, "--admin-token", "secret"},
			{"relay", "receivers", "ls", "--url", server.URL, "--token", "secret"},
		} {
			require.NotZero(t, jetpullRun(t, line...).code, "%q", line)
		}
		for _, own := range []*http.Client{nil, {}} {
			_, err := broker.New(server.URL, own).Broadcast(t.Context(), broker.Producer{Channel: "c", ChannelToken: "secret"},
				broker.Message{Payload: []byte("x")})
			require.Error(t, err)
			_, err = relay.New(server.URL, "secret", own).Send(t.Context(), relay.Message{Source: "s", ID: "i", Receiver: "r", Payload: 1})
			require.Error(t, err)
		}
		require.EqualValues(t, 7, asked.Load())
		server.Close()
	}
	require.Zero(t, followed.Load())
}
