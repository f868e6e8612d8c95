package main

import (
	"context"
	"errors"
	"fmt"
	"time"

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
