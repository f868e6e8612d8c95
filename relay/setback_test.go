package relay

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/natsembed"
	"github.com/jetpull/jetpull/test/servertest"
)

// The records of messages are set back under a running and under a stopped relay, on a server of its own. The messages in the queue are
// delivered, except to a receiver that must not get a second POST: they are on the list of failed messages. The loss is reported once.
func TestRecordsAreSetBack(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running=%t", running), func(t *testing.T) {
			dir, old := t.TempDir(), filepath.Join(t.TempDir(), "old")
			srv, err := natsembed.Start(t.Context(), natsembed.Options{Dir: dir, MaxPayload: 8 << 20})
			require.NoError(t, err)
			defer func() { srv.Stop() }()
			while := func(do func()) {
				port := srv.Port()
				srv.Stop()
				do()
				srv, err = natsembed.Start(t.Context(), natsembed.Options{Dir: dir, Port: port, MaxPayload: 8 << 20})
				require.NoError(t, err)
			}
			var log servertest.Log
			cfg := testConfig("")
			cfg.NATS.URL, cfg.NATS.StoreDir = srv.URL(), ""
			start := func() (*Node, *site) {
				n, err := Start(t.Context(), cfg, slog.New(slog.NewTextHandler(&log, nil)))
				require.NoError(t, err)
				return n, &site{t, n.URL()}
			}
			n, s := start()
			defer func() { require.NoError(t, n.Stop(context.Background())) }()
			r := newPeer(t, nil)
			s.receiver("again", r.URL, object{"paused": true})
			s.receiver("once", r.URL, object{"paused": true, "unknown_outcome": "at_most_once"})
			send := func(id, receiver string) {
				eventually(t, func() bool {
					code, _ := s.call("POST", "/v1/messages", adminToken, message("a", id, receiver))
					return code == 202 || code == 200
				}, "it is not accepted")
			}
			send("kept", "again")
			while(func() { require.NoError(t, os.CopyFS(old, os.DirFS(dir))) })
			send("1", "again")
			send("2", "again")
			send("3", "once")
			setBack := func() {
				while(func() {
					folder := filepath.Join("jetstream", "$G", "streams", "KV_relay_messages")
					require.NoError(t, os.RemoveAll(filepath.Join(dir, folder)))
					require.NoError(t, os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(old, folder))))
				})
			}
			if running {
				setBack()
			} else {
				require.NoError(t, n.Stop(context.Background()))
				setBack()
				n, s = start()
			}
			for name, extra := range map[string]object{"again": {}, "once": {"unknown_outcome": "at_most_once"}} {
				eventually(t, func() bool {
					body := object{"post_endpoint": r.URL, "retry_after": 0.05}
					for k, v := range extra {
						body[k] = v
					}
					code, _ := s.call("PUT", "/v1/receivers/"+name, adminToken, body)
					return code == 200
				}, "the receiver is not changed")
			}
			send("fresh", "again")
			status := func(id string) string {
				code, data := s.call("GET", "/v1/messages/a/"+id, adminToken, nil)
				if code != 200 {
					return ""
				}
				_, rest, _ := strings.Cut(string(data), `"status":"`)
				status, _, _ := strings.Cut(rest, `"`)
				return status
			}
			for id, want := range map[string]string{"kept": "DONE", "1": "DONE", "2": "DONE", "3": "FAILED", "fresh": "DONE"} {
				eventually(t, func() bool { return status(id) == want }, fmt.Sprintf("%s is not %s", id, want))
			}
			require.Equal(t, 4, r.count())
			eventually(t, func() bool { return len(s.failed("receiver=once")) == 1 }, "it is not on the list")
			within(t, time.Minute, func() bool { return strings.Contains(log.String(), "the store has lost the records of messages") }, "no report")
			require.NoError(t, n.Stop(context.Background()))
			require.Equal(t, 1, strings.Count(log.String(), "the store has lost the records of messages"))
			require.Contains(t, log.String(), "messages=3")
		})
	}
}
