// Package running answers requests of clients in the account: for a list of the messages that the handlers of a Consume have, and to cancel one of
// them. It is a service of nats.go's micro.
package running

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// Version is the version of the requests and answers.
const Version = "1.0.0"

// Most is the maximum number of messages in an answer. Messages that have run for the longest time come first.
const Most = 1000

// ListSubject returns the subject of requests that each worker of a consumer answers with a List.
func ListSubject(stream, consumer string) string { return "jetpull.ps." + stream + "." + consumer }

// CancelSubject returns the subject of requests with the decimal sequence of a message to cancel. Each worker answers with a Cancelled.
func CancelSubject(stream, consumer string) string {
	return "jetpull.cancel." + stream + "." + consumer
}

// Worker is a Consume with a name.
type Worker struct {
	Name     string `json:"name"`
	Instance string `json:"instance"` // the id of the service
	Host     string `json:"host,omitempty"`
	PID      int    `json:"pid"`
}

// List is the messages of a worker.
type List struct {
	Worker
	Running []Message `json:"running,omitempty"`
	More    int       `json:"more,omitempty"` // running messages beyond Most
	Waiting int       `json:"waiting"`        // messages that were read ahead
}

// Message is a message that a handler has.
type Message struct {
	Sequence uint64    `json:"sequence"`
	Subject  string    `json:"subject"`
	Since    time.Time `json:"since"`
	Attempt  uint64    `json:"attempt"` // deliveries
}

// Cancelled reports whether a worker ran the message, and has cancelled it.
type Cancelled struct {
	Worker
	Cancelled bool `json:"cancelled"`
}

// Service answers for the messages of one Consume.
type Service struct {
	name    string
	micro   micro.Service
	waiting func() int

	mu      sync.Mutex
	running map[*Message]func() // they cancel the messages
}

// Start starts a service that answers requests until Stop.
func Start(nc *nats.Conn, name, stream, consumer string, waiting func() int) (*Service, error) {
	s := &Service{name: name, waiting: waiting, running: map[*Message]func(){}}
	var err error
	s.micro, err = micro.AddService(nc, micro.Config{
		Name: name, Version: Version, Description: fmt.Sprintf("Handles messages of consumer %s on stream %s", consumer, stream),
		Metadata: map[string]string{"stream": stream, "consumer": consumer}, QueueGroupDisabled: true,
	})
	if err != nil {
		return nil, err
	}
	err = cmp.Or(
		s.micro.AddEndpoint("ps", micro.HandlerFunc(s.list), micro.WithEndpointSubject(ListSubject(stream, consumer))),
		s.micro.AddEndpoint("cancel", micro.HandlerFunc(s.cancel), micro.WithEndpointSubject(CancelSubject(stream, consumer))),
	)
	if err != nil {
		_ = s.micro.Stop()
		return nil, err
	}
	return s, nil
}

// Stop ends the service.
func (s *Service) Stop() { _ = s.micro.Stop() }

// Begin adds messages whose handler begins. The returned context ends when one of them is cancelled, with a cause that matches is. The caller must
// call end when the handler has returned.
func (s *Service) Begin(ctx context.Context, ms []Message, is error) (limited context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	for i := range ms {
		s.running[&ms[i]] = func() { cancel(fmt.Errorf("%w: sequence %d", is, ms[i].Sequence)) }
	}
	s.mu.Unlock()
	return ctx, func() {
		s.mu.Lock()
		for i := range ms {
			delete(s.running, &ms[i])
		}
		s.mu.Unlock()
		cancel(nil)
	}
}

func (s *Service) worker() Worker {
	host, _ := os.Hostname()
	return Worker{Name: s.name, Instance: s.micro.Info().ID, Host: host, PID: os.Getpid()}
}

func (s *Service) list(r micro.Request) {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.running))
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *Message) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Sequence, b.Sequence)) })
	l := List{Worker: s.worker(), More: max(0, len(all)-Most), Waiting: s.waiting()}
	for _, m := range all[:min(Most, len(all))] {
		l.Running = append(l.Running, *m)
	}
	_ = r.RespondJSON(l)
}

func (s *Service) cancel(r micro.Request) {
	seq, err := strconv.ParseUint(string(r.Data()), 10, 64)
	if err != nil {
		_ = r.Error("400", fmt.Sprintf("%q is not the sequence of a message", r.Data()), nil)
		return
	}
	c := Cancelled{Worker: s.worker()}
	s.mu.Lock()
	for m, cancel := range s.running {
		if m.Sequence == seq {
			cancel()
			c.Cancelled = true
		}
	}
	s.mu.Unlock()
	_ = r.RespondJSON(c)
}

// Ask sends a request to all workers of a consumer, and returns the answers that arrive within a time. A worker that does not answer in time is left
// out. It is not an error if none answers, because the number of workers is not known.
func Ask[T any](ctx context.Context, nc *nats.Conn, subject, body string, within time.Duration) (answers []T, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(subject, inbox, []byte(body)); err != nil {
		return nil, err
	}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		switch {
		case ctx.Err() != nil, errors.Is(err, nats.ErrNoResponders): // the time is over, or there are no workers
			return answers, nil
		case err != nil:
			return answers, err
		}
		if text := m.Header.Get(micro.ErrorHeader); text != "" {
			return answers, fmt.Errorf("%s: %s", subject, text)
		}
		var a T
		if err := json.Unmarshal(m.Data, &a); err == nil {
			answers = append(answers, a)
		}
	}
}
