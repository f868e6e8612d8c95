package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// failed returns the items of GET /v1/failed for a query.
func (s *site) failed(query string) []object {
	s.t.Helper()
	var items []object
	for _, item := range s.want(200, "GET", "/v1/failed?"+query, adminToken, nil)["items"].([]any) {
		items = append(items, item.(object))
	}
	return items
}

// operate starts an operation on failed messages and waits for its end.
func (s *site) operate(verb string, body object) object {
	s.t.Helper()
	return s.ended(s.want(202, "POST", "/v1/failed:"+verb, adminToken, body))
}

func (s *site) ended(op object) object {
	s.t.Helper()
	path := "/v1/operations/" + op["id"].(string)
	eventually(s.t, func() bool { op = s.want(200, "GET", path, adminToken, nil); return op["state"] != "running" }, "the operation does not end")
	return op
}

// batch submits the messages 0 to n-1 of a source, which are all new.
func (s *site) batch(source, receiver string, n int) {
	s.t.Helper()
	var lines strings.Builder
	for i := range n {
		data, err := json.Marshal(message(source, fmt.Sprint(i), receiver))
		require.NoError(s.t, err)
		lines.Write(append(data, '\n'))
	}
	send := func() (arrived, unavailable int, answers []byte) {
		code, answers := s.call("POST", "/v1/messages:batch", adminToken, lines.String())
		require.Equal(s.t, 200, code)
		return strings.Count(string(answers), "ARRIVED"), strings.Count(string(answers), `"code":"unavailable"`), answers
	}
	arrived, unavailable, answers := send()
	require.Equal(s.t, n, arrived+unavailable, "%s", answers)
	for begin := time.Now(); unavailable > 0; _, unavailable, _ = send() { // a busy machine's disk is late
		require.Less(s.t, time.Since(begin), waitLong, "the store is not available")
	}
}

// Messages that failed because their receiver did not work are redriven as often as configured and then held. Messages that the
// receiver has refused are held at once. Each end is reported to the sender, with a webhook-id of its own.
func TestAutomaticRedrive(t *testing.T) {
	t.Parallel()
	s := startSite(t, func(c *Config) { c.Relay.AutoRedrive = []time.Duration{20 * time.Millisecond, 20 * time.Millisecond} })
	var working atomic.Bool
	r := newPeer(t, func(_ int, got seen) (int, string) {
		switch {
		case strings.Contains(got.Body, "refused"):
			return 422, ""
		case strings.Contains(got.Body, "heals") && working.Load():
			return 200, "1"
		}
		return 429, ""
	})
	callback := newPeer(t, nil)
	s.sender("git", callback.URL, "")
	s.receiver("ci", r.URL, object{"max_retries": 0, "retry_after": 0})
	for _, id := range []string{"refused", "broken"} {
		s.want(202, "POST", "/v1/messages", adminToken, message("a", id, "ci"))
	}
	eventually(t, func() bool {
		o := s.status("a", "broken")
		return o["status"] == "FAILED" && o["redrives"] == float64(2)
	}, "it is not redriven twice")
	require.EqualValues(t, 0, s.status("a", "refused")["redrives"])
	require.Len(t, s.failed("reason=PERMANENT"), 1)
	require.Len(t, s.failed("reason=EXHAUSTED"), 1)
	require.Equal(t, 4, r.count(), "three of one, one of the other")
	working.Store(true)
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "heals", "ci"))
	s.awaitStatus("a", "heals", "DONE")
	reported := func() map[string]bool {
		ids := map[string]bool{}
		for _, got := range callback.list() {
			ids[got.Header.Get("Webhook-Id")] = true
		}
		return ids
	}
	eventually(t, func() bool {
		ids := reported()
		return ids["a/refused"] && ids["a/broken/2"] && ids["a/heals"]
	}, "the last end of a message is not reported")
	// An end before that may be reported, or not if the message was redriven first.
	require.Subset(t, []string{"a/refused", "a/broken", "a/broken/1", "a/broken/2", "a/heals"}, slices.Collect(maps.Keys(reported())))
}

// Skip leaves a message FAILED and takes it off the list; purge drops its payload too. Neither can be redriven.
func TestSkipAndPurge(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	r := newPeer(t, func(int, seen) (int, string) { return 400, "" })
	s.receiver("ci", r.URL, nil)
	s.batch("a", "ci", 3)
	eventually(t, func() bool { return len(s.failed("source=a")) == 3 }, "not all are on the list")
	ids := map[string]string{}
	for _, item := range s.failed("") {
		ids[item["message_id"].(string)] = item["id"].(string)
	}
	dry := s.want(200, "POST", "/v1/failed:skip", adminToken, object{"ids": []string{ids["0"], "999999", ids["0"]}, "dry_run": true})
	require.EqualValues(t, 1, dry["matched"], "an ID that is not on the list matches nothing")
	require.Len(t, s.failed(""), 3, "a dry run does nothing")
	require.EqualValues(t, 1, s.operate("skip", object{"ids": []string{ids["0"]}})["done"])
	require.EqualValues(t, 1, s.operate("purge", object{"ids": []string{ids["1"]}})["done"])
	left := s.failed("")
	require.Len(t, left, 1)
	require.Equal(t, "2", left[0]["message_id"])
	op := s.operate("redrive", object{"ids": []string{ids["0"], ids["1"]}})
	require.EqualValues(t, 0, op["matched"])
	for _, id := range []string{"0", "1", "2"} {
		require.Equal(t, "FAILED", s.status("a", id)["status"])
	}
	require.Equal(t, 3, r.count())

	// A message can be selected by its ID, and all operations are listed.
	require.Empty(t, s.failed("source=a&message=1"))
	require.Len(t, s.failed("source=a&message=2"), 1)
	// By its time too, for the list and for operations. The bound is not part of the range.
	at := left[0]["time"].(string)
	for _, tt := range []struct {
		since, until string
		want         int
	}{{at, "", 1}, {"", at, 0}, {at, "2099-01-01T00:00:00Z", 1}, {"1h", "0s", 1}, {"2h", "1h", 0}} {
		require.Len(t, s.failed("since="+tt.since+"&until="+tt.until), tt.want, tt)
		dry := s.want(200, "POST", "/v1/failed:skip", adminToken, object{"filter": object{"since": tt.since, "until": tt.until}, "dry_run": true})
		require.EqualValues(t, tt.want, dry["matched"], tt)
	}
	op = s.operate("skip", object{"filter": object{"source": "a", "message": "2", "until": "2099-01-01T00:00:00Z"}})
	require.EqualValues(t, 1, op["done"])
	require.Equal(t, "2099-01-01T00:00:00Z", op["filter"].(object)["until"])
	require.Empty(t, s.failed(""))
	verbs := map[any]int{}
	for _, one := range s.want(200, "GET", "/v1/operations", adminToken, nil)["items"].([]any) {
		op := one.(object)
		verbs[op["verb"]]++
		require.Equal(t, "admin", op["by"])
		require.NotEmpty(t, op["began"])
	}
	require.Equal(t, map[any]int{"skip": 2, "purge": 1, "redrive": 1}, verbs)
	answers := s.want(200, "GET", "/v1/receivers/ci", adminToken, nil)["state"].(object)["answers"].(object)
	require.EqualValues(t, 3, answers["count"])
	require.Positive(t, answers["p50"])
	require.GreaterOrEqual(t, answers["p99"], answers["p50"])
}

// An operation keeps its rate. After a cancel, the remaining messages stay on the list.
func TestOperationRateAndCancel(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	var working atomic.Bool
	r := newPeer(t, func(int, seen) (int, string) {
		if working.Load() {
			return 200, "1"
		}
		return 400, ""
	})
	s.receiver("ci", r.URL, nil)
	const n = 60
	s.batch("a", "ci", n)
	eventually(t, func() bool { return len(s.failed("source=a")) == n }, "not all are on the list")
	working.Store(true)

	const rate = 4 // slow enough that a cancel on a busy machine leaves some messages
	begin := time.Now()
	op := s.want(202, "POST", "/v1/failed:redrive", adminToken, object{"filter": object{"source": "a"}, "rate": rate})
	require.EqualValues(t, n, op["matched"])
	path := "/v1/operations/" + op["id"].(string)
	eventually(t, func() bool { return s.want(200, "GET", path, adminToken, nil)["done"].(float64) >= 2 }, "there is no progress")
	op = s.want(200, "DELETE", path, adminToken, nil)
	require.Equal(t, "cancelled", op["state"])
	require.Equal(t, "cancelled", s.want(200, "DELETE", path, adminToken, nil)["state"], "again it changes nothing")
	// The worker notices the cancel a moment later. By then each message is redriven or on the list.
	var redriven, listed, posts int
	eventually(t, func() bool {
		redriven = 0
		for i := range n {
			if s.status("a", fmt.Sprint(i))["redrives"] == float64(1) {
				redriven++
			}
		}
		listed, posts = len(s.failed("")), r.count()
		return redriven+listed == n && posts == n+redriven
	}, "messages are neither redriven nor on the list")
	eventually(t, func() bool { return s.want(200, "GET", path, adminToken, nil)["done"] == float64(redriven) }, "what was done last is not counted")
	atMost := int(time.Since(begin).Seconds()*rate) + 1
	require.Less(t, redriven, n)
	require.LessOrEqual(t, redriven, atMost)

	op = s.operate("redrive", object{"filter": object{"receiver": "ci"}})
	require.Equal(t, "done", op["state"])
	eventually(t, func() bool { // the worker may redrive one more message before it notices
		return s.want(200, "GET", path, adminToken, nil)["done"].(float64)+op["done"].(float64) == n
	}, "the two operations together have not redriven each once")
	for i := range n {
		s.awaitStatus("a", fmt.Sprint(i), "DONE")
	}
	require.Equal(t, 2*n, r.count(), "each was refused once and redriven once")
}

// An operation that waits for its rate does not block a stop, and continues after it.
func TestStopDuringASlowOperation(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Relay.Drain = time.Hour
	n, err := Start(t.Context(), cfg, testLog())
	require.NoError(t, err)
	s := &site{t, n.URL()}
	r := newPeer(t, func(int, seen) (int, string) { return 400, "" })
	s.receiver("ci", r.URL, nil)
	s.batch("a", "ci", 3)
	eventually(t, func() bool { return len(s.failed("source=a")) == 3 }, "not all are on the list")
	path := "/v1/operations/" + s.want(202, "POST", "/v1/failed:redrive", adminToken, object{"filter": object{}, "rate": 0.001})["id"].(string)
	eventually(t, func() bool { return s.want(200, "GET", path, adminToken, nil)["done"] == float64(1) }, "the first is not redriven")
	stopped := make(chan error, 1)
	go func() { stopped <- n.Stop(context.Background()) }()
	select {
	case err := <-stopped:
		require.NoError(t, err)
	case <-time.After(waitLong):
		t.Fatal("the stop waits for the next message's turn")
	}
	require.NoError(t, n.Stop(context.Background()), "again it does nothing")
	n, err = Start(t.Context(), cfg, testLog())
	require.NoError(t, err)
	s.url = n.URL()
	eventually(t, func() bool { return s.want(200, "GET", path, adminToken, nil)["done"] == float64(2) }, "it does not go on")
	require.Equal(t, "running", s.want(200, "GET", path, adminToken, nil)["state"])
	require.NoError(t, n.Stop(context.Background()))
}

// Messages that wait for a deleted receiver fail, and their sender gets callbacks. They can be redriven when a receiver of that
// name exists again.
func TestDeletedReceiver(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	r, callback := newPeer(t, nil), newPeer(t, nil)
	s.sender("git", callback.URL, "")
	s.receiver("ci", r.URL, object{"paused": true})
	s.batch("a", "ci", 5)
	code, _ := s.call("DELETE", "/v1/receivers/ci", adminToken, nil)
	require.Equal(t, 204, code)
	s.want(404, "GET", "/v1/receivers/ci", adminToken, nil)
	s.want(404, "POST", "/v1/messages", adminToken, message("a", "new", "ci"))
	for i := range 5 {
		o := s.awaitStatus("a", fmt.Sprint(i), "FAILED")
		require.Equal(t, "RECEIVER_DELETED", o["error"].(object)["code"])
	}
	eventually(t, func() bool { return callback.count() == 5 }, "the callback is missing")
	require.Zero(t, r.count())
	op := s.operate("redrive", object{"filter": object{}})
	require.EqualValues(t, 0, op["done"], "there is no such receiver")
	require.Len(t, s.failed("reason=RECEIVER_DELETED"), 5)
	s.receiver("ci", r.URL, nil)
	require.EqualValues(t, 5, s.operate("redrive", object{"filter": object{}})["done"])
	for i := range 5 {
		s.awaitStatus("a", fmt.Sprint(i), "DONE")
	}
	require.Equal(t, 5, r.count())
}

// A receiver that fails five times in a row gets one probe at a time, and all its messages after a probe succeeds.
func TestCircuitBreaker(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	var working atomic.Bool
	r := newPeer(t, func(int, seen) (int, string) {
		if working.Load() {
			return 200, "1"
		}
		return 500, ""
	})
	s.receiver("ci", r.URL, object{"max_retries": 1000, "retry_after": 0, "order": "receiver"})
	s.batch("a", "ci", 20)
	state := func() any {
		return s.want(200, "GET", "/v1/receivers/ci", adminToken, nil)["state"].(object)["breaker"]
	}
	eventually(t, func() bool { return state() == "open" }, "the breaker does not open")
	// The first probe is a second after the breaker opened, so this number of POSTs shows that the breaker was open.
	eventually(t, func() bool { return r.count() >= 7 }, "it is not probed")
	got := r.list()
	require.GreaterOrEqual(t, got[5].At.Sub(got[4].At), time.Second, "between the fifth POST and the first probe")
	require.GreaterOrEqual(t, got[6].At.Sub(got[5].At), time.Second, "between two probes")
	working.Store(true)
	// A change of the configuration makes the breaker probe at once.
	s.receiver("ci", r.URL, object{"max_retries": 1000, "retry_after": 0})
	for i := range 20 {
		s.awaitStatus("a", fmt.Sprint(i), "DONE")
	}
	require.Equal(t, "closed", state())
}

// A message is redriven and completed before its failure was reported to the sender. Only the last end is reported.
func TestRedrivenBeforeItsCallback(t *testing.T) {
	t.Parallel()
	s := startSite(t, func(c *Config) { c.Relay.Concurrency = 1 })
	var working atomic.Bool
	r := newPeer(t, func(_ int, got seen) (int, string) {
		if working.Load() || strings.Contains(got.Body, "first") {
			return 200, "1"
		}
		return 400, ""
	})
	begun, release := make(chan struct{}, 10), make(chan struct{})
	callback := newPeer(t, func(int, seen) (int, string) {
		begun <- struct{}{}
		<-release
		return 200, ""
	})
	s.sender("git", callback.URL, "")
	s.receiver("ci", r.URL, nil)
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "first", "ci"))
	<-begun
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "redriven", "ci"))
	s.awaitStatus("a", "redriven", "FAILED")
	eventually(t, func() bool { return len(s.failed("")) == 1 }, "it is not on the list")
	working.Store(true)
	require.EqualValues(t, 1, s.operate("redrive", object{"filter": object{}})["done"])
	s.awaitStatus("a", "redriven", "RESPONSE_RECEIVED_FROM_RECEIVER")
	close(release)
	s.awaitStatus("a", "redriven", "DONE")
	var ids []string
	for _, got := range callback.list() {
		ids = append(ids, got.Header.Get("Webhook-Id"))
	}
	require.Equal(t, []string{"a/first", "a/redriven/1"}, ids)
}

// A failed message that cannot be decoded is counted by a redrive, which goes on behind it. A purge takes it off the list.
func TestFailedMessageThatCannotBeRead(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	s := startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	r := newPeer(t, func(int, seen) (int, string) { return 403, "" })
	s.receiver("ci", r.URL, nil)
	for _, id := range []string{"1", "2", "3"} {
		require.Equal(t, "FAILED", s.want(200, "POST", "/v1/messages?wait=20s", adminToken, message("a", id, "ci"))["status"])
	}
	js := testJetStream(t, srv.Connect(t))
	failed, err := js.Stream(t.Context(), "relay_failed_messages")
	require.NoError(t, err)
	eventually(t, func() bool { return len(s.failed("")) == 3 }, "the list is not complete")
	second, err := failed.GetMsg(t.Context(), 2)
	require.NoError(t, err)
	second.Header.Del(nats.MsgIdHdr)
	_, err = js.PublishMsg(t.Context(), &nats.Msg{Subject: second.Subject, Header: second.Header, Data: []byte("garbage")})
	require.NoError(t, err)

	op := s.operate("redrive", object{"filter": object{}})
	require.EqualValues(t, 2, op["done"])
	require.EqualValues(t, 1, op["failed"])
	eventually(t, func() bool { return r.count() == 5 }, "the others are not sent again")
	eventually(t, func() bool { return len(s.failed("")) == 3 }, "the list is not complete")
	require.EqualValues(t, 3, s.operate("purge", object{"filter": object{}})["done"])
}
