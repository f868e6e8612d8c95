package relay

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/natsembed"
	"github.com/jetpull/jetpull/test/servertest"
)

// forgetful is a server of other processes that can set streams back, with a relay on it.
type forgetful struct {
	t    *testing.T
	srv  *natsembed.Server
	old  string // the store at the last call of keep
	log  servertest.Log
	node *Node
	*site
}

func newForgetful(t *testing.T) *forgetful {
	f := &forgetful{t: t, old: filepath.Join(t.TempDir(), "old")}
	f.serve(t.TempDir(), 0)
	t.Cleanup(func() { f.stop(); f.srv.Stop() })
	f.start()
	return f
}

func (f *forgetful) serve(dir string, port int) {
	var err error
	f.srv, err = natsembed.Start(f.t.Context(), natsembed.Options{Dir: dir, Port: port, MaxPayload: 8 << 20})
	require.NoError(f.t, err)
}

// start starts the relay.
func (f *forgetful) start() {
	cfg := testConfig("")
	cfg.NATS.URL, cfg.NATS.StoreDir = f.srv.URL(), ""
	n, err := Start(f.t.Context(), cfg, slog.New(slog.NewTextHandler(&f.log, nil)))
	require.NoError(f.t, err)
	f.node, f.site = n, &site{f.t, n.URL()}
}

func (f *forgetful) stop() { require.NoError(f.t, f.node.Stop(context.Background())) }

// while runs do while the server is stopped.
func (f *forgetful) while(do func(dir string)) {
	dir, port := f.srv.Dir(), f.srv.Port()
	f.srv.Stop()
	do(dir)
	f.serve(dir, port)
}

// keep keeps a copy of the store.
func (f *forgetful) keep() {
	f.while(func(dir string) { require.NoError(f.t, os.CopyFS(f.old, os.DirFS(dir))) })
}

// setBack sets streams back to the copy, under the running relay, or while it is stopped.
func (f *forgetful) setBack(running bool, streams ...string) {
	if !running {
		f.stop()
		defer f.start()
	}
	f.while(func(dir string) {
		for _, stream := range streams {
			folder := filepath.Join("jetstream", "$G", "streams", stream)
			require.NoError(f.t, os.RemoveAll(filepath.Join(dir, folder)))
			require.NoError(f.t, os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(f.old, folder))))
		}
	})
}

// answers repeats a request until it has a status code.
func (f *forgetful) answers(want int, method, path string, body any) {
	f.t.Helper()
	eventually(f.t, func() bool { code, _ := f.call(method, path, adminToken, body); return code == want }, method+" "+path)
}

// listed counts the failed messages of a receiver; -1: not known now.
func (f *forgetful) listed(receiver string) int {
	code, data := f.call("GET", "/v1/failed?receiver="+receiver, adminToken, nil)
	if code != http.StatusOK {
		return -1
	}
	return strings.Count(string(data), `"receiver":"`+receiver+`"`)
}

// The records of messages are set back under a running and under a stopped relay, on a server of its own. The messages in the queue are
// delivered, except to a receiver that must not get a second POST: they are on the list of failed messages. The loss is reported once.
func TestRecordsAreSetBack(t *testing.T) {
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running=%t", running), func(t *testing.T) {
			s := newForgetful(t)
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
			s.keep()
			send("1", "again")
			send("2", "again")
			send("3", "once")
			s.setBack(running, "KV_relay_messages")
			s.answers(200, "PUT", "/v1/receivers/again", object{"post_endpoint": r.URL, "retry_after": 0.05})
			s.answers(200, "PUT", "/v1/receivers/once", object{"post_endpoint": r.URL, "retry_after": 0.05, "unknown_outcome": "at_most_once"})
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
			const lost = "the store has lost the records of messages"
			within(t, time.Minute, func() bool { return strings.Contains(s.log.String(), lost) }, "no report")
			s.stop()
			s.start()
			require.Equal(t, 1, strings.Count(s.log.String(), lost))
			require.Contains(t, s.log.String(), "messages=3")
		})
	}
}

// The streams that a relay reads into memory are set back under a running and under a stopped one. A running one writes receivers and
// operations again. Data that are still there stay, and each loss is reported once.
func TestTheOtherStreamsAreSetBack(t *testing.T) {
	const receivers, state, failed = "KV_relay_receiver_config", "KV_relay_state", "relay_failed_messages"
	for _, running := range []bool{true, false} {
		for _, streams := range [][]string{{receivers, failed}, {state}} { // the marks are in receivers and state
			t.Run(fmt.Sprintf("running=%t,%s", running, streams[0]), func(t *testing.T) { areSetBack(t, running, streams) })
		}
	}
}

func areSetBack(t *testing.T, running bool, streams []string) {
	s := newForgetful(t)
	refusing := newPeer(t, func(int, seen) (int, string) { return 400, "" })
	put := object{"post_endpoint": refusing.URL}
	fail := func(receiver, id string) {
		t.Helper()
		s.answers(202, "POST", "/v1/messages", message("a", id, receiver))
		eventually(t, func() bool { return s.listed(receiver) == 1 }, "it is not on the list")
	}
	s.answers(200, "PUT", "/v1/receivers/kept", put)
	fail("kept", "1")
	s.keep()
	s.answers(200, "PUT", "/v1/receivers/lost", put)
	fail("lost", "2")
	operation := "/v1/operations/" + s.operate("skip", object{"filter": object{"receiver": "another"}})["id"].(string)
	s.setBack(running, streams...)
	reported := func() int { return strings.Count(s.log.String(), "was set back to an older state") }
	eventually(t, func() bool { return reported() >= len(streams) }, "no report")
	found := map[bool]int{true: http.StatusOK, false: http.StatusNotFound}
	whole := running || len(streams) == 1 // the receivers
	s.answers(200, "GET", "/v1/receivers/kept", nil)
	s.answers(found[whole], "GET", "/v1/receivers/lost", nil)
	s.answers(200, "PUT", "/v1/receivers/lost", put)
	s.answers(found[running || len(streams) == 2], "GET", operation, nil)
	eventually(t, func() bool { return s.listed("lost") == 2-len(streams) }, "the list is not that of the stream")
	eventually(t, func() bool { return s.listed("kept") == 1 }, "a message that is still there is not on the list")
	s.stop()
	s.start()
	s.answers(200, "GET", "/v1/receivers/lost", nil)
	s.answers(found[running || len(streams) == 2], "GET", operation, nil)
	require.Equal(t, len(streams), reported(), s.log.String())
	for _, stream := range streams {
		require.Regexp(t, "stream="+stream+` messages=[1-9]`, s.log.String())
	}
}
