package main

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jetpull/jetpull/relay/client"
)

// receiver is a receiver of events.
type receiver struct {
	name    string
	about   string
	percent int
	limit   int
	window  time.Duration
	// handler returns the receiver's HTTP handler, which verifies signatures.
	handler func(*receiver, *client.Verifier) http.Handler

	broken atomic.Bool

	mu     sync.Mutex
	events map[string]int // POSTs by source and ID
	posts  []time.Time
	codes  map[int]int
	polls  int
	ready  map[string]time.Time // when the result of an event will be ready
}

// receivers returns the four receivers. The one with a low limit gets so few events that they pass within about half a minute.
func receivers() []*receiver {
	return []*receiver{
		{name: "ci", about: "answers in the response", percent: 38, limit: 1000, window: time.Second, handler: inResponse},
		{name: "builds", about: "answers later", percent: 34, limit: 1000, window: time.Second, handler: later},
		{name: "partner", about: "200 in 10 s", percent: 8, limit: 200, window: 10 * time.Second, handler: inResponse},
		{name: "billing", about: "refuses all at first", percent: 20, limit: 500, window: time.Second, handler: refusing},
	}
}

// buildTime is how long the receiver that answers later takes for an event.
const buildTime = 700 * time.Millisecond

// saw records a POST and the status of its response.
func (r *receiver) saw(webhookID string, code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.posts = append(r.posts, time.Now())
	r.events[webhookID]++
	r.codes[code]++
}

func inResponse(r *receiver, v *client.Verifier) http.Handler {
	return signed(v, func(w http.ResponseWriter, id string) {
		r.saw(id, http.StatusOK)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"ok":true}`)
	})
}

func refusing(r *receiver, v *client.Verifier) http.Handler {
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

// signed calls handle for requests with a valid signature of the relay. It refuses others.
func signed(v *client.Verifier, handle func(w http.ResponseWriter, id string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err == nil {
			err = v.Verify(req.Header, body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		handle(w, req.Header.Get("Webhook-Id"))
	})
}

func later(r *receiver, v *client.Verifier) http.Handler {
	return &client.Receiver{
		Verifier: v,
		Accept: func(_ context.Context, d client.Delivery) error {
			id := d.Source + "/" + d.ID
			r.saw(id, http.StatusAccepted)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ready[id] = time.Now().Add(buildTime)
			return nil
		},
		Result: func(_ context.Context, source, id string) (response any, known bool, err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.polls++
			at, known := r.ready[source+"/"+id]
			if !known || time.Now().Before(at) {
				return nil, known, nil
			}
			return map[string]string{"build": id}, true, nil
		},
	}
}

// densest returns the maximum number of POSTs that arrived within any window.
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
