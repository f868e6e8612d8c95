package main

import (
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// receiver is one of those who get events.
type receiver struct {
	name    string
	about   string
	percent int
	limit   int
	window  time.Duration
	// handler makes what answers; seen is called with each message that is POSTed.
	handler func(*receiver, *standardwebhooks.Webhook) http.Handler

	broken atomic.Bool

	mu     sync.Mutex
	events map[string]int // POSTs by source and ID
	posts  []time.Time
	codes  map[int]int
	polls  int
	ready  map[string]time.Time // when the result of an event will be there
}

// receivers are the four. The limited one gets what can pass within half a minute.
func receivers() []*receiver {
	return []*receiver{
		{name: "ci", about: "answers in the response", percent: 38, limit: 1000, window: time.Second, handler: inResponse},
		{name: "builds", about: "answers later", percent: 34, limit: 1000, window: time.Second, handler: later},
		{name: "partner", about: "200 in 10 s", percent: 8, limit: 200, window: 10 * time.Second, handler: inResponse},
		{name: "billing", about: "refuses all at first", percent: 20, limit: 500, window: time.Second, handler: refusing},
	}
}

// buildTime is what an event takes at the receiver that answers later.
const buildTime = 700 * time.Millisecond

// saw notes a POST and its answer.
func (r *receiver) saw(webhookID string, code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.posts = append(r.posts, time.Now())
	r.events[webhookID]++
	r.codes[code]++
}

func inResponse(r *receiver, v *standardwebhooks.Webhook) http.Handler {
	return signed(v, func(w http.ResponseWriter, id string) {
		r.saw(id, http.StatusOK)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"ok":true}`)
	})
}

func refusing(r *receiver, v *standardwebhooks.Webhook) http.Handler {
	r.broken.Store(true)
	well := inResponse(r, v)
	ill := signed(v, func(w http.ResponseWriter, id string) {
		r.saw(id, http.StatusUnprocessableEntity)
		http.Error(w, "the schema of invoices is being changed", http.StatusUnprocessableEntity)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.broken.Load() {
			ill.ServeHTTP(w, req)
			return
		}
		well.ServeHTTP(w, req)
	})
}

// signed hands on requests that the relay has signed.
func signed(v *standardwebhooks.Webhook, handle func(w http.ResponseWriter, id string)) http.Handler {
	return verified(v, func(w http.ResponseWriter, req *http.Request, _ []byte) { handle(w, req.Header.Get("Webhook-Id")) })
}

// verified hands on requests that the relay has signed, with their bodies.
func verified(v *standardwebhooks.Webhook, handle func(w http.ResponseWriter, req *http.Request, body []byte)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err == nil {
			err = v.Verify(body, req.Header)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		handle(w, req, body)
	})
}

// later answers a POST with 202, and a GET with the result, 202 if there is none yet, or 404. The signature of a GET covers the webhook-id, so that
// says which message is meant.
func later(r *receiver, v *standardwebhooks.Webhook) http.Handler {
	return verified(v, func(w http.ResponseWriter, req *http.Request, _ []byte) {
		id := req.Header.Get("Webhook-Id")
		if req.Method == http.MethodPost {
			r.saw(id, http.StatusAccepted)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		at, known := r.ready[id]
		switch {
		case req.Method == http.MethodPost:
			r.ready[id] = time.Now().Add(buildTime)
			w.WriteHeader(http.StatusAccepted)
			return
		case !known:
			w.WriteHeader(http.StatusNotFound)
		case time.Now().Before(at):
			w.WriteHeader(http.StatusAccepted)
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]string{"build": id})
		}
		r.polls++
	})
}

// densest is the most POSTs that arrived within any window.
func (r *receiver) densest() int {
	most, first := 0, 0
	for i, at := range r.posts {
		for at.Sub(r.posts[first]) >= r.window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}
