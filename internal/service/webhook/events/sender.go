// Package events sends events to a URL that the operator configures.
package events

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/jetpull/jetpull/internal/service/webhook"
)

const (
	// maxWaiting is the maximum number of events that wait to be sent.
	maxWaiting = 1024
	// defaultTries and firstPause limit the attempts to send one event. Each pause is four times as long as the one before.
	defaultTries = 4
	firstPause   = time.Second
	// drainTime limits how long Close sends waiting events.
	drainTime = 2 * time.Second
)

// poster sends requests. [webhook.Client] implements it.
type poster interface {
	Exchange(ctx context.Context, r webhook.Request) (*webhook.Answer, error)
	Close()
}

// Config configures a Sender.
type Config struct {
	// URL is the operator's. If it is empty, no events are sent.
	URL       string
	UserAgent string
	// Way configures the route of requests. Its networks do not apply, because the URL may be in a private one.
	Way webhook.Policy
	// Timeout is the time limit of one request.
	Timeout time.Duration
	// Tries is the maximum number of attempts to send an event. 0 means 4.
	Tries int
	// Signer signs each attempt, with the ID of its event. Nil means that requests are not signed.
	Signer *webhook.Signer
	Log    *slog.Logger
}

// Sender POSTs events to a URL, one after the other. It sends each until the response is 2xx or refuses it, for at most Tries times. A nil Sender
// drops all events.
type Sender struct {
	cfg    Config
	client poster

	waiting chan any
	lost    atomic.Uint64
	closing chan struct{}
	cut     context.CancelFunc // ends the request in progress
	ended   chan struct{}
}

// Start starts a sender, which the caller must close. It returns nil if there is no URL.
func Start(cfg Config) *Sender {
	if cfg.URL == "" {
		return nil
	}
	return start(cfg, webhook.NewClient(webhook.Policy{Any: true, Proxy: cfg.Way.Proxy}, cfg.Timeout))
}

func start(cfg Config, client poster) *Sender {
	cfg.Tries = cmp.Or(cfg.Tries, defaultTries)
	s := &Sender{cfg: cfg, client: client}
	s.waiting, s.closing, s.ended = make(chan any, maxWaiting), make(chan struct{}), make(chan struct{})
	var ctx context.Context
	ctx, s.cut = context.WithCancel(context.Background())
	go s.run(ctx)
	return s
}

// Send queues an event, which is sent as JSON, and reports whether it could. It does not wait: if too many events wait, this one is lost.
func (s *Sender) Send(event any) bool {
	if s == nil {
		return false
	}
	select {
	case s.waiting <- event:
		return true
	default:
		s.lost.Add(1)
		s.cfg.Log.Warn("an event is not sent: too many wait", "event", event, "waiting", maxWaiting)
		return false
	}
}

// Lost returns the number of events that could not be sent.
func (s *Sender) Lost() uint64 {
	if s == nil {
		return 0
	}
	return s.lost.Load()
}

// Close sends the waiting events, for at most two seconds, and ends the sender. It may be called only once.
func (s *Sender) Close() {
	if s == nil {
		return
	}
	close(s.closing)
	timer := time.AfterFunc(drainTime, s.cut)
	<-s.ended
	timer.Stop()
	s.cut()
	s.client.Close()
}

func (s *Sender) run(ctx context.Context) {
	defer close(s.ended)
	for {
		select {
		case event := <-s.waiting:
			s.deliver(ctx, event)
		case <-s.closing:
			for len(s.waiting) > 0 {
				s.deliver(ctx, <-s.waiting)
			}
			return
		}
	}
}

func (s *Sender) deliver(ctx context.Context, event any) {
	err := s.post(ctx, event)
	if err != nil {
		s.lost.Add(1)
		s.cfg.Log.Warn("an event could not be sent to the operator's URL", "event", event, "error", err)
	}
}

func (s *Sender) post(ctx context.Context, event any) error {
	body, err := json.Marshal(event)
	if err != nil {
		return err
	}
	header := http.Header{"Content-Type": {"application/json"}, "User-Agent": {s.cfg.UserAgent}}
	id := rand.Text()
	for try := range s.cfg.Tries {
		if try > 0 {
			select {
			case <-time.After(firstPause << (2 * (try - 1))):
			case <-ctx.Done():
				return err
			}
		}
		if s.cfg.Signer != nil {
			s.cfg.Signer.Sign(header, id, time.Now(), body)
		}
		var answer *webhook.Answer
		answer, err = s.client.Exchange(ctx, webhook.Request{
			Method: http.MethodPost, URL: s.cfg.URL, Header: header, Body: body, Limit: webhook.ReusableLimit,
		})
		if err != nil {
			continue
		}
		if err = answer.Err(); err == nil {
			return nil
		}
		if final(answer.Code) {
			return fmt.Errorf("the URL refuses the event, which is not sent again: check the URL and what authenticates there: %w", err)
		}
	}
	return err
}

// final reports whether a retry would get the same status: 3xx, because redirects are not followed, and 4xx other than 408, 425 and 429.
func final(code int) bool {
	return code >= 300 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooEarly && code != http.StatusTooManyRequests
}
