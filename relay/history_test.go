package relay

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest/relayhistory"
)

// traits are the promises and the behaviour of a receiver in a run.
type traits struct {
	relayhistory.Traits
	pending   bool // it answers 202 and has the result at the second poll
	failEvery int  // every n-th POST is answered with 500, and has no effect
	latency   time.Duration
}

// endpoint is a receiver of a run.
type endpoint struct {
	traits
	*peer
	mu       sync.Mutex
	posts    []relayhistory.Post
	has      map[string]bool
	polls    map[string]int
	inFlight int
}

// witness records the requests and answers of senders, receivers and callbacks in a run.
type witness struct {
	t         testing.TB
	callback  *peer
	timeout   float64 // of the receivers, in seconds
	receivers map[string]*endpoint

	mu       sync.Mutex
	offered  map[string]string   // the receiver of each submitted message
	order    map[string][]string // the messages of each source in the order in which they were accepted
	accepted map[string]bool
}

// newWitness starts the receivers and the callback endpoint of the sender.
func newWitness(t testing.TB, receivers map[string]traits) *witness {
	h := &witness{
		t: t, receivers: map[string]*endpoint{}, offered: map[string]string{}, order: map[string][]string{}, accepted: map[string]bool{},
		callback: newPeer(t, nil), timeout: 0.5,
	}
	for name, traits := range receivers {
		e := &endpoint{traits: traits, has: map[string]bool{}, polls: map[string]int{}}
		e.peer = newPeer(t, e.answer)
		h.receivers[name] = e
	}
	return h
}

// configure configures the receivers and the sender in a relay.
func (h *witness) configure(s *site) {
	s.sender("git", h.callback.URL, "")
	for name, e := range h.receivers {
		body := object{"timeout": h.timeout, "max_retries": e.MaxRetries, "retry_after": 0.01}
		if e.Limit > 0 {
			body["rate_limit"], body["window_size"] = e.Limit, e.Window.Seconds()
		}
		if e.Asked {
			body["status_endpoint"] = e.URL + "/status/{source_id}/{message_id}"
		}
		if e.Unknown != "" {
			body["unknown_outcome"] = e.Unknown
		}
		if e.Order != "" {
			body["order"] = e.Order
		}
		s.receiver(name, e.URL, body)
	}
}

func (e *endpoint) answer(_ int, got seen) (int, string) {
	if got.Method != http.MethodPost {
		return e.status(strings.TrimPrefix(got.Path, "/status/"))
	}
	attempt, _ := strconv.Atoi(got.Header.Get("Relay-Attempt"))
	p := relayhistory.Post{Key: got.Header.Get("Webhook-Id"), Attempt: attempt, At: got.At}
	e.mu.Lock()
	p.Overlap = e.inFlight > 0
	e.inFlight++
	p.Worked = e.failEvery == 0 || (len(e.posts)+1)%e.failEvery != 0
	if p.Worked {
		e.has[p.Key] = true
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
	case !p.Worked:
		return http.StatusInternalServerError, "not now"
	case e.pending:
		return http.StatusAccepted, ""
	}
	return http.StatusOK, strconv.Quote(p.Key)
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

// offer records that a message is about to be submitted, and accept that the relay has accepted it.
func (h *witness) offer(source, id, receiver string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offered[source+"/"+id] = receiver
}

func (h *witness) accept(source, id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.accepted[source+"/"+id] = true
	h.order[source] = append(h.order[source], source+"/"+id)
}

// check waits until every message has ended, and checks the history. inFlight is the most messages that can have been in progress
// when processes were killed, in all.
func (h *witness) check(s *site, inFlight int) {
	h.t.Helper()
	// A sender without an answer sends again.
	for key, receiver := range h.offered {
		if source, id, _ := strings.Cut(key, "/"); !h.accepted[key] {
			eventually(h.t, func() bool {
				code, _ := s.call("POST", "/v1/messages", adminToken, message(source, id, receiver))
				return code == http.StatusOK || code == http.StatusAccepted
			}, key+" is not accepted")
			h.accept(source, id)
		}
	}
	run := &relayhistory.Run{
		Receivers: map[string]relayhistory.Receiver{}, Offered: h.offered, Accepted: h.accepted, Order: h.order,
		Ends: map[string]relayhistory.End{},
	}
	for key := range h.offered {
		h.readEnd(s, run, key)
	}
	// A message whose sender got no answer may appear after the last check.
	for late := true; late; {
		eventually(h.t, func() bool { run.Reported = h.reported(); return len(run.Reported) >= len(run.Ends) }, "an end is not reported to the sender")
		late = false
		for name, e := range h.receivers {
			run.Receivers[name] = relayhistory.Receiver{Traits: e.Traits, Posts: e.seen()}
			for _, post := range run.Receivers[name].Posts {
				late = h.readEnd(s, run, post.Key) || late
			}
		}
	}
	tally, wrongs := run.Check()
	for _, wrong := range wrongs {
		h.t.Error(wrong)
	}
	h.t.Logf("%d messages, %+v, at most %d in flight when processes were killed", len(run.Ends), tally, inFlight)
	require.LessOrEqual(h.t, tally.Most(), inFlight)
}

// readEnd waits for the end of a message that is not in run, and reports whether it has one now.
func (h *witness) readEnd(s *site, run *relayhistory.Run, key string) bool {
	h.t.Helper()
	if _, ok := run.Ends[key]; ok {
		return false
	}
	o := h.end(s, key)
	if o == nil {
		return false
	}
	end := relayhistory.End{Status: o["status"].(string)}
	end.Response, _ = o["response"].(string)
	if failure, ok := o["error"].(object); ok {
		end.Reason = failure["code"].(string)
	}
	run.Ends[key] = end
	return true
}

// reported returns the statuses that callbacks reported, by message.
func (h *witness) reported() map[string][]string {
	h.t.Helper()
	reported := map[string][]string{}
	for _, got := range h.callback.list() {
		var body struct {
			Status    string
			SourceID  string `json:"source_id"`
			MessageID string `json:"message_id"`
		}
		require.NoError(h.t, json.Unmarshal([]byte(got.Body), &body))
		key := body.SourceID + "/" + body.MessageID
		require.Equal(h.t, key, got.Header.Get("Webhook-Id"))
		reported[key] = append(reported[key], body.Status)
	}
	return reported
}

func (e *endpoint) seen() []relayhistory.Post {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.posts)
}

// waitEnd bounds the wait for the end of a message. A rate limit can delay many messages.
const waitEnd = 10 * time.Minute

// end waits for the end of a message, and returns nil if the relay does not know the message.
func (h *witness) end(s *site, key string) (o object) {
	h.t.Helper()
	within(h.t, waitEnd, func() bool {
		code, data := s.call("GET", "/v1/messages/"+key, adminToken, nil)
		switch code {
		case http.StatusServiceUnavailable:
			return false // the server is busy
		case http.StatusNotFound:
			o = nil
			return true
		}
		require.Equal(h.t, http.StatusOK, code, "%s: %s", key, data)
		require.NoError(h.t, json.Unmarshal(data, &o))
		return o["status"] == "DONE" || o["status"] == "FAILED"
	}, key+" does not end")
	return o
}
