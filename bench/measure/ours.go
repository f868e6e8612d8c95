package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

// ours holds this library's way through each case, by case name. A case without one measures the rivals alone.
var ours = map[string]func(ctx context.Context, r *Round) error{
	"next-1":          oursNext(1),
	"next-8":          oursNext(8),
	"next-64":         oursNext(64),
	"acknext":         oursAckNext,
	"fetch-10":        oursFetch(10),
	"fetch-100":       oursFetch(100),
	"fetch-1000":      oursFetch(1000),
	"confirm-100":     oursConfirm,
	"confirm-100-5ms": oursConfirm,

	"consume-none":     oursConsume,
	"consume-ack":      oursConsume,
	"messages-ack":     oursMessages,
	"consume-none-5ms": oursConsume,
	"consume-ack-5ms":  oursConsume,
	"messages-ack-5ms": oursMessages,
	"handlers-64":      oursPool,
	"slow-handler":     oursSlowHandler,
}

const closeTimeout = 10 * time.Second

// subscribed runs work with a subscription to the round's consumer and closes it. Every option has its default.
func subscribed(ctx context.Context, r *Round, work func(*jetpull.Subscription) error) error {
	sub, err := jetpull.Subscribe(ctx, r.JS, r.Stream, r.Consumer)
	if err != nil {
		return err
	}
	err = work(sub)
	// The subscription is closed also where the round was ended early.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	return errors.Join(err, sub.Close(ctx))
}

func oursNext(goroutines int) func(context.Context, *Round) error {
	return func(ctx context.Context, r *Round) error {
		return subscribed(ctx, r, func(sub *jetpull.Subscription) error {
			return r.work(ctx, goroutines, func(ctx context.Context) (func() error, error) {
				return func() error {
					m, err := sub.Next(ctx)
					if err != nil {
						return err
					}
					r.Receive(m.Data())
					return m.Ack()
				}, nil
			})
		})
	}
}

func oursAckNext(ctx context.Context, r *Round) error {
	return subscribed(ctx, r, func(sub *jetpull.Subscription) error {
		r.Start()
		m, err := sub.Next(ctx)
		if err != nil {
			return err
		}
		r.Receive(m.Data())
		for range r.Messages - 1 {
			if m, err = m.AckNext(ctx); err != nil {
				return err
			}
			r.Receive(m.Data())
		}
		if err := m.Ack(); err != nil {
			return err
		}
		return r.Stop(ctx)
	})
}

func oursFetch(batch int) func(context.Context, *Round) error {
	return func(ctx context.Context, r *Round) error {
		return subscribed(ctx, r, func(sub *jetpull.Subscription) error {
			r.Start()
			for left := r.Messages; left > 0; {
				msgs, err := sub.Fetch(ctx, min(batch, left))
				if err != nil {
					return err
				}
				for _, m := range msgs {
					r.Receive(m.Data())
					if err := m.Ack(); err != nil {
						return err
					}
				}
				left -= len(msgs)
			}
			return r.Stop(ctx)
		})
	}
}

func oursConfirm(ctx context.Context, r *Round) error {
	return subscribed(ctx, r, func(sub *jetpull.Subscription) error {
		held := make([]*jetpull.Msg, 0, r.Messages)
		for len(held) < r.Messages {
			msgs, err := sub.Fetch(ctx, min(confirmBatch, r.Messages-len(held)))
			if err != nil {
				return err
			}
			for _, m := range msgs {
				r.Receive(m.Data())
			}
			held = append(held, msgs...)
		}
		r.Start()
		for first := 0; first < len(held); first += confirmBatch {
			end := min(first+confirmBatch, len(held))
			if err := jetpull.ConfirmAcks(ctx, held[first:end]...); err != nil {
				return fmt.Errorf("confirm messages %d to %d: %w", first, end-1, err)
			}
		}
		return r.Stop(ctx)
	})
}

// oursConsume stops the clock after the drain, so that acks that are sent late or for many messages at once are in the
// time as much as any.
func oursConsume(ctx context.Context, r *Round) error {
	return oursHandled(ctx, r, func(_ context.Context, m *jetpull.Msg) error {
		r.Receive(m.Data())
		return nil
	})
}

func oursPool(ctx context.Context, r *Round) error {
	return oursHandled(ctx, r, func(_ context.Context, m *jetpull.Msg) error {
		time.Sleep(poolHandlerTime)
		r.Receive(m.Data())
		return nil
	}, jetpull.Concurrency(handlerPoolSize))
}

func oursHandled(ctx context.Context, r *Round, h jetpull.Handler, opts ...jetpull.Option) error {
	return subscribed(ctx, r, func(sub *jetpull.Subscription) error {
		r.Start()
		running, stop := consuming(ctx, sub, h, opts...)
		if err := errors.Join(r.Wait(running), stop()); err != nil {
			return err
		}
		return r.Stop(ctx)
	})
}

func oursSlowHandler(ctx context.Context, r *Round) error {
	consumer, err := r.consumer(ctx)
	if err != nil {
		return err
	}
	return subscribed(ctx, r, func(sub *jetpull.Subscription) error {
		r.Start()
		running, stop := consuming(ctx, sub, func(_ context.Context, m *jetpull.Msg) error {
			time.Sleep(slowHandlerTime)
			r.Receive(m.Data())
			return nil
		})
		err := r.Wait(running)
		if err == nil {
			err = errors.Join(r.Stop(ctx), r.Quiet(ctx, consumer))
		}
		return errors.Join(err, stop())
	})
}

func oursMessages(ctx context.Context, r *Round) error {
	return subscribed(ctx, r, func(sub *jetpull.Subscription) error {
		r.Start()
		left := r.Messages
		for m, err := range sub.Messages(ctx) {
			if err != nil {
				return err
			}
			r.Receive(m.Data())
			if err := m.Ack(); err != nil {
				return err
			}
			if left--; left == 0 {
				break
			}
		}
		return r.Stop(ctx)
	})
}

// consuming runs Consume until stop is called, which returns how it ended. The context it returns ends with Consume, so
// that nobody waits for messages when nobody reads them.
func consuming(
	ctx context.Context, sub *jetpull.Subscription, h jetpull.Handler, opts ...jetpull.Option,
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

func oursIdle(ctx context.Context, js jetstream.JetStream, t *Turn, handled func()) (func() error, error) {
	sub, err := jetpull.Subscribe(ctx, js, t.Stream, t.Consumer)
	if err != nil {
		return nil, err
	}
	_, stop := consuming(ctx, sub, func(context.Context, *jetpull.Msg) error {
		handled()
		return nil
	})
	return func() error { return errors.Join(stop(), sub.Close(ctx)) }, nil
}
