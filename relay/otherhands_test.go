package relay

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// An operator, or another program, changes the streams of a relay that runs. The relay delivers the messages that it accepts afterwards, lists
// those that fail, and makes their callbacks.
func TestOtherHandsOnTheStreams(t *testing.T) {
	purge := func(stream string) func(*testing.T, jetstream.JetStream) {
		return func(t *testing.T, js jetstream.JetStream) { servertest.Purge(t, js, stream) }
	}
	recreate := func(stream string) func(*testing.T, jetstream.JetStream) {
		return func(t *testing.T, js jetstream.JetStream) {
			s, err := js.Stream(t.Context(), stream)
			require.NoError(t, err)
			created := s.CachedInfo().Created
			eventually(t, func() bool { return time.Since(created) > 2*time.Second }, "time stands still") // within a second it is taken for the same
			servertest.Recreate(t, js, stream)
		}
	}
	for name, change := range map[string]func(t *testing.T, js jetstream.JetStream){
		"from_sender is purged":      purge("relay_from_sender"),
		"to_receiver is purged":      purge("relay_to_receiver"),
		"to_sender is purged":        purge("relay_to_sender"),
		"records are purged":         purge("KV_relay_messages"),
		"state is purged":            purge("KV_relay_state"),
		"from_sender is recreated":   recreate("relay_from_sender"),
		"to_receiver is recreated":   recreate("relay_to_receiver"),
		"from_receiver is recreated": recreate("relay_pending_from_receiver"),
		"to_sender is recreated":     recreate("relay_to_sender"),
		"failed is purged":           purge("relay_failed_messages"),
		"records are recreated":      recreate("KV_relay_messages"),
		"state is recreated":         recreate("KV_relay_state"),
		"failed is recreated":        recreate("relay_failed_messages"),
		"consumers are deleted":      func(t *testing.T, js jetstream.JetStream) { servertest.DeleteConsumers(t, js) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := servertest.RunServer(t)
			var log servertest.Log
			cfg := testConfig(t.TempDir())
			cfg.NATS.URL = srv.URL()
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(log.String())
				}
			})
			n, err := Start(t.Context(), cfg, slog.New(slog.NewTextHandler(&log, nil)))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, n.Stop(context.Background())) })
			s := &site{t, n.URL()}
			callback, refused := newPeer(t, nil), newPeer(t, func(int, seen) (int, string) { return 403, "" })
			s.sender("git", callback.URL, "")
			s.receiver("ci", newPeer(t, nil).URL, nil)
			s.receiver("refuses", refused.URL, nil)
			for _, id := range []string{"1", "2", "3"} { // so that the sequences of another stream are lower
				s.want(202, "POST", "/v1/messages", adminToken, message("a", id, "ci"))
				s.want(202, "POST", "/v1/messages", adminToken, message("a", "f"+id, "refuses"))
				s.awaitStatus("a", id, "DONE")
				s.awaitStatus("a", "f"+id, "FAILED")
			}
			eventually(t, func() bool { return callback.count() == 6 && len(s.failed("")) == 3 }, "no callbacks")
			change(t, srv.JetStream(t, srv.Connect(t)))
			for id, receiver := range map[string]string{"after": "ci", "failed": "refuses"} {
				eventually(t, func() bool {
					code, _ := s.call("POST", "/v1/messages", adminToken, message("a", id, receiver))
					return code == 202 || code == 200
				}, "not accepted")
			}
			s.awaitStatus("a", "after", "DONE")
			s.awaitStatus("a", "failed", "FAILED")
			eventually(t, func() bool { return callback.count() >= 8 }, "no callback")
			eventually(t, func() bool { return len(s.failed("message=failed")) == 1 }, "not listed")
			require.EqualValues(t, 1, s.operate("skip", object{"filter": object{"message": "failed"}})["done"])
			require.Empty(t, s.failed("message=failed"))
		})
	}
}
