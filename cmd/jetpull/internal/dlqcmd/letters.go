package dlqcmd

import (
	"context"
	"errors"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
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
	return (len(f.Sequences) == 0 || slices.Contains(f.Sequences, l.Sequence)) && (f.Reason == nil || f.Reason.MatchString(l.Reason)) &&
		(f.Subject == "" || wire.Matches(f.Subject, l.Subject)) && !l.Time.Before(f.Since)
}

// All are the dead letters in stream that fit, in the order of their sequences. Messages that are no dead letters are passed over.
func All(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, f *Filter) iter.Seq2[*Letter, error] {
	return func(yield func(*Letter, error) bool) {
		r := &reader{js: js, stream: stream, filter: f, last: stream.CachedInfo().State.LastSeq} // what is stored later is for the next time
		for ended := false; !ended; {
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
	readAtOnce = 128             // messages that are read with one pull
	patience   = 5 * time.Second // of the request for a consumer
	// inactive is how long the server keeps the consumer of a process that has died.
	inactive = time.Minute
)

// each reads on with a new consumer, and calls do with each dead letter that fits. It is false if it must be called again: messages were lost
// with a connection, the consumer is gone, or another process has deleted the messages that it had yet to deliver.
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
	if consumer.CachedInfo().NumPending == 0 {
		return true, nil
	}
	sub, err := jetpull.SubscribeConsumer(ctx, r.js, consumer)
	if err != nil {
		return false, err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	for number := uint64(0); ; {
		msgs, err := sub.Fetch(ctx, readAtOnce, jetpull.NoWait())
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case errors.Is(err, jetpull.ErrNoMessages), errors.Is(err, jetpull.ErrConsumerDeleted):
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

// letter reads a dead letter; nil: the message is none.
func (r *reader) letter(m *jetpull.Msg, meta *jetstream.MsgMetadata) *Letter {
	h := m.Headers()
	if h.Get(jetpull.HeaderDeadSubject) == "" {
		return nil
	}
	origin, _ := strconv.ParseUint(h.Get(jetpull.HeaderDeadSequence), 10, 64)
	attempts, _ := strconv.Atoi(h.Get(jetpull.HeaderDeadAttempts))
	l := &Letter{
		Sequence: meta.Sequence.Stream, Time: meta.Timestamp.UTC(), Subject: h.Get(jetpull.HeaderDeadSubject),
		Stream: h.Get(jetpull.HeaderDeadStream), Origin: origin, Consumer: h.Get(jetpull.HeaderDeadConsumer),
		Attempts: attempts, Reason: h.Get(jetpull.HeaderDeadReason), Gone: h.Get(jetpull.HeaderDeadPayload) != "",
		Size: len(m.Data()), Headers: requeue.Headers(h, "Dead-Letter-", "Nats-"), Data: m.Data(),
	}
	if r.filter.Heads {
		l.Size, _ = strconv.Atoi(h.Get(nats.MsgSize))
		l.Headers, l.Data = nil, nil
	} else {
		l.Payload = cli.PayloadOf(l.Data)
	}
	return l
}
