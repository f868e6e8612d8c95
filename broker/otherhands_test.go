package broker

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// An operator, or another program, changes the streams of a broker that runs. The broker delivers the messages that it accepts afterwards.
func TestOtherHandsOnTheStreams(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, js jetstream.JetStream){
		"messages are purged":    func(t *testing.T, js jetstream.JetStream) { servertest.Purge(t, js, "broker_messages") },
		"records are purged":     func(t *testing.T, js jetstream.JetStream) { servertest.Purge(t, js, "broker_jobs") },
		"attempts are purged":    func(t *testing.T, js jetstream.JetStream) { servertest.Purge(t, js, "broker_attempts") },
		"ticks are purged":       func(t *testing.T, js jetstream.JetStream) { servertest.Purge(t, js, "broker_ticks") },
		"attempts are recreated": func(t *testing.T, js jetstream.JetStream) { servertest.Recreate(t, js, "broker_attempts") },
		"ticks are recreated":    func(t *testing.T, js jetstream.JetStream) { servertest.Recreate(t, js, "broker_ticks") },
		"the key of a consumer is deleted": func(t *testing.T, js jetstream.JetStream) {
			kv, key := consumerKey(t, js, "other")
			require.NoError(t, kv.Delete(t.Context(), key))
		},
		"the key of a consumer is purged": func(t *testing.T, js jetstream.JetStream) {
			kv, key := consumerKey(t, js, "other")
			require.NoError(t, kv.Purge(t.Context(), key))
		},
		"the key of a consumer has garbage": func(t *testing.T, js jetstream.JetStream) {
			kv, key := consumerKey(t, js, "other")
			_, err := kv.Put(t.Context(), key, []byte("garbage"))
			require.NoError(t, err)
		},
		"another program publishes": func(t *testing.T, js jetstream.JetStream) {
			for _, subject := range []string{
				"broker.m.ch.x", "broker.s.ch.x", "broker.j.1.1", "broker.j.x", "broker.a.x", "broker.t",
				"$KV.broker_registry.x",
			} {
				_, err := js.Publish(t.Context(), subject, []byte("garbage"))
				require.NoError(t, err, subject)
			}
		},
		"consumers are deleted": func(t *testing.T, js jetstream.JetStream) { servertest.DeleteConsumers(t, js) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got tally
			receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got.add(r.Header.Get("X-Broker-Message-ID")) }))
			defer receiver.Close()
			srv := servertest.RunServer(t)
			var log servertest.Log
			n, err := Start(t.Context(), externalConfig(t, srv.URL(), 1), slog.New(slog.NewTextHandler(&log, nil)))
			require.NoError(t, err)
			t.Cleanup(func() { stopNode(t, n) })
			putConsumer(t, n, "push", receiver.URL, nil)
			putConsumer(t, n, "pull", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
			putConsumer(t, n, "other", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
			broadcast(t, n, "before", "x", nil)
			waitState(t, n, "before", "push", "DELIVERED")
			change(t, srv.JetStream(t, srv.Connect(t)))
			broadcast(t, n, "after", "x", nil)
			waitUntil(t, func() bool { missed, _ := got.missing([]string{"before", "after"}); return missed == 0 }, "not pushed\n"+log.String())
			waitUntil(t, func() bool {
				for _, job := range claim(t, n, "pull", "?limit=10") {
					deliver(t, n, "pull", job)
					if job.Message.MessageID == "after" {
						return true
					}
				}
				return false
			}, "not claimed\n"+log.String())
		})
	}
}

// The streams of messages and of jobs refer to each other by sequence. If one of them is another stream, whose sequences start again at 1, the
// broker accepts nothing, makes no callback, and says what to do. Without the other streams it then starts again.
func TestStreamThatIsReplaced(t *testing.T) {
	for _, stream := range []string{"broker_messages", "broker_jobs"} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			var got tally
			receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got.add(r.Header.Get("X-Broker-Message-ID")) }))
			defer receiver.Close()
			srv := servertest.RunServer(t)
			js := srv.JetStream(t, srv.Connect(t))
			var log servertest.Log
			cfg := externalConfig(t, srv.URL(), 1)
			n, err := Start(t.Context(), cfg, slog.New(slog.NewTextHandler(&log, nil)))
			require.NoError(t, err)
			t.Cleanup(func() { stopNode(t, n) })
			putConsumer(t, n, "push", receiver.URL, nil)
			for _, id := range []string{"1", "2", "3"} {
				broadcast(t, n, id, "x", nil)
				waitState(t, n, id, "push", "DELIVERED")
			}
			s, err := js.Stream(t.Context(), stream)
			require.NoError(t, err)
			created := s.CachedInfo().Created
			waitUntil(t, func() bool { return time.Since(created) > 2*time.Second }, "time stands still") // within a second it is taken for the same
			servertest.Recreate(t, js, stream)
			noticed := "stream " + stream + " was deleted and created again" // before that, the stream may only be missing
			waitUntil(t, func() bool { return strings.Contains(log.String(), noticed) }, "not noticed")
			code, body, _ := call(t, n, "GET", "/readyz", nil, "")
			require.Equal(t, 503, code, body)
			tokens := map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt"}
			code, body, _ = call(t, n, "POST", "/channel/ch/broadcast", tokens, "x")
			require.Equal(t, 503, code, body)
			require.Contains(t, log.String(), "level=ERROR")
			stopNode(t, n)

			for _, other := range []string{"broker_messages", "broker_jobs", "broker_attempts"} {
				require.NoError(t, js.DeleteStream(t.Context(), other))
			}
			n = startNode(t, cfg)
			broadcast(t, n, "4", "x", nil)
			waitState(t, n, "4", "push", "DELIVERED")
		})
	}
}

// consumerKey is the key of a consumer in the registry.
func consumerKey(t *testing.T, js jetstream.JetStream, id string) (kv jetstream.KeyValue, key string) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), "broker_registry")
	require.NoError(t, err)
	keys, err := kv.Keys(t.Context())
	require.NoError(t, err)
	at := slices.IndexFunc(keys, func(key string) bool { return strings.HasSuffix(key, "."+id) })
	require.GreaterOrEqual(t, at, 0, keys)
	return kv, keys[at]
}
