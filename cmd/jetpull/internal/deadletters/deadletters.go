// Package deadletters reads, requeues and deletes dead letters that Consume has stored in a stream.
package deadletters

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/requeue"
	"github.com/jetpull/jetpull/internal/wire"
)

// Letter is a dead letter.
type Letter struct {
	Sequence uint64      `json:"seq"`  // in the stream of dead letters
	Time     time.Time   `json:"time"` // when it was stored
	Subject  string      `json:"subject"`
	Stream   string      `json:"stream,omitempty"`
	Origin   uint64      `json:"stream_seq"` // in that stream
	Consumer string      `json:"consumer,omitempty"`
	Attempts int         `json:"attempts"`
	Reason   string      `json:"reason,omitempty"`
	Gone     bool        `json:"payload_gone,omitempty"`
	Size     int         `json:"size"`
	Headers  nats.Header `json:"headers,omitempty"` // those that the message had
	Data     []byte      `json:"-"`
	cli.Payload
}

// Filter says which dead letters are meant: those that all of its fields fit.
type Filter struct {
	Sequences []uint64       // empty: all
	Reason    *regexp.Regexp // of the reason; nil: any
	Subject   string         // that the message was published to, wildcards allowed; empty: any
	Since     time.Time      // when the dead letter was stored; zero: ever
	Heads     bool           // read them without headers and payload
}

func (f *Filter) fits(l *Letter) bool {
	return (len(f.Sequences) == 0 || slices.Contains(f.Sequences,
		l.Sequence)) && (f.Reason == nil || f.Reason.MatchString(l.Reason)) && (f.Subject == "" || wire.Matches(f.Subject,
		l.Subject)) && !l.Time.Before(f.Since)
}

// All are the dead letters in stream that fit, in the order of their sequences. Messages that are no dead letters are passed over.
func All(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, f *Filter) iter.Seq2[*Letter, error] {
	return func(yield func(*Letter, error) bool) {
		r := &reader{js: js, stream: stream, filter: f, last: stream.CachedInfo().State.LastSeq} // what is stored later is for the next time
		for ended := stream.CachedInfo().State.Msgs == 0; !ended; {
			var err error
			if ended, err = r.each(ctx, func(l *Letter) bool { return yield(l, nil) }); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// reader reads the messages of a stream in their order. It uses this module's own pull, because an ordered consumer of package jetstream takes a
// message without payload for a status of the server if its publisher has written the header Status.
type reader struct {
	js         jetstream.JetStream
	stream     jetstream.Stream
	filter     *Filter
	seen, last uint64 // sequences: of the message that was read last, and of the last to read
}

const (
	atOnce   = 128             // messages that are read with one pull
	patience = 5 * time.Second // of the request for a consumer
	// inactive is how long the server keeps the consumer of a process that has died.
	inactive = time.Minute
)

// each reads on with a new consumer, and calls do with each dead letter that fits. It is false if it must be called again: messages were lost
// with a connection, or the consumer is gone.
func (r *reader) each(ctx context.Context, do func(*Letter) bool) (ended bool, err error) {
	asking, answered := context.WithTimeout(ctx, patience)
	consumer, err := r.stream.CreateConsumer(asking, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.seen + 1, AckPolicy: jetstream.AckNonePolicy, HeadersOnly: r.filter.Heads,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: inactive,
	})
	answered()
	if err != nil {
		return false, err
	}
	defer func() { _ = r.stream.DeleteConsumer(context.WithoutCancel(ctx), consumer.CachedInfo().Name) }() // else the server does, later
	sub, err := jetpull.SubscribeConsumer(ctx, r.js, consumer)
	if err != nil {
		return false, err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	for number := uint64(0); ; {
		msgs, err := sub.Fetch(ctx, atOnce, jetpull.NoWait())
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case errors.Is(err, jetpull.ErrNoMessages):
			return r.endsHere(ctx)
		case errors.Is(err, jetpull.ErrConsumerDeleted):
			return false, nil
		case err != nil:
			return false, err
		}
		for _, m := range msgs {
			meta, err := m.Metadata()
			if err != nil {
				return false, err
			}
			if number++; meta.Sequence.Consumer != number {
				return false, nil
			}
			r.seen = meta.Sequence.Stream
			if l := r.letter(m, meta); r.seen <= r.last && l != nil && r.filter.fits(l) && !do(l) {
				return true, nil
			}
			if meta.NumPending == 0 || r.seen >= r.last {
				return true, nil
			}
		}
	}
}

// endsHere reports whether the stream has no message after the last that was read, up to the last to read: another process may have deleted all
// that the consumer had yet to deliver.
func (r *reader) endsHere(ctx context.Context) (bool, error) {
	m, err := jsstream.Next(ctx, r.js, r.stream.CachedInfo().Config.Name, r.seen+1, ">")
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	return err == nil && m.Sequence > r.last, err
}

// letter reads a dead letter; nil: the message is none.
func (r *reader) letter(m *jetpull.Msg, meta *jetstream.MsgMetadata) *Letter {
	h := m.Headers()
	if h.Get(jetpull.HeaderDeadSubject) == "" {
		return nil
	}
	origin, _ := strconv.ParseUint(h.Get(jetpull.HeaderDeadSequence), 10, 64)
	attempts, _ := strconv.Atoi(h.Get(jetpull.HeaderDeadAttempts))
	own := maps.Clone(h)
	maps.DeleteFunc(own, func(key string, _ []string) bool {
		return strings.HasPrefix(key, "Dead-Letter-") || strings.HasPrefix(key, "Nats-")
	})
	l := &Letter{
		Sequence: meta.Sequence.Stream, Time: meta.Timestamp.UTC(), Subject: h.Get(jetpull.HeaderDeadSubject),
		Stream: h.Get(jetpull.HeaderDeadStream), Origin: origin, Consumer: h.Get(jetpull.HeaderDeadConsumer),
		Attempts: attempts, Reason: h.Get(jetpull.HeaderDeadReason), Gone: h.Get(jetpull.HeaderDeadPayload) != "",
		Size: len(m.Data()), Headers: own, Data: m.Data(),
	}
	if r.filter.Heads {
		l.Size, _ = strconv.Atoi(h.Get(nats.MsgSize))
		l.Headers, l.Data = nil, nil
	} else {
		l.Payload = cli.PayloadOf(l.Data)
	}
	return l
}

// ErrNoStream ends a requeue to a subject that no stream has.
var ErrNoStream = errors.New("no stream has this subject; create one that has it, or give another subject with --to")

// Requeuer publishes the messages of dead letters again.
type Requeuer struct {
	js     jetstream.JetStream
	stream jetstream.Stream
	rule   *requeue.Rule
	to     string
}

// NewRequeuer returns a requeuer for the dead letters of a stream. Its messages go to the subjects that they had, or to one that is not empty.
func NewRequeuer(js jetstream.JetStream, stream jetstream.Stream, to string) *Requeuer {
	info := func(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return nil, err
		}
		return s.CachedInfo(), nil
	}
	return &Requeuer{js, stream, requeue.New(info, js.Conn().Opts.InboxPrefix), to}
}

// Message is the message that Begin publishes for a dead letter.
func (r *Requeuer) Message(ctx context.Context, l *Letter) (*nats.Msg, error) {
	m, err := r.rule.Message(ctx, requeue.Letter{
		Stream: r.stream.CachedInfo().Config.Name, Sequence: l.Sequence, Time: l.Time, Subject: l.Subject, Origin: l.Stream, Gone: l.Gone,
		Header: l.Headers, Data: l.Data,
	}, r.to)
	if err != nil {
		return nil, fmt.Errorf("dead letter %d: %w", l.Sequence, err)
	}
	return m, nil
}

// Begin sends the message of a dead letter. The returned function waits until a stream has confirmed it, and then deletes the dead letter. Calls
// one after the other send in their order, whenever the functions are called.
//
// Messages are not sent in atomic batches (ADR-50). A batch needs the stream's permission and is for one stream. The server refuses it if one of
// its messages is stored already, as after an interrupt. It cannot delete the dead letters, which takes longer than the publishing. Batches of 100,
// one after the other, were 1.6 to 4.3 times slower.
func (r *Requeuer) Begin(ctx context.Context, l *Letter) (finish func(context.Context) error) {
	m, err := r.Message(ctx, l)
	if err != nil {
		return func(context.Context) error { return err }
	}
	sent, err := r.js.PublishMsgAsync(m)
	return func(ctx context.Context) error {
		if err == nil {
			err = confirmed(ctx, r.js, sent, m.Subject)
		}
		if err != nil {
			return fmt.Errorf("dead letter %d: publish to %s: %w", l.Sequence, m.Subject, err)
		}
		return Delete(ctx, r.js, r.stream, l)
	}
}

// confirmed waits until a stream has confirmed what was sent to a subject.
func confirmed(ctx context.Context, js jetstream.JetStream, sent jetstream.PubAckFuture, to string) (err error) {
	select {
	case <-sent.Ok():
		return nil
	case err = <-sent.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	noStream := errors.Is(err, jetstream.ErrNoStreamResponse)
	if errors.Is(err, context.DeadlineExceeded) {
		// A subscriber that answers nothing keeps the server from reporting that no stream has the subject.
		_, missing := js.StreamNameBySubject(context.WithoutCancel(ctx), to)
		noStream = errors.Is(missing, jetstream.ErrStreamNotFound)
	}
	if noStream {
		return ErrNoStream
	}
	return err
}

// Delete deletes a dead letter. The error is [jetstream.ErrMsgNotFound] if another process has deleted it.
func Delete(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, l *Letter) error {
	if err := jsstream.Delete(ctx, js, stream, l.Sequence); err != nil {
		return fmt.Errorf("dead letter %d: delete: %w", l.Sequence, err)
	}
	return nil
}
