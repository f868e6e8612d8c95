package measure

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	poolHandlerTime = time.Millisecond
	slowHandlerTime = 20 * time.Millisecond
	slowAckWait     = time.Second
	slowMessages    = 300
)

// handlerCases measures handlers that take time: many at once, and one that is slower than the ack wait allows for
// what a client has read ahead.
func handlerCases() []Case {
	ideal := float64(handlerPoolSize) / poolHandlerTime.Seconds()
	return []Case{
		{
			Name:     "handlers-64",
			Title:    "1 ms handlers, 64 at a time",
			Words:    "handlers of 1 ms, 64 at a time (Consume)",
			Messages: 20_000,
			Once:     true,
			Rivals:   []Contender{{Name: rivalPool, Run: natsConsumePool}},
			Targets:  []Target{{Metric: Rate, Rival: rivalPool, AtLeast: 0.95, Limit: ideal}},
		},
		{
			Name:     "slow-handler",
			Title:    "20 ms handler, AckWait 1 s, handler calls for 300 messages",
			Messages: slowMessages,
			Consumer: jetstream.ConsumerConfig{AckWait: slowAckWait},
			Rivals:   []Contender{{Name: rivalConsume, Run: natsSlowHandler}},
			Targets:  []Target{{Metric: CallsPer, AtMost: 1}},
		},
	}
}

// natsConsumePool is what a user of nats.go writes to run handlers side by side.
func natsConsumePool(ctx context.Context, r *Round) error {
	consumer, err := r.consumer(ctx)
	if err != nil {
		return err
	}
	var workers sync.WaitGroup
	queue := make(chan jetstream.Msg)
	stopped := make(chan struct{})
	defer workers.Wait()
	defer close(stopped)
	for range handlerPoolSize {
		workers.Go(func() {
			for {
				select {
				case m := <-queue:
					time.Sleep(poolHandlerTime)
					_ = m.Ack() // a lost ack shows as ack pending at the end of the round
					r.Receive(m.Data())
				case <-stopped:
					return
				}
			}
		})
	}
	return natsHandled(ctx, r, consumer, func(m jetstream.Msg) {
		select {
		case queue <- m:
		case <-stopped:
		}
	})
}

func natsSlowHandler(ctx context.Context, r *Round) error {
	consumer, err := r.consumer(ctx)
	if err != nil {
		return err
	}
	r.Start()
	running, err := consumer.Consume(func(m jetstream.Msg) {
		time.Sleep(slowHandlerTime)
		r.Receive(m.Data())
		_ = m.Ack() // a lost ack is redelivered and counted
	})
	if err != nil {
		return err
	}
	defer running.Stop()
	if err := r.Wait(ctx); err != nil {
		return err
	}
	return errors.Join(r.Stop(ctx), r.Quiet(ctx, consumer))
}
