package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/limit"
)

const (
	confirmBatch = 100
	closeTimeout = 10 * time.Second
)

// subscribed runs work with a Subscription to the round's consumer, and closes it. All options have their defaults.
func subscribed(ctx context.Context, r *round, work func(*jetpull.Subscription) error) error {
	sub, err := jetpull.Subscribe(ctx, r.js, r.stream, consumerName)
	if err != nil {
		return err
	}
	err = work(sub)
	// Close the Subscription even if the round ended early.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return errors.Join(err, sub.Close(ctx))
}

func oursNext(goroutines int) work {
	return func(ctx context.Context, r *round) error {
		return subscribed(ctx, r, func(sub *jetpull.Subscription) error {
			return r.onGoroutines(ctx, goroutines, func(ctx context.Context) error {
				m, err := sub.Next(ctx)
				if err != nil {
					return err
				}
				r.receive(m.Data())
				return m.Ack()
			})
		})
	}
}

func oursAckNext(ctx context.Context, r *round) error {
	return subscribed(ctx, r, func(sub *jetpull.Subscription) error {
		r.start()
		m, err := sub.Next(ctx)
		for range r.n - 1 {
			if err != nil {
				return err
			}
			r.receive(m.Data())
			m, err = m.AckNext(ctx)
		}
		if err != nil {
			return err
		}
		r.receive(m.Data())
		return errors.Join(m.Ack(), r.stop(ctx))
	})
}

// oursFetched fetches all messages in batches, and calls handle for each.
func oursFetched(ctx context.Context, r *round, sub *jetpull.Subscription, batch int, handle func(*jetpull.Msg) error) error {
	for left := r.n; left > 0; {
		msgs, err := sub.Fetch(ctx, min(batch, left))
		if err != nil {
			return err
		}
		for _, m := range msgs {
			r.receive(m.Data())
			if err := handle(m); err != nil {
				return err
			}
		}
		left -= len(msgs)
	}
	return nil
}

func oursFetch(batch int) work {
	return func(ctx context.Context, r *round) error {
		return subscribed(ctx, r, func(sub *jetpull.Subscription) error {
			r.start()
			if err := oursFetched(ctx, r, sub, batch, func(m *jetpull.Msg) error { return m.Ack() }); err != nil {
				return err
			}
			return r.stop(ctx)
		})
	}
}

func oursConfirm(ctx context.Context, r *round) error {
	return subscribed(ctx, r, func(sub *jetpull.Subscription) error {
		held := make([]*jetpull.Msg, 0, r.n)
		err := oursFetched(ctx, r, sub, confirmBatch, func(m *jetpull.Msg) error {
			held = append(held, m)
			return nil
		})
		if err != nil {
			return err
		}
		r.start()
		for first := 0; first < len(held); first += confirmBatch {
			if err := jetpull.ConfirmAcks(ctx, held[first:min(first+confirmBatch, len(held))]...); err != nil {
				return fmt.Errorf("confirm from message %d on: %w", first, err)
			}
		}
		return r.stop(ctx)
	})
}

// consuming runs Consume until stop is called. stop returns the error of Consume. running ends with Consume, so that nothing
// waits for messages when no goroutine reads them.
func consuming(
	ctx context.Context, sub *jetpull.Subscription, h jetpull.Handler, opts ...jetpull.ConsumeOption,
) (running context.Context, stop func() error) {
	running, cancel := context.WithCancelCause(ctx)
	ended := make(chan error, 1)
	go func() {
		err := sub.Consume(running, h, opts...)
		ended <- err
		cancel(fmt.Errorf("call of Consume has ended: %w", cmp.Or(err, context.Canceled)))
	}()
	return running, func() error {
		cancel(nil)
		return <-ended
	}
}

// oursHandled stops the clock after the drain, so that the time also includes acks that are sent late, or for many messages at
// once.
func oursHandled(ctx context.Context, r *round, slow time.Duration, opts ...jetpull.ConsumeOption) error {
	return subscribed(ctx, r, func(sub *jetpull.Subscription) error {
		r.start()
		running, stop := consuming(ctx, sub, func(_ context.Context, m *jetpull.Msg) error {
			if slow > 0 {
				time.Sleep(slow)
			}
			r.receive(m.Data())
			return nil
		}, opts...)
		if err := errors.Join(r.wait(running), stop()); err != nil {
			return err
		}
		return r.stop(ctx)
	})
}

func oursConsume(ctx context.Context, r *round) error { return oursHandled(ctx, r, 0) }

func oursPool(ctx context.Context, r *round) error {
	return oursHandled(ctx, r, poolHandlerTime, jetpull.Concurrency(poolSize))
}

func oursSlowHandler(ctx context.Context, r *round) error {
	consumer, err := r.consumer(ctx)
	if err != nil {
		return err
	}
	return subscribed(ctx, r, func(sub *jetpull.Subscription) error {
		r.start()
		running, stop := consuming(ctx, sub, func(_ context.Context, m *jetpull.Msg) error {
			time.Sleep(slowHandlerTime)
			r.receive(m.Data())
			return nil
		})
		err := r.wait(running)
		if err == nil {
			err = errors.Join(r.stop(ctx), r.quiet(ctx, consumer))
		}
		return errors.Join(err, stop())
	})
}

func oursMessages(ctx context.Context, r *round) error {
	return subscribed(ctx, r, func(sub *jetpull.Subscription) error {
		r.start()
		left := r.n
		for m, err := range sub.Messages(ctx) {
			if err != nil {
				return err
			}
			r.receive(m.Data())
			if err := m.Ack(); err != nil {
				return err
			}
			if left--; left == 0 {
				break
			}
		}
		return r.stop(ctx)
	})
}

func oursIdle(ctx context.Context, js jetstream.JetStream, stream, consumer string) (func() error, error) {
	sub, err := jetpull.Subscribe(ctx, js, stream, consumer)
	if err != nil {
		return nil, err
	}
	_, stop := consuming(ctx, sub, func(context.Context, *jetpull.Msg) error { return nil })
	return func() error { return errors.Join(stop(), sub.Close(ctx)) }, nil
}

// oursLimited is like oursPool, but with a limit that is never reached.
func oursLimited(ctx context.Context, r *round) error {
	kv, err := r.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "BENCH_LIMITS"})
	if err != nil {
		return err
	}
	l, err := limit.Open(ctx, kv, "bench", limit.Config{Rate: 10_000_000, Window: time.Second})
	if err != nil {
		return err
	}
	err = oursHandled(ctx, r, 0, jetpull.Concurrency(poolSize), jetpull.Limited(l, func(*jetpull.Msg) string { return "all" }))
	return errors.Join(err, l.Close(ctx))
}

func oursUnlimited(ctx context.Context, r *round) error {
	return oursHandled(ctx, r, 0, jetpull.Concurrency(poolSize))
}
