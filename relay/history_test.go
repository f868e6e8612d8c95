package relay

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// traits are what a receiver of a history does, and how it is configured.
type traits struct {
	asked      bool   // it has a status endpoint
	pending    bool   // it answers 202 and has the result at the second poll
	unknown    string // at_least_once or at_most_once, without a status endpoint
	order      string
	limit      int
	window     time.Duration
	maxRetries int
	failEvery  int // each such POST is answered with 500, and has no effect
	latency    time.Duration
}

// post is one POST as its receiver saw it.
type post struct {
	key     string
	attempt int
	at      time.Time
	worked  bool // it was answered with 2xx, and has had its effect
	overlap bool // another was in progress
}

// endpoint is a receiver of a history.
type endpoint struct {
	traits
	*peer
	mu       sync.Mutex
	posts    []post
	has      map[string]bool
	polls    map[string]int
	inFlight int
}

// history is what happened in a run, as senders, receivers and callbacks saw it. Its check states what must hold of any
// run, whatever was killed.
type history struct {
	t         testing.TB
	callback  *peer
	receivers map[string]*endpoint

	mu       sync.Mutex
	offered  map[string]string   // receiver of each message that was handed in
	order    map[string][]string // messages of each source in the order in which they were accepted
	accepted map[string]bool
}

// newHistory starts receivers and the callback of the one sender.
func newHistory(t testing.TB, receivers map[string]traits) *history {
	h := &history{
		t: t, receivers: map[string]*endpoint{}, offered: map[string]string{}, order: map[string][]string{}, accepted: map[string]bool{},
		callback: newPeer(t, nil),
	}
	for name, traits := range receivers {
		e := &endpoint{traits: traits, has: map[string]bool{}, polls: map[string]int{}}
		e.peer = newPeer(t, e.answer)
		h.receivers[name] = e
	}
	return h
}

// configure tells a relay of the receivers and the sender.
func (h *history) configure(s *site) {
	s.sender("git", h.callback.URL, "")
	for name, e := range h.receivers {
		body := object{"timeout": 0.5, "max_retries": e.maxRetries, "retry_after": 0.01}
		if e.limit > 0 {
			body["rate_limit"], body["window_size"] = e.limit, e.window.Seconds()
		}
		if e.asked {
			body["status_endpoint"] = e.URL + "/status/{source_id}/{message_id}"
		}
		if e.unknown != "" {
			body["unknown_outcome"] = e.unknown
		}
		if e.order != "" {
			body["order"] = e.order
		}
		s.receiver(name, e.URL, body)
	}
}

func (e *endpoint) answer(_ int, got seen) (int, string) {
	if got.Method != http.MethodPost {
		return e.status(strings.TrimPrefix(got.Path, "/status/"))
	}
	attempt, _ := strconv.Atoi(got.Header.Get("Relay-Attempt"))
	p := post{key: got.Header.Get("Webhook-Id"), attempt: attempt, at: got.At}
	e.mu.Lock()
	p.overlap = e.inFlight > 0
	e.inFlight++
	p.worked = e.failEvery == 0 || (len(e.posts)+1)%e.failEvery != 0
	if p.worked {
		e.has[p.key] = true
	}
	e.posts = append(e.posts, p)
	e.mu.Unlock()
	if e.latency > 0 {
		<-time.After(e.latency)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inFlight--
	switch {
	case !p.worked:
		return http.StatusInternalServerError, "not now"
	case e.pending:
		return http.StatusAccepted, ""
	}
	return http.StatusOK, strconv.Quote(p.key)
}

func (e *endpoint) status(key string) (int, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.has[key] {
		return http.StatusNotFound, ""
	}
	if e.polls[key]++; e.pending && e.polls[key] < 2 {
		return http.StatusAccepted, ""
	}
	return http.StatusOK, strconv.Quote(key)
}

// offer says that a message is about to be handed in, and accept that the relay has taken it.
func (h *history) offer(source, id, receiver string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offered[source+"/"+id] = receiver
}

func (h *history) accept(source, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.accepted[source+"/"+id] = true
	h.order[source] = append(h.order[source], source+"/"+id)
}

// tally is what a run may have in some measure when processes were killed, and must not have at all otherwise.
type tally struct {
	doubles int // POSTs that worked, of a message that had worked before
	repeats int // POSTs with the number of an earlier one
	retold  int // callbacks with a webhook-id that the sender had answered
}

// check waits until every message has ended, and states what must hold. inFlight is how many messages can have been in
// work when processes were killed, in all: 0 if none was.
func (h *history) check(s *site, inFlight int) {
	h.t.Helper()
	ends := map[string]object{}
	for key := range h.offered {
		if o := h.end(s, key); o != nil {
			ends[key] = o
		}
	}
	posts := map[string][]post{}
	for _, e := range h.receivers {
		for _, p := range e.seen() {
			posts[p.key] = append(posts[p.key], p)
		}
	}
	var sum tally
	for key, receiver := range h.offered {
		if ends[key] == nil {
			require.False(h.t, h.accepted[key], "%s was accepted and is not known", key)
			require.Empty(h.t, posts[key], "%s was sent and is not known", key)
			continue
		}
		h.checkPosts(h.receivers[receiver], key, ends[key], posts[key], &sum)
	}
	h.checkTold(ends, &sum)
	for name, e := range h.receivers {
		h.checkReceiver(name, e)
	}
	h.t.Logf("%d messages, %+v, at most %d in flight when processes were killed", len(ends), sum, inFlight)
	require.LessOrEqual(h.t, max(sum.doubles, sum.repeats, sum.retold), inFlight)
}

func (e *endpoint) seen() []post {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.posts)
}

// waitEnd bounds the wait for the end of a message: what waits for a rate limit may be much.
const waitEnd = 10 * time.Minute

// end waits for the end of a message; nil: the relay does not know it.
func (h *history) end(s *site, key string) (o object) {
	h.t.Helper()
	within(h.t, waitEnd, func() bool {
		code, data := s.call("GET", "/v1/messages/"+key, adminToken, nil)
		if code == http.StatusNotFound {
			o = nil
			return true
		}
		require.Equal(h.t, http.StatusOK, code, "%s: %s", key, data)
		require.NoError(h.t, json.Unmarshal(data, &o))
		return o["status"] == "DONE" || o["status"] == "FAILED"
	}, key+" does not end")
	return o
}

// checkPosts states what holds of the POSTs of one message, which nobody has redriven.
func (h *history) checkPosts(e *endpoint, key string, o object, posts []post, sum *tally) {
	h.t.Helper()
	worked, repeats, last := 0, 0, 0
	for _, p := range posts {
		if worked > 0 && (e.asked || e.unknown == "at_most_once") {
			h.t.Errorf("%s was POSTed again after it had worked: %+v", key, posts)
		}
		if p.attempt < last {
			h.t.Errorf("the attempts of %s are out of order: %+v", key, posts)
		}
		if p.attempt == last {
			repeats++
		}
		if last = p.attempt; p.worked {
			worked++
		}
	}
	sum.doubles += max(0, worked-1)
	sum.repeats += repeats
	require.LessOrEqual(h.t, len(posts)-repeats, e.maxRetries+1, "attempts of %s", key)
	if o["status"] == "DONE" {
		require.Positive(h.t, worked, "%s is DONE and has not worked", key)
		require.Equal(h.t, key, o["response"])
		return
	}
	if worked > 0 {
		require.Equal(h.t, "UNKNOWN_OUTCOME", o["error"].(object)["code"], "%s has worked: %v", key, o)
		require.Equal(h.t, "at_most_once", e.unknown, "%s has worked: %v", key, o)
	}
}

// checkTold states that the sender was told of each end, of nothing else, and never of two ends.
func (h *history) checkTold(ends map[string]object, sum *tally) {
	h.t.Helper()
	told := map[string][]string{}
	look := func() bool {
		clear(told)
		for _, got := range h.callback.list() {
			var body struct {
				Status    string
				SourceID  string `json:"source_id"`
				MessageID string `json:"message_id"`
			}
			require.NoError(h.t, json.Unmarshal([]byte(got.Body), &body))
			key := body.SourceID + "/" + body.MessageID
			require.Equal(h.t, key, got.Header.Get("Webhook-Id"))
			told[key] = append(told[key], body.Status)
		}
		return len(told) >= len(ends)
	}
	eventually(h.t, look, fmt.Sprintf("the sender is told of %d of %d ends", len(told), len(ends)))
	for key, statuses := range told {
		require.Contains(h.t, ends, key, "the sender is told of a message that is not known")
		for _, status := range statuses {
			require.Equal(h.t, ends[key]["status"], status, "what the sender is told of %s", key)
		}
		sum.retold += len(statuses) - 1
	}
}

// checkReceiver states what holds of all POSTs to a receiver.
func (h *history) checkReceiver(name string, e *endpoint) {
	h.t.Helper()
	posts := e.seen()
	slices.SortStableFunc(posts, func(a, b post) int { return a.at.Compare(b.at) })
	for i := e.limit; e.limit > 0 && i < len(posts); i++ {
		require.GreaterOrEqual(h.t, posts[i].at.Sub(posts[i-e.limit].at), e.window, "POSTs %d to %d to %s", i-e.limit, i, name)
	}
	if e.order == "" {
		return
	}
	turn := map[string]int{}
	for _, keys := range h.order {
		for i, key := range keys {
			turn[key] = i + 1
		}
	}
	last := map[string]string{}
	for _, p := range posts {
		source, _, _ := strings.Cut(p.key, "/")
		if turn[p.key] == 0 {
			continue // its sender had no answer, so it has no place in the order
		}
		require.LessOrEqual(h.t, cmp.Or(turn[last[source]], 1), turn[p.key], "%s was sent to %s after %s", p.key, name, last[source])
		last[source] = p.key
		require.False(h.t, e.order == "receiver" && p.overlap, "%s was sent to %s while another was in progress", p.key, name)
	}
}
