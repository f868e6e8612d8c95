package natsembed_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/natsembed"
)

// A restarted server has the same store and port, and connections continue with it.
func TestRestart(t *testing.T) {
	for _, port := range []int{0, natsembed.NoPort} {
		srv := start(t, natsembed.Options{Dir: t.TempDir(), Port: port})
		nc, err := srv.Connect(nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
		require.NoError(t, err)
		js, err := jetstream.New(nc)
		require.NoError(t, err)
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "s", Subjects: []string{"s"}})
		require.NoError(t, err)
		_, err = js.Publish(t.Context(), "s", nil)
		require.NoError(t, err)
		url := srv.URL()
		require.NoError(t, srv.Restart(t.Context()))
		require.Equal(t, url, srv.URL())
		require.Eventually(t, func() bool {
			stream, err := js.Stream(t.Context(), "s")
			return err == nil && stream.CachedInfo().State.Msgs == 1
		}, 20*time.Second, 10*time.Millisecond)
		nc.Close()
		srv.Stop()
		require.ErrorContains(t, srv.Restart(t.Context()), "was stopped")
	}
}
