package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

// contender pulls and acknowledges n messages of a consumer.
type contender func(ctx context.Context, b *bench, consumer string, n int) error

type benchCase struct {
	name         string
	messages     int
	ours, theirs contender
}

func (b *bench) cases() []benchCase {
	n := b.flags.messages
	return []benchCase{
		{"Next, Ack", n / 10, ourNext, theirNext},
		{fmt.Sprintf("Fetch(%d), Ack", b.flags.batch), n, ourFetch, theirFetch},
		{"Consume, Ack", n, ourConsume, theirConsume},
	}
}

// round measures one contender on a fresh consumer and sees that the server has
// an acknowledgement of every message.
func (b *bench) round(ctx context.Context, n int, run contender) (took time.Duration, err error) {
	consumer, err := b.js.CreateConsumer(ctx, b.stream, jetstream.ConsumerConfig{
		Name: "round", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1,
	})
	if err != nil {
		return 0, err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.timeout)
		defer cancel()
		err = errors.Join(err, b.js.DeleteConsumer(ctx, b.stream, "round"))
	}()
	begin := time.Now()
	if err := run(ctx, b, "round", n); err != nil {
		return 0, err
	}
	took = time.Since(begin)
	return took, b.verify(ctx, consumer, n)
}

func (b *bench) verify(ctx context.Context, consumer jetstream.Consumer, n int) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		info, err := consumer.Info(ctx)
		if err != nil {
			return fmt.Errorf("the round does not count: %w", err)
		}
		// More may have been delivered: what was read ahead and handed back.
		if info.AckFloor.Stream == uint64(n) {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("the round does not count: the server has acknowledgements up to %d of %d", info.AckFloor.Stream, n)
		}
	}
}

func (b *bench) subscribe(ctx context.Context, consumer string) (*jetpull.Subscription, func(), error) {
	sub, err := jetpull.Subscribe(ctx, b.js, b.stream, consumer)
	if err != nil {
		return nil, nil, err
	}
	return sub, func() { _ = closeSubscription(ctx, sub, b.timeout) }, nil
}

func ourNext(ctx context.Context, b *bench, consumer string, n int) error {
	sub, done, err := b.subscribe(ctx, consumer)
	if err != nil {
		return err
	}
	defer done()
	for range n {
		m, err := sub.Next(ctx)
		if err == nil {
			err = m.Ack()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func theirNext(ctx context.Context, b *bench, consumer string, n int) error {
	c, err := b.js.Consumer(ctx, b.stream, consumer)
	if err != nil {
		return err
	}
	for range n {
		m, err := c.Next()
		if err == nil {
			err = m.Ack()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func ourFetch(ctx context.Context, b *bench, consumer string, n int) error {
	sub, done, err := b.subscribe(ctx, consumer)
	if err != nil {
		return err
	}
	defer done()
	for n > 0 {
		msgs, err := sub.Fetch(ctx, min(n, b.flags.batch))
		if err != nil {
			return err
		}
		for _, m := range msgs {
			if err := m.Ack(); err != nil {
				return err
			}
		}
		n -= len(msgs)
	}
	return nil
}

func theirFetch(ctx context.Context, b *bench, consumer string, n int) error {
	c, err := b.js.Consumer(ctx, b.stream, consumer)
	if err != nil {
		return err
	}
	for n > 0 {
		batch, err := c.Fetch(min(n, b.flags.batch))
		if err != nil {
			return err
		}
		before := n
		for m := range batch.Messages() {
			if err := m.Ack(); err != nil {
				return err
			}
			n--
		}
		if err := batch.Error(); err != nil {
			return err
		}
		if n == before {
			return errors.New("a Fetch of nats.go brought nothing")
		}
	}
	return nil
}

func ourConsume(ctx context.Context, b *bench, consumer string, n int) error {
	sub, done, err := b.subscribe(ctx, consumer)
	if err != nil {
		return err
	}
	defer done()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var handled atomic.Int64
	return sub.Consume(ctx, func(context.Context, *jetpull.Msg) error {
		if handled.Add(1) == int64(n) {
			stop()
		}
		return nil
	})
}

func theirConsume(ctx context.Context, b *bench, consumer string, n int) error {
	c, err := b.js.Consumer(ctx, b.stream, consumer)
	if err != nil {
		return err
	}
	finished := make(chan error, 1)
	handled := 0
	running, err := c.Consume(func(m jetstream.Msg) {
		err := m.Ack()
		handled++
		if err != nil || handled == n {
			select {
			case finished <- err:
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	defer running.Stop()
	select {
	case err := <-finished:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
