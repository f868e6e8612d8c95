package relay

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/test/servertest"
)

func TestResponseIsCarriedBack(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	secret, old, callbackSecret := webhook.NewSecret(), webhook.NewSecret(), webhook.NewSecret()
	r := newPeer(t, nil)
	callback := newPeer(t, func(n int, _ seen) (int, string) {
		if n < 3 {
			return 500, ""
		}
		return 204, ""
	})
	s.receiver("ci", r.URL+"/hook", object{"secrets": []string{secret, old}})
	s.want(200, "PUT", "/v1/senders/git", adminToken, object{
		"callback_endpoint": callback.URL, "token": "git-token",
		"secrets": []string{callbackSecret}, "sources": []string{"repo/"},
	})
	m := message("repo/a b", "push 1", "ci")
	m["headers"] = object{"X-Event": "push", "Content-Encoding": "br"}
	answer := s.want(202, "POST", "/v1/messages", "git-token", m)
	require.Equal(t, "ARRIVED", answer["status"])
	done := s.awaitStatus("repo%2Fa%20b", "push%201", "DONE")
	require.Equal(t, object{"ok": true}, done["response"])
	require.Len(t, done["attempts"], 1)

	require.Equal(t, 1, r.count())
	post := r.list()[0]
	require.Equal(t, `{"n":"push 1"}`, post.Body)
	require.Equal(t, "repo%2Fa%20b/push%201", post.Header.Get("Webhook-Id"))
	require.Equal(t, "1", post.Header.Get("Relay-Attempt"))
	require.Equal(t, "br", post.Header.Get("Content-Encoding"))
	require.Equal(t, "push", post.Header.Get("X-Event"))
	for _, known := range []string{secret, old} {
		wh, err := standardwebhooks.NewWebhook(known)
		require.NoError(t, err)
		require.NoError(t, wh.Verify([]byte(post.Body), post.Header))
	}
	require.Equal(t, 3, callback.count(), "it is called until it answers with 2xx")
	result := callback.list()[2]
	require.JSONEq(t, `{"source_id":"repo/a b","message_id":"push 1","status":"DONE","response":{"ok":true}}`, result.Body)
	wh, err := standardwebhooks.NewWebhook(callbackSecret)
	require.NoError(t, err)
	require.NoError(t, wh.Verify([]byte(result.Body), result.Header))

	again := s.want(200, "POST", "/v1/messages", "git-token", m)
	require.Equal(t, "DONE", again["status"])
	m["payload"] = 2
	conflict := s.want(409, "POST", "/v1/messages", "git-token", m)
	require.Equal(t, "conflict", conflict["error"].(object)["code"])
	require.Equal(t, 1, r.count())
}

func TestPendingResponseIsPolled(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	r := newPeer(t, nil)
	var polls atomic.Int32
	r.code = func(_ int, got seen) (int, string) {
		if got.Method == http.MethodPost {
			return 202, ""
		}
		if polls.Add(1) < 3 {
			return 202, ""
		}
		return 200, `"late"`
	}
	s.receiver("ci", r.URL, object{"status_endpoint": r.URL + "/status/{source_id}?m={message_id}"})
	s.want(202, "POST", "/v1/messages", adminToken, message("a/b", "1", "ci"))
	result := s.want(200, "GET", "/v1/messages/a%2Fb/1/response?wait=20s", adminToken, nil)
	require.Equal(t, "late", result["response"])
	require.Equal(t, "DONE", result["status"])
	require.Equal(t, "/status/a%2Fb", r.list()[1].Path)
	require.Equal(t, 4, r.count())
}

func TestWaitAnswersTheResponse(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	release := make(chan struct{})
	r := newPeer(t, func(_ int, got seen) (int, string) {
		if strings.Contains(got.Body, "slow") {
			<-release
		}
		return 200, "plain text"
	})
	s.receiver("ci", r.URL, nil)
	result := s.want(200, "POST", "/v1/messages?wait=20s", adminToken, message("a", "1", "ci"))
	require.Equal(t, "plain text", result["response"])
	s.want(202, "POST", "/v1/messages?wait=50ms", adminToken, message("a", "slow", "ci"))
	close(release)
	s.awaitStatus("a", "slow", "DONE")
}

func TestFailuresAreListedReportedAndRedriven(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	broken := true
	r := newPeer(t, nil)
	r.code = func(_ int, got seen) (int, string) {
		switch {
		case strings.Contains(got.Body, "refused"):
			return 422, "no"
		case broken:
			return 500, "broken"
		}
		return 200, "1"
	}
	callback := newPeer(t, nil)
	s.receiver("ci", r.URL, object{"max_retries": 2, "retry_after": 0})
	s.sender("git", callback.URL, "")
	s.want(202, "POST", "/v1/messages", "git-token", message("a", "exhausted", "ci"))
	failed := s.awaitStatus("a", "exhausted", "FAILED")
	require.Len(t, failed["attempts"], 3)
	require.Equal(t, "EXHAUSTED", failed["error"].(object)["code"])
	s.want(202, "POST", "/v1/messages", "git-token", message("a", "refused", "ci"))
	s.awaitStatus("a", "refused", "FAILED")
	result := s.want(200, "POST", "/v1/messages?wait=10s", "git-token", message("a", "refused", "ci"))
	require.Equal(t, "FAILED", result["status"])

	items := s.want(200, "GET", "/v1/failed?receiver=ci", adminToken, nil)["items"].([]any)
	require.Len(t, items, 2)
	require.Equal(t, "refused", items[0].(object)["message_id"], "newest first")
	require.Equal(t, "to_receiver", items[0].(object)["stage"])
	require.Equal(t, "PERMANENT", items[0].(object)["reason"])
	require.EqualValues(t, 3, items[1].(object)["attempts"])
	page := s.want(200, "GET", "/v1/failed?limit=1", adminToken, nil)
	next := s.want(200, "GET", "/v1/failed?limit=1&cursor="+page["cursor"].(string), adminToken, nil)
	require.Equal(t, "exhausted", next["items"].([]any)[0].(object)["message_id"])
	eventually(t, func() bool { return callback.count() == 2 }, "the callbacks are missing")

	broken = false
	filter := object{"filter": object{"reason": "EXHAUSTED"}, "dry_run": true}
	require.EqualValues(t, 1, s.want(200, "POST", "/v1/failed:redrive", adminToken, filter)["matched"])
	delete(filter, "dry_run")
	op := s.want(202, "POST", "/v1/failed:redrive", adminToken, filter)
	eventually(t, func() bool {
		op = s.want(200, "GET", "/v1/operations/"+op["id"].(string), adminToken, nil)
		return op["state"] == "done"
	}, "the operation does not end")
	require.EqualValues(t, 1, op["done"])
	done := s.awaitStatus("a", "exhausted", "DONE")
	require.EqualValues(t, 1, done["redrives"])

	op = s.want(202, "POST", "/v1/failed:purge", adminToken, object{"ids": []string{items[0].(object)["id"].(string)}})
	eventually(t, func() bool {
		return len(s.want(200, "GET", "/v1/failed", adminToken, nil)["items"].([]any)) == 0
	}, "the list is not empty")
	require.Equal(t, "FAILED", s.status("a", "refused")["status"])
	require.NotNil(t, op)
}

// A receiver that answered 410 gets nothing until it is enabled, or its configuration is PUT again. Pause and resume do neither.
func TestGoneDisables(t *testing.T) {
	t.Parallel()
	for method, enable := range map[string]object{"PUT": {"timeout": 7}, "PATCH": {"enable": true}} {
		s := startSite(t)
		gone := true
		r := newPeer(t, func(int, seen) (int, string) {
			if gone {
				return 410, ""
			}
			return 200, "1"
		})
		s.receiver("ci", r.URL, object{"timeout": 7})
		s.want(202, "POST", "/v1/messages", adminToken, message("a", "1", "ci"))
		shown := func() object { return s.want(200, "GET", "/v1/receivers/ci", adminToken, nil) }
		state := func() object { return shown()["state"].(object) }
		eventually(t, func() bool { return state()["disabled"] == true }, "it is not disabled")
		s.want(202, "POST", "/v1/messages", adminToken, message("a", "2", "ci"))
		require.EqualValues(t, 2, state()["backlog"])
		for _, paused := range []bool{true, false} {
			require.Equal(t, paused, s.want(200, "PATCH", "/v1/receivers/ci", adminToken, object{"paused": paused})["paused"])
			require.Equal(t, true, state()["disabled"])
			require.EqualValues(t, 7, shown()["timeout"])
		}
		gone = false
		if method == "PUT" {
			enable["post_endpoint"] = r.URL
		}
		s.want(200, method, "/v1/receivers/ci", adminToken, enable)
		s.awaitStatus("a", "1", "DONE")
		s.awaitStatus("a", "2", "DONE")
		require.Equal(t, 3, r.count())
		require.EqualValues(t, 7, shown()["timeout"])
		s.want(404, "PATCH", "/v1/receivers/other", adminToken, object{"paused": true})
	}
}

// A PUT configures a receiver while a POST is in flight, which is then answered with 410. The 410 belongs to the earlier
// configuration.
func TestGoneBeforeThePUT(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	begun, configured := make(chan struct{}), make(chan struct{})
	r := newPeer(t, func(n int, _ seen) (int, string) {
		if n == 1 {
			close(begun)
			<-configured
			return 410, ""
		}
		return 200, "1"
	})
	s.receiver("ci", r.URL, nil)
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "1", "ci"))
	<-begun
	s.receiver("ci", r.URL, nil)
	close(configured)
	o := s.want(200, "GET", "/v1/messages/a/1/response?wait=20s", adminToken, nil)
	require.Equal(t, "DONE", o["status"], "it is disabled")
	require.Equal(t, 2, r.count())
}

func TestRateLimitHoldsInEveryWindow(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	r := newPeer(t, nil)
	const limit = 20
	window := 400 * time.Millisecond
	s.receiver("ci", r.URL, object{"rate_limit": limit, "window_size": window.Seconds()})
	var batch strings.Builder
	const n = 100
	for i := range n {
		data, err := json.Marshal(message(fmt.Sprint("s", i%7), fmt.Sprint(i), "ci"))
		require.NoError(t, err)
		batch.Write(append(data, '\n'))
	}
	code, lines := s.call("POST", "/v1/messages:batch", adminToken, batch.String())
	require.Equal(t, 200, code)
	require.Equal(t, n, strings.Count(string(lines), "ARRIVED"))
	eventually(t, func() bool { return r.count() == n }, "not all arrive")
	requireWindows(t, r.list(), limit, window)
}

func requireWindows(t testing.TB, got []seen, limit int, window time.Duration) {
	t.Helper()
	for i := limit; i < len(got); i++ {
		require.GreaterOrEqual(t, got[i].At.Sub(got[i-limit].At), window, "requests %d to %d", i-limit, i)
	}
}

func TestOrderOfASourceWithFailures(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"source", "receiver"} {
		t.Run(order, func(t *testing.T) {
			s := startSite(t)
			r := newPeer(t, func(n int, _ seen) (int, string) {
				if n%3 == 0 {
					return 500, ""
				}
				return 200, "1"
			})
			s.receiver("ci", r.URL, object{"order": order, "max_retries": 50, "retry_after": 0.01})
			const n = 60
			for i := range n {
				s.want(202, "POST", "/v1/messages", adminToken, message(fmt.Sprint("s", i%4), fmt.Sprintf("%03d", i), "ci"))
			}
			for i := range n {
				s.awaitStatus(fmt.Sprint("s", i%4), fmt.Sprintf("%03d", i), "DONE")
			}
			last := map[string]string{}
			for _, got := range r.list() {
				source, id, _ := strings.Cut(got.Header.Get("Webhook-Id"), "/")
				require.GreaterOrEqual(t, id, last[source])
				last[source] = id
			}
		})
	}
}

func TestTimeToLive(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	r := newPeer(t, nil)
	callback := newPeer(t, nil)
	s.sender("git", callback.URL, "")
	s.receiver("ci", r.URL, object{"ttl": 1, "paused": true})
	s.want(202, "POST", "/v1/messages", "git-token", message("a", "1", "ci"))
	o := s.awaitStatus("a", "1", "FAILED")
	require.Equal(t, "EXPIRED", o["error"].(object)["code"])
	eventually(t, func() bool { return callback.count() == 1 }, "the callback is missing")
	s.receiver("ci", r.URL, nil)
	items := s.want(200, "GET", "/v1/failed", adminToken, nil)["items"].([]any)
	require.Len(t, items, 1)
	s.want(202, "POST", "/v1/failed:redrive", adminToken, object{"ids": []string{items[0].(object)["id"].(string)}})
	s.awaitStatus("a", "1", "DONE")
	require.Equal(t, `{"n":"1"}`, r.list()[0].Body)
}

// A message whose next attempt is due after its time to live is not sent once more when that is over.
func TestNoAttemptWhenItExpires(t *testing.T) {
	t.Parallel()
	const messages = 200
	s := startSite(t)
	r := newPeer(t, func(int, seen) (int, string) { return http.StatusTooEarly, "" })
	s.receiver("ci", r.URL, object{"ttl": 1, "retry_after": 60})
	s.batch("a", "ci", messages)
	for i := range messages {
		o := s.awaitStatus("a", fmt.Sprint(i), "FAILED")
		require.Equal(t, "EXPIRED", o["error"].(object)["code"])
		require.LessOrEqual(t, o["attempt"].(float64), 1.0)
	}
}

func TestLostAnswer(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	for _, tt := range []struct {
		name, unknown string
		status        func(n int) (int, string)
		want          string
		posts         int
	}{
		{"once", "at_most_once", nil, "FAILED", 1},
		{"least", "at_least_once", nil, "DONE", 2},
		{"has-it", "", func(int) (int, string) { return 200, `"had"` }, "DONE", 1},
		{"never-seen", "", func(int) (int, string) { return 404, "" }, "DONE", 2},
	} {
		var posts atomic.Int32
		r := newPeer(t, nil)
		r.code = func(n int, got seen) (int, string) {
			if got.Method == http.MethodGet {
				return tt.status(n)
			}
			if posts.Add(1) == 1 {
				return 0, "" // the connection is reset
			}
			return 200, "1"
		}
		extra := object{"timeout": 0.3}
		if tt.unknown != "" {
			extra["unknown_outcome"] = tt.unknown
		} else {
			extra["status_endpoint"] = r.URL + "/{source_id}/{message_id}"
		}
		s.receiver(tt.name, r.URL, extra)
		s.want(202, "POST", "/v1/messages", adminToken, message("a", tt.name, tt.name))
		o := s.awaitStatus("a", tt.name, tt.want)
		require.EqualValues(t, tt.posts, posts.Load(), tt.name)
		if tt.want == "FAILED" {
			require.Equal(t, "UNKNOWN_OUTCOME", o["error"].(object)["code"])
		}
	}
}

// A message is known as soon as it is answered. A batch that has a message twice, and another one with the same ID, gets an
// answer for each.
func TestAMessageIsKnownOnceItIsAnswered(t *testing.T) {
	t.Parallel()
	s := startSite(t)
	s.receiver("ci", newPeer(t, nil).URL, object{"paused": true})
	s.want(202, "POST", "/v1/messages", adminToken, message("a", "1", "ci"))
	require.Equal(t, "ARRIVED", s.status("a", "1")["status"])
	require.EqualValues(t, 1, s.want(200, "GET", "/v1/receivers/ci", adminToken, nil)["state"].(object)["backlog"])
	code, body := s.call("POST", "/v1/messages:batch", adminToken, `{"source_id":"a","message_id":"2","receiver":"ci","payload":1}
{"source_id":"a","message_id":"2","receiver":"ci","payload":1}
{"source_id":"a","message_id":"2","receiver":"ci","payload":2}
`)
	require.Equal(t, 200, code)
	lines := strings.Split(strings.TrimSpace(string(body)), "\n")
	require.Len(t, lines, 3)
	for _, line := range lines[:2] {
		require.JSONEq(t, `{"source_id":"a","message_id":"2","status":"ARRIVED"}`, line)
	}
	require.Contains(t, lines[2], `"conflict"`)
	require.EqualValues(t, 2, s.want(200, "GET", "/v1/receivers/ci", adminToken, nil)["state"].(object)["backlog"])
}

// The store cannot be read while a request waits. The message is stored, and the answer says so.
func TestWaitWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	js := testJetStream(t, srv.Connect(t))
	s := startSite(t, func(c *Config) { c.NATS.URL = srv.URL() })
	s.receiver("ci", newPeer(t, nil).URL, object{"paused": true})
	answered := make(chan int, 1)
	go func() {
		code, _ := s.call("POST", "/v1/messages?wait=4s", adminToken, message("a", "1", "ci"))
		answered <- code
	}()
	eventually(t, func() bool { return s.mayHave("a", "1", "ARRIVED") }, "it is not stored")
	require.NoError(t, js.DeleteStream(t.Context(), "KV_relay_messages"))
	require.Equal(t, 202, <-answered)
}
