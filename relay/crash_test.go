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

// A worker ends between the record that says that the callback has failed and the list of failed messages. The message still gets
// on the list, and can be redriven.
func TestGivenUpSenderIsListedAfterACrash(t *testing.T) {
	var crash sync.Once
	work.OnCrashpoint(func(_, point string) {
		if point == "after-callback-stored" {
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
	require.Nil(t, o["reported"], "the sender has confirmed nothing")
	eventually(t, func() bool { return len(s.failed("stage=to_sender")) == 1 }, "it is not on the list")
	callback.Close()
	repaired := newPeer(t, nil)
	s.sender("git", repaired.URL, "")
	s.operate("redrive", object{"filter": object{}})
	s.awaitStatus("a", "1", "DONE")
	require.Equal(t, 1, r.count(), "only the sender is called again")
	require.Equal(t, 1, repaired.count())
}

// A worker is stalled between the record that says SENDING and the POST, for so long that another process may own the receiver's
// window. It does not send, and starts the same attempt again.
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

// A receiver is changed between the gate and the POST. The POST uses the new configuration, and is not made if the receiver is
// paused.
func TestChangeHoldsAtOnce(t *testing.T) {
	var s *site
	var passed atomic.Int32
	old, current := newPeer(t, nil), newPeer(t, nil)
	work.OnCrashpoint(func(_, point string) {
		if point == "after-sending" && passed.Add(1) == 1 {
			s.receiver("ci", current.URL, object{"paused": true})
		}
	})
	t.Cleanup(func() { work.OnCrashpoint(func(_, _ string) {}) })
	s = startSite(t)
	s.receiver("ci", old.URL, object{"unknown_outcome": "at_most_once"})
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "1", "ci"))
	eventually(t, func() bool { return passed.Load() == 1 }, "it is not about to be sent")
	eventually(t, func() bool {
		return s.want(200, "GET", "/v1/receivers/ci", adminToken, nil)["state"].(object)["in_flight"] == 0.0
	}, "it is being sent")
	s.awaitStatus("a", "1", "ARRIVED")
	s.receiver("ci", current.URL, nil)
	o := s.awaitStatus("a", "1", "DONE")
	require.Len(t, o["attempts"], 1)
	require.Zero(t, old.count())
	require.Equal(t, 1, current.count())
}

// callbackFailed starts a site with a message on the list whose callback has failed. The callback endpoint answers 200 from then
// on.
func callbackFailed(t *testing.T) (s *site, r, callback *peer) {
	s = startSite(t, func(c *Config) { c.Relay.CallbackDeadline, c.Relay.AutoRedrive = time.Millisecond, nil })
	var working atomic.Bool
	r = newPeer(t, nil)
	callback = newPeer(t, func(int, seen) (int, string) {
		if working.Load() {
			return http.StatusOK, ""
		}
		return http.StatusBadGateway, ""
	})
	s.receiver("ci", r.URL, nil)
	s.sender("git", callback.URL, "")
	s.want(202, "POST", "/v1/messages", "git-token", message("a", "1", "ci"))
	s.awaitStatus("a", "1", "FAILED")
	eventually(t, func() bool { return len(s.failed("stage=to_sender")) == 1 }, "it is not on the list")
	working.Store(true)
	return s, r, callback
}

// A worker ends between the record of a redriven message whose callback has failed and the queue to the sender. The next redrive
// completes the step.
func TestRedriveOfAFailedCallbackIsEndedAfterACrash(t *testing.T) {
	var crash sync.Once
	work.OnCrashpoint(func(_, point string) {
		if point == "after-redriven" {
			crash.Do(runtime.Goexit)
		}
	})
	t.Cleanup(func() { work.OnCrashpoint(func(_, _ string) {}) })
	s, r, _ := callbackFailed(t)
	s.operate("redrive", object{"filter": object{}})
	s.operate("redrive", object{"filter": object{}})
	s.awaitStatus("a", "1", "DONE")
	require.Empty(t, s.failed(""))
	require.Equal(t, 1, r.count())
}

// A redrive of a failed callback needs no receiver.
func TestRedriveOfAFailedCallbackAfterItsReceiverIsDeleted(t *testing.T) {
	s, r, _ := callbackFailed(t)
	code, _ := s.call("DELETE", "/v1/receivers/ci", adminToken, nil)
	require.Equal(t, 204, code)
	require.EqualValues(t, 1, s.operate("redrive", object{"filter": object{}})["done"])
	s.awaitStatus("a", "1", "DONE")
	require.Empty(t, s.failed(""))
	require.Equal(t, 1, r.count())
}

// A worker ends between the record of an expired message and the list of failed messages. The message is listed, and its callback is
// made.
func TestExpiredIsListedAfterACrash(t *testing.T) {
	var crash sync.Once
	work.OnCrashpoint(func(_, point string) {
		if point == "before-follow" {
			crash.Do(runtime.Goexit)
		}
	})
	t.Cleanup(func() { work.OnCrashpoint(func(_, _ string) {}) })
	s := startSite(t)
	callback := newPeer(t, nil)
	s.sender("git", callback.URL, "")
	s.receiver("ci", "http://127.0.0.1:9/", object{"paused": true, "ttl": 1})
	s.want(202, "POST", "/v1/messages", "git-token", message("a", "expires", "ci"))
	s.awaitStatus("a", "expires", "FAILED")
	eventually(t, func() bool { return len(s.failed("reason=EXPIRED")) == 1 && callback.count() == 1 }, "it is not listed and told")
	eventually(t, func() bool {
		return s.want(200, "GET", "/v1/receivers/ci", adminToken, nil)["state"].(object)["backlog"] == float64(0)
	}, "it still waits for its receiver")
}
