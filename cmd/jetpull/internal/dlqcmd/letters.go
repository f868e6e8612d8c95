package dlqcmd

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
	"github.com/jetpull/jetpull/internal/requeue"
)

// letters returns the selected dead letters that the stream had when its cached info was read, in the order of their sequences. If payloads is
// false, the server sends only headers, and Data is nil. An error ends the sequence, also that of ctx. The user needs permission for
// CONSUMER.CREATE and CONSUMER.DELETE on the stream, and the permissions that [jetpull.SubscribeConsumer] and Fetch need.
func (d *dlq) letters(ctx context.Context, payloads bool) iter.Seq2[*requeue.Letter, error] {
	return func(yield func(*requeue.Letter, error) bool) {
		seen := uint64(0)
		for {
			ended, err := d.eachAfter(ctx, &seen, payloads, func(l *requeue.Letter) bool { return !d.chosen.fits(l) || yield(l, nil) })
			if err != nil {
				yield(nil, fmt.Errorf("read the dead letters of stream %q: %w", d.stream.CachedInfo().Config.Name, err))
			}
			if ended || err != nil {
				return
			}
		}
	}
}

const (
	readAtOnce = 128             // messages per pull
	patience   = 5 * time.Second // timeout of the request for a consumer
	// inactive is how long the server keeps the consumer of a dead process.
	inactive = time.Minute
)

// eachAfter reads the messages after the sequence *seen with a new consumer, and calls do for each dead letter. It advances *seen. If it returns
// false, it must be called again: messages were lost with a connection, the consumer is gone, or another process deleted messages that follow.
//
// It does not use an ordered consumer of package jetstream, which takes a message without a payload for a status of the server if the message has a
// header Status.
func (d *dlq) eachAfter(ctx context.Context, seen *uint64, payloads bool, do func(*requeue.Letter) bool) (ended bool, err error) {
	asking, answered := context.WithTimeout(ctx, patience)
	consumer, err := d.stream.CreateConsumer(asking, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *seen + 1, AckPolicy: jetstream.AckNonePolicy, HeadersOnly: !payloads,
		MemoryStorage: true, Replicas: 1, InactiveThreshold: inactive,
	})
	answered()
	if err != nil {
		return false, err
	}
	defer func() { _ = d.stream.DeleteConsumer(context.WithoutCancel(ctx), consumer.CachedInfo().Name) }() // otherwise the server does later
	if consumer.CachedInfo().NumPending == 0 {
		return true, nil
	}
	sub, err := jetpull.SubscribeConsumer(ctx, d.link.JS, consumer)
	if err != nil {
		return false, err
	}
	defer func() { _ = sub.Close(context.WithoutCancel(ctx)) }()
	name, last := d.stream.CachedInfo().Config.Name, d.stream.CachedInfo().State.LastSeq // ignore messages that are stored later
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
			*seen = meta.Sequence.Stream
			l := requeue.Read(name, *seen, meta.Timestamp, m.Headers(), m.Data())
			if l != nil && !payloads {
				l.Data = nil
				l.Size, _ = strconv.Atoi(m.Headers().Get(nats.MsgSize)) // 0 if it is not a number
			}
			if l != nil && *seen <= last && !do(l) {
				return true, nil
			}
			if meta.NumPending == 0 || *seen >= last {
				return true, nil
			}
		}
	}
}
