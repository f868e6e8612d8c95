// Package requeue reads dead letters, and decides where their messages may be published again.
//
// Every client that may publish to a stream of dead letters can write one, with any headers. An operator who requeues it has more permissions. So the
// rule does not trust what a dead letter says about its origin: the stream must exist, must take the subject, and must be the one that stores the
// message.
package requeue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/deadletter"
	"github.com/jetpull/jetpull/internal/systems"
	"github.com/jetpull/jetpull/internal/wire"
)

// Letter is a dead letter in its printed form. Its position and time come from the server. All else was written by its publisher, which can be
// anybody who may publish to the stream.
type Letter struct {
	// StoredIn is the stream of the dead letter, Sequence its sequence there, and Time when it was stored.
	StoredIn string    `json:"-"`
	Sequence uint64    `json:"seq"`
	Time     time.Time `json:"time"`
	// Subject is the subject to which the message was published, Stream the stream that stored it, and Origin its sequence there.
	Subject string `json:"subject"`
	Stream  string `json:"stream,omitempty"`
	Origin  uint64 `json:"stream_seq"`
	// Consumer is the consumer whose handler gave the message up, Attempts the number of attempts, and Reason the last error.
	Consumer string `json:"consumer,omitempty"`
	Attempts int    `json:"attempts"`
	Reason   string `json:"reason,omitempty"`
	// Gone reports that the payload was omitted because the message was too large for a dead letter.
	Gone bool `json:"payload_gone,omitempty"`
	Size int  `json:"size"` // of the payload, in bytes
	// Header has the message's headers, without those of the dead letter and of the server.
	Header nats.Header `json:"headers,omitempty"`
	Data   []byte      `json:"-"` // the payload
}

// Read returns the dead letter in a message of a stream, or nil if the message is not one. It returns 0 for an invalid number.
func Read(stream string, seq uint64, at time.Time, h nats.Header, data []byte) *Letter {
	if h.Get(deadletter.HeaderSubject) == "" {
		return nil
	}
	l := &Letter{
		StoredIn: stream, Sequence: seq, Time: at.UTC(), Subject: h.Get(deadletter.HeaderSubject), Stream: h.Get(deadletter.HeaderStream),
		Consumer: h.Get(deadletter.HeaderConsumer), Reason: h.Get(deadletter.HeaderReason), Gone: h.Get(deadletter.HeaderPayload) != "",
		Header: Headers(h, "Dead-Letter-", "Nats-"), Data: data, Size: len(data),
	}
	l.Origin, _ = strconv.ParseUint(h.Get(deadletter.HeaderSequence), 10, 64)
	l.Attempts, _ = strconv.Atoi(h.Get(deadletter.HeaderAttempts))
	return l
}

// Refusal is why a message must not be published. Any other error leaves that open.
type Refusal string

// Error implements error.
func (r Refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return Refusal(fmt.Sprintf(format, args...)) }

// Rule makes the messages of one operation. It is safe for concurrent use.
type Rule struct {
	info  func(ctx context.Context, stream string) (*jetstream.StreamInfo, error)
	inbox string

	mu    sync.Mutex
	known map[string][]string // the subjects of streams; nil: no letter may name the stream. The expected stream reveals a wrong value
}

// mostKnown is the maximum number of streams that a rule remembers, because each letter may name another one.
const mostKnown = 100

// New returns a rule that reads streams with info, which must ask the leader. inbox is the prefix of the connection's inboxes.
func New(info func(ctx context.Context, stream string) (*jetstream.StreamInfo, error), inbox string) *Rule {
	return &Rule{info: info, inbox: inbox, known: map[string][]string{}}
}

// Message returns the message to publish for a dead letter: to its original subject, if only the stream of its origin stores it, or to the subject
// to, which the operator chose. An error that is not a [Refusal] leaves open what may be published. The message ID identifies the dead letter, so
// that a letter that is requeued twice within the stream's duplicate window is stored once.
func (r *Rule) Message(ctx context.Context, l *Letter, to string) (*nats.Msg, error) {
	m := &nats.Msg{Subject: cmp.Or(to, l.Subject), Header: Headers(l.Header, "Nats-", "Dead-Letter-"), Data: l.Data}
	if l.Gone {
		return nil, refuse("its payload was left out when the message was given up")
	}
	if err := Subject(m.Subject, r.inbox); err != nil {
		return nil, err
	}
	if to == "" {
		if err := r.takes(ctx, l.Stream, l.Subject); err != nil {
			return nil, err
		}
		m.Header.Set(jetstream.ExpectedStreamHeader, l.Stream)
	}
	m.Header.Set(jetstream.MsgIDHeader, fmt.Sprintf("requeue:%s:%d:%d", l.StoredIn, l.Sequence, l.Time.UnixNano()))
	return m, nil
}

// Subject refuses a subject to which a message of another author must not be published: one of the server, an inbox, or an invalid one.
func Subject(subject, inbox string) error {
	switch {
	case len(subject) > wire.MaxSubject:
		return refuse("subject %.100q has %d bytes: %d are the most", subject, len(subject), wire.MaxSubject)
	case strings.HasPrefix(subject, "$"):
		return refuse("subject %q belongs to the server, which may act on the message", subject)
	case strings.HasPrefix(subject, nats.InboxPrefix), strings.HasPrefix(subject, strings.TrimSuffix(cmp.Or(inbox, nats.InboxPrefix), ".")+"."):
		return refuse("subject %q is an inbox", subject)
	case !wire.Publishable(subject):
		return refuse("%q is not a subject to publish to", subject)
	}
	return nil
}

// takes refuses a stream that does not take a subject, or to which only one of the systems publishes.
func (r *Rule) takes(ctx context.Context, stream, subject string) error {
	if len(stream) > wire.MaxName {
		return refuse("stream %.100q of its origin does not exist: no name has %d bytes", stream, len(stream))
	}
	r.mu.Lock()
	subjects, ok := r.known[stream]
	r.mu.Unlock()
	if !ok {
		info, err := r.info(ctx, stream)
		switch {
		case err == nil && systems.OfStream(stream, info.Config.Subjects) == "":
			subjects = append([]string{}, info.Config.Subjects...)
		case err == nil:
			return refuse("stream %q of its origin belongs to the %s: requeue there", stream, systems.OfStream(stream, info.Config.Subjects))
		case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrInvalidStreamName), errors.Is(err, jetstream.ErrStreamNameRequired):
		default:
			return fmt.Errorf("read stream %q of its origin: %w", stream, err)
		}
		r.mu.Lock()
		if len(r.known) >= mostKnown {
			clear(r.known)
		}
		r.known[stream] = subjects
		r.mu.Unlock()
	}
	if subjects == nil {
		return refuse("stream %q of its origin does not exist: give another subject", stream)
	}
	for _, s := range subjects {
		if wire.Matches(s, subject) {
			return nil
		}
	}
	return refuse("stream %q of its origin does not take subject %q: give another subject", stream, subject)
}

// Headers returns the headers whose names have none of the prefixes.
func Headers(h nats.Header, without ...string) nats.Header {
	own := nats.Header{}
headers:
	for key, values := range h {
		for _, prefix := range without {
			if len(key) >= len(prefix) && strings.EqualFold(key[:len(prefix)], prefix) {
				continue headers
			}
		}
		own[key] = values
	}
	return own
}
