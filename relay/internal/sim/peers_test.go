package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/internal/natstest/relayhistory"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/relay/client"
)

const (
	receiverTimeout = time.Second
	callbackTimeout = 5 * time.Second
	// wayTime bounds the travel time of a request and of an answer. A request ends within its timeout, wherever it is.
	wayTime = receiverTimeout / 4
)

// behaviour is how many of 100 requests have each fault.
type behaviour struct {
	refused int // the request is not sent
	lost    int // the request or its answer gets lost
	failing int // it is answered with 500
	limited int // it is answered with 429 and Retry-After
	denied  int // it is answered with 422
	slow    int // the answer comes after the timeout
	pending bool
}

// receiver is a receiver in a world. It is guarded by the world's lock.
type receiver struct {
	name string
	relayhistory.Traits
	behaviour
	posts []relayhistory.Post
	has   map[string]bool
	polls map[string]int
}

func newReceiver(name string) *receiver {
	return &receiver{name: name, has: map[string]bool{}, polls: map[string]int{}}
}

func drawReceiver(r *rand.Rand, name string) *receiver {
	e := newReceiver(name)
	e.MaxRetries = r.IntN(5)
	switch r.IntN(4) {
	case 0:
		e.Unknown = oneOf(r, "at_least_once", "at_most_once")
	default:
		e.Asked, e.pending = true, r.IntN(2) == 0
		e.Unknown = ""
	}
	e.Order = oneOf(r, "none", "none", "source", "receiver")
	if r.IntN(2) == 0 {
		e.Limit, e.Window = 1+r.IntN(4), time.Second+upTo(r, 30*time.Second)
	}
	if r.IntN(4) == 0 {
		e.TTL = 2*time.Second + upTo(r, 40*time.Second)
	}
	for _, percent := range []*int{&e.refused, &e.lost, &e.failing, &e.limited, &e.denied, &e.slow} {
		if r.IntN(2) == 0 {
			*percent = r.IntN(25)
		}
	}
	return e
}

// oneOf draws one of its arguments.
func oneOf(r *rand.Rand, of ...string) string { return of[r.IntN(len(of))] }

var (
	errLost = errors.New("no answer in time")
	errDead = errors.New("the process is dead")
)

// Exchange implements work.Client. A request travels on after its process has died.
func (p *process) Exchange(ctx context.Context, req webhook.Request) (*webhook.Answer, error) {
	w := p.w
	target, err := url.Parse(req.URL)
	if err != nil {
		return nil, err
	}
	r := w.chance(req.Method + req.URL + req.Header.Get(webhook.HeaderID))
	w.mu.Lock()
	b := behaviour{lost: 10, failing: 10}
	if e := w.receivers[target.Host]; e != nil {
		b = e.behaviour
	}
	if !w.faults {
		b.lost, b.slow, b.refused = 0, 0, 0
	}
	w.mu.Unlock()
	draw := r.IntN(100)
	if draw -= b.refused; draw < 0 {
		return nil, fmt.Errorf("%w: refused", webhook.ErrNotSent)
	}
	answered := make(chan *webhook.Answer, 1)
	w.outside.Go(func() {
		<-time.After(upTo(r, wayTime))
		lostThere, lost := r.IntN(2) == 0, false
		if draw -= b.lost; draw < 0 {
			if lost = true; lostThere {
				return
			}
		}
		answer := w.answer(target, req, &draw, b)
		back := upTo(r, wayTime)
		if draw -= b.slow; draw < 0 {
			back = callbackTimeout
		}
		<-time.After(back)
		if !lost {
			answered <- answer
		}
	})
	timeout := req.Timeout
	if timeout <= 0 {
		timeout = callbackTimeout
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case answer := <-answered:
		if p.isDead() {
			return nil, errDead
		}
		return answer, nil
	case <-timer.C:
		return nil, errLost
	case <-p.dead:
		return nil, errDead
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func answerOf(code int, body string) *webhook.Answer {
	return &webhook.Answer{Code: code, Header: http.Header{}, Body: []byte(body)}
}

// answer returns the answer of a receiver or of the sender.
func (w *world) answer(target *url.URL, req webhook.Request, draw *int, b behaviour) *webhook.Answer {
	id := req.Header.Get(webhook.HeaderID)
	defer w.note("%s %s %s", req.Method, req.URL, id)
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.receivers[target.Host]
	switch {
	case e == nil:
		return w.handleCallback(req, draw, b)
	case req.Method == http.MethodPost:
		return e.post(req, id, draw)
	}
	key := strings.TrimPrefix(target.Path, "/status/")
	if *draw -= e.failing; *draw < 0 {
		return answerOf(http.StatusInternalServerError, "")
	}
	if !e.has[key] {
		return answerOf(http.StatusNotFound, "")
	}
	if e.polls[key]++; e.pending && e.polls[key] < 3 {
		return answerOf(http.StatusAccepted, "")
	}
	return answerOf(http.StatusOK, strconv.Quote(key))
}

// handleCallback is the sender's callback endpoint.
func (w *world) handleCallback(req webhook.Request, draw *int, b behaviour) *webhook.Answer {
	if *draw -= b.failing; *draw < 0 {
		return answerOf(http.StatusInternalServerError, "")
	}
	var body client.Result
	if err := json.Unmarshal(req.Body, &body); err != nil {
		return answerOf(http.StatusBadRequest, "")
	}
	key := body.Source + "/" + body.ID
	w.run.Reported[key] = append(w.run.Reported[key], body.Status)
	return answerOf(http.StatusNoContent, "")
}

func (e *receiver) post(req webhook.Request, key string, draw *int) *webhook.Answer {
	attempt, _ := strconv.Atoi(req.Header.Get("Relay-Attempt"))
	p := relayhistory.Post{Key: key, Attempt: attempt, At: time.Now()}
	answer := answerOf(http.StatusOK, strconv.Quote(key))
	if e.pending {
		answer = answerOf(http.StatusAccepted, "")
	}
	for _, other := range []struct{ percent, code int }{
		{e.failing, http.StatusInternalServerError}, {e.limited, http.StatusTooManyRequests}, {e.denied, http.StatusUnprocessableEntity},
	} {
		if *draw >= 0 {
			if *draw -= other.percent; *draw < 0 {
				answer = answerOf(other.code, "")
				if other.code == http.StatusTooManyRequests {
					answer.Header.Set("Retry-After", "3")
				}
			}
		}
	}
	p.Worked = answer.Code < 300
	e.has[key] = e.has[key] || p.Worked
	e.posts = append(e.posts, p)
	return answer
}
