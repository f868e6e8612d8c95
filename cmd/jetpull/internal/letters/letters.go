// Package letters reads the dead letters of a stream.
package letters

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/internal/requeue"
)

// Letter is a dead letter, as it is printed. The stream has stored its sequence and its time. All else is what the publisher of the dead letter
// has written, which can be anybody who may publish to the stream.
type Letter struct {
	// Sequence is that of the dead letter in its stream, and Time is when it was stored.
	Sequence uint64    `json:"seq"`
	Time     time.Time `json:"time"`
	// Subject is what the message was published to, Stream is the stream that it was in, and Origin is its sequence there.
	Subject string `json:"subject"`
	Stream  string `json:"stream,omitempty"`
	Origin  uint64 `json:"stream_seq"`
	// Consumer is the one whose messages were handled, Attempts is how often this one was tried, and Reason is the last error.
	Consumer string `json:"consumer,omitempty"`
	Attempts int    `json:"attempts"`
	Reason   string `json:"reason,omitempty"`
	// Gone says that the message was too large for a dead letter, which has no payload then.
	Gone bool `json:"payload_gone,omitempty"`
	Size int  `json:"size"` // of the payload, in bytes
	// Header has the headers of the message, without those of the dead letter and of the server.
	Header      nats.Header `json:"headers,omitempty"`
	Data        []byte      `json:"-"` // the payload
	cli.Payload             // for who prints it
}

// Read returns the dead letters that a stream had when its cached info was read, in the order of their sequences. Other messages of the stream are
// passed over. Without payloads, Data is nil, and the server sends the headers alone. An error is the last value, also that of ctx. It needs
// permission for CONSUMER.CREATE and CONSUMER.DELETE on the stream, and what [jetpull.SubscribeConsumer] and Fetch need.
func Read(ctx context.Context, js jetstream.JetStream, stream jetstream.Stream, payloads bool) iter.Seq2[*Letter, error] {
	return func(yield func(*Letter, error) bool) {
		r := &reader{js: js, stream: stream, payloads: payloads}
		for {
			ended, err := r.each(ctx, func(l *Letter) bool { return yield(l, nil) })
			if err != nil {
				yield(nil, fmt.Errorf("read the dead letters of stream %q: %w", stream.CachedInfo().Config.Name, err))
			}
			if ended || err != nil {
				return
			}
		}
	}
}

// reader reads the messages of a stream in their order. It uses this module's own pull, because an ordered consumer of package jetstream takes a
// message without payload for a status of the server if its publisher has written the header Status.
type reader struct {
	js       jetstream.JetStream
	stream   jetstream.Stream
	payloads bool
	seen     uint64 // the sequence of the message that was read last
}

const (
	readAtOnce = 128             // messages that are read with one pull
	patience   = 5 * time.Second // of the request for a consumer
	// inactive is how long the server keeps the consumer of a process that has died.
	inactive = time.Minute
)

// each reads on with a new consumer, and calls do with each dead letter. It is false if it must be called again: messages were lost with a
// connection, the consumer is gone, or another process has deleted the messages that it had yet to deliver.
func (r *reader) each(ctx context.Context, do func(*Letter) bool) (ended bool, err error) {
	asking, answered := context.WithTimeout(ctx, patience)
	consumer, err := r.stream.CreateConsumer(asking, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: r.seen + 1, AckPolicy: jetstream.AckNonePolicy, HeadersOnly: !r.payloads,
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
	last := r.stream.CachedInfo().State.LastSeq // what is stored later is for the next time
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
			if l := r.letter(m, meta); r.seen <= last && l != nil && !do(l) {
				return true, nil
			}
			if meta.NumPending == 0 || r.seen >= last {
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
	l := &Letter{
		Sequence: meta.Sequence.Stream, Time: meta.Timestamp.UTC(), Subject: h.Get(jetpull.HeaderDeadSubject),
		Stream: h.Get(jetpull.HeaderDeadStream), Consumer: h.Get(jetpull.HeaderDeadConsumer), Reason: h.Get(jetpull.HeaderDeadReason),
		Gone: h.Get(jetpull.HeaderDeadPayload) != "", Header: requeue.Headers(h, "Dead-Letter-", "Nats-"),
	}
	// Numbers that are none are 0.
	l.Origin, _ = strconv.ParseUint(h.Get(jetpull.HeaderDeadSequence), 10, 64)
	l.Attempts, _ = strconv.Atoi(h.Get(jetpull.HeaderDeadAttempts))
	if r.payloads {
		l.Data, l.Size = m.Data(), len(m.Data())
	} else {
		l.Size, _ = strconv.Atoi(h.Get(nats.MsgSize))
	}
	return l
}
