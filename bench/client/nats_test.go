package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// consumed runs a round with nats.go's consumer.
func consumed(ctx context.Context, r *round, work func(jetstream.Consumer) error) error {
	c, err := r.consumer(ctx)
	if err != nil {
		return err
	}
	return work(c)
}

func natsNext(goroutines int) work {
	return func(ctx context.Context, r *round) error {
		return consumed(ctx, r, func(c jetstream.Consumer) error {
			return r.onGoroutines(ctx, goroutines, func(context.Context) error {
				m, err := c.Next()
				if err != nil {
					return err
				}
				r.receive(m.Data())
				return m.Ack()
			})
		})
	}
}

// natsFetched fetches all messages in batches, and calls handle for each.
func natsFetched(ctx context.Context, r *round, c jetstream.Consumer, batch int, handle func(jetstream.Msg) error) error {
	for left := r.n; left > 0 && ctx.Err() == nil; {
		result, err := c.Fetch(min(batch, left))
		if err != nil {
			return err
		}
		for m := range result.Messages() {
			r.receive(m.Data())
			if err := handle(m); err != nil {
				return err
			}
			left--
		}
		if err := result.Error(); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func natsFetch(batch int) work {
	return func(ctx context.Context, r *round) error {
		return consumed(ctx, r, func(c jetstream.Consumer) error {
			r.start()
			if err := natsFetched(ctx, r, c, batch, jetstream.Msg.Ack); err != nil {
				return err
			}
			return r.stop(ctx)
		})
	}
}

func natsDoubleAck(ctx context.Context, r *round) error {
	return consumed(ctx, r, func(c jetstream.Consumer) error {
		held := make([]jetstream.Msg, 0, r.n)
		err := natsFetched(ctx, r, c, confirmBatch, func(m jetstream.Msg) error {
			held = append(held, m)
			return nil
		})
		if err != nil {
			return err
		}
		r.start()
		for _, m := range held {
			if err := m.DoubleAck(ctx); err != nil {
				return err
			}
		}
		return r.stop(ctx)
	})
}

// natsHandled runs Consume of nats.go until all messages are received. Then it stops the clock and calls after.
func natsHandled(ctx context.Context, r *round, handle func(jetstream.Msg), after func(jetstream.Consumer) error) error {
	return consumed(ctx, r, func(c jetstream.Consumer) error {
		r.start()
		running, err := c.Consume(handle)
		if err != nil {
			return err
		}
		defer running.Stop()
		if err := r.wait(ctx); err != nil {
			return err
		}
		return errors.Join(r.stop(ctx), after(c))
	})
}

func nothing(jetstream.Consumer) error { return nil }

func natsConsume(ctx context.Context, r *round) error {
	c, err := r.consumer(ctx)
	if err != nil {
		return err
	}
	ack := c.CachedInfo().Config.AckPolicy != jetstream.AckNonePolicy
	return natsHandled(ctx, r, func(m jetstream.Msg) {
		if ack {
			_ = m.Ack() // a lost ack shows as ack pending at the end of the round
		}
		r.receive(m.Data())
	}, nothing)
}

// natsPool runs handlers concurrently, as a user of nats.go would.
func natsPool(ctx context.Context, r *round) error {
	var workers sync.WaitGroup
	queue := make(chan jetstream.Msg)
	stopped := make(chan struct{})
	defer workers.Wait()
	defer close(stopped)
	for range poolSize {
		workers.Go(func() {
			for {
				select {
				case m := <-queue:
					time.Sleep(poolHandlerTime)
					_ = m.Ack() // a lost ack shows as ack pending at the end of the round
					r.receive(m.Data())
				case <-stopped:
					return
				}
			}
		})
	}
	return natsHandled(ctx, r, func(m jetstream.Msg) {
		select {
		case queue <- m:
		case <-stopped:
		}
	}, nothing)
}

func natsSlowHandler(ctx context.Context, r *round) error {
	return natsHandled(ctx, r, func(m jetstream.Msg) {
		time.Sleep(slowHandlerTime)
		r.receive(m.Data())
		_ = m.Ack() // if the ack is lost, the message is redelivered and counted
	}, func(c jetstream.Consumer) error { return r.quiet(ctx, c) })
}

func natsMessages(ctx context.Context, r *round) error {
	return consumed(ctx, r, func(c jetstream.Consumer) error {
		r.start()
		messages, err := c.Messages()
		if err != nil {
			return err
		}
		defer messages.Stop()
		defer context.AfterFunc(ctx, messages.Stop)()
		for range r.n {
			m, err := messages.Next()
			if err != nil {
				return err
			}
			r.receive(m.Data())
			if err := m.Ack(); err != nil {
				return err
			}
		}
		return r.stop(ctx)
	})
}

func natsIdle(ctx context.Context, js jetstream.JetStream, stream, consumer string) (func() error, error) {
	c, err := js.Consumer(ctx, stream, consumer)
	if err != nil {
		return nil, err
	}
	running, err := c.Consume(func(m jetstream.Msg) { _ = m.Ack() })
	if err != nil {
		return nil, err
	}
	return func() error {
		running.Stop()
		<-running.Closed()
		return nil
	}, nil
}
