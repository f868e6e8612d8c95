package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
)

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
