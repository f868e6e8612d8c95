package relay

import (
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/relay/internal/work"
)

// A worker ends between the record that says that its sender is given up and the list of failed messages. The message
// is on the list all the same, and can be redriven.
func TestGivenUpSenderIsListedAfterACrash(t *testing.T) {
	var crash sync.Once
	work.OnCrashpoint(func(_, point string) {
		if point == "after-told" {
			crash.Do(runtime.Goexit)
		}
	})
	t.Cleanup(func() { work.OnCrashpoint(func(_, _ string) {}) })
	s := startSite(t, func(c *Config) { c.Relay.CallbackDeadline, c.Relay.AutoRedrive = time.Millisecond, nil })
	r := newPeer(t, nil)
	callback := newPeer(t, func(int, seen) (int, string) { return http.StatusBadGateway, "" })
	s.receiver("ci", r.URL, nil)
	s.sender("git", callback.URL, "")
	s.want(202, "POST", "/v1/messages", "git-token", message("a", "1", "ci"))
	o := s.awaitStatus("a", "1", "FAILED")
	require.Equal(t, "NOT_TOLD", o["error"].(object)["code"])
	eventually(t, func() bool { return len(s.failed("stage=to_sender")) == 1 }, "it is not on the list")
	callback.Close()
	told := newPeer(t, nil)
	s.sender("git", told.URL, "")
	s.operate("redrive", object{"filter": object{}})
	s.awaitStatus("a", "1", "DONE")
	require.Equal(t, 1, r.count(), "only the sender is called again")
	require.Equal(t, 1, told.count())
}

// A worker is stalled between the record that says SENDING and the POST, for so long that another process may count the
// receiver's window by now. It does not send, and begins anew with the same attempt.
func TestStalledWorkerDoesNotSend(t *testing.T) {
	var passed atomic.Int32
	work.OnCrashpoint(func(_, point string) {
		if point == "after-sending" && passed.Add(1) == 1 {
			<-time.After(takeoverTime/2 + 100*time.Millisecond)
		}
	})
	t.Cleanup(func() { work.OnCrashpoint(func(_, _ string) {}) })
	s := startSite(t)
	r := newPeer(t, nil)
	s.receiver("ci", r.URL, object{"rate_limit": 5, "window_size": 1, "unknown_outcome": "at_most_once"})
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "1", "ci"))
	o := s.awaitStatus("a", "1", "DONE")
	require.EqualValues(t, 2, passed.Load(), "it was about to send twice")
	require.Len(t, o["attempts"], 1)
	require.Equal(t, 1, r.count())
	require.Equal(t, "1", r.list()[0].Header.Get("Relay-Attempt"))
}
