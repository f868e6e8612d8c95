package measure

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// consumeCases measures continuous reading: callbacks and loops, on loopback and over a slow link, all with defaults.
func consumeCases() []Case { return append(consumeOnLoopback(), consumeOverSlowLink()...) }

func consumeOnLoopback() []Case {
	return []Case{
		{
			Name:     "consume-none",
			Title:    "Consume, ack policy none",
			Messages: 200_000,
			Once:     true,
			Consumer: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy},
			Rivals: []Contender{
				{Name: rivalConsume, Run: natsConsume},
				{Name: rivalSubscribe, Run: handSentPulls},
			},
			Targets: []Target{
				{Metric: Rate, Rival: rivalSubscribe, AtLeast: 0.98},
				{Metric: Rate, Rival: rivalConsume, AtLeast: 1},
				{Metric: CPUPer, Rival: rivalConsume, AtMost: 0.9},
				{Metric: AllocsPer, AtMost: 4.1},
			},
		},
		{
			Name:     "consume-ack",
			Title:    "Consume + Ack",
			Words:    "a worker (Consume)",
			Messages: 100_000,
			Once:     true,
			Rivals: []Contender{
				{Name: rivalConsume, Run: natsConsume},
				{Name: rivalSubscribe, Run: handSentPulls},
			},
			Targets: []Target{
				{Metric: Rate, Rival: rivalConsume, AtLeast: 1},
				{Metric: CPUPer, Rival: rivalConsume, AtMost: 0.9},
			},
		},
		{
			Name:     "messages-ack",
			Title:    "Messages loop + Ack",
			Words:    "a loop (Messages)",
			Messages: 100_000,
			Once:     true,
			Rivals: []Contender{
				{Name: rivalMessages, Run: natsMessages},
				{Name: rivalSubscribe, Run: handSentPulls},
			},
			Targets: []Target{{Metric: Rate, Rival: rivalMessages, AtLeast: 1.3}},
		},
	}
}

func consumeOverSlowLink() []Case {
	return []Case{
		{
			Name:     "consume-none-5ms",
			Title:    "Consume, ack policy none, 5 ms round trip",
			Messages: 100_000,
			Delayed:  true,
			Once:     true,
			Consumer: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy},
			Rivals:   []Contender{{Name: rivalConsume, Messages: 30_000, Run: natsConsume}},
			Targets:  []Target{{Metric: Rate, Rival: rivalConsume, AtLeast: 5}},
		},
		{
			Name:     "consume-ack-5ms",
			Title:    "Consume + Ack, 5 ms round trip",
			Words:    "a worker, 5 ms from the server (Consume)",
			Messages: 100_000,
			Delayed:  true,
			Once:     true,
			Rivals: []Contender{
				{Name: rivalConsume, Messages: 30_000, Run: natsConsume},
				{Name: rivalSubscribe, Run: handSentPulls},
			},
			Targets: []Target{{Metric: Rate, Rival: rivalConsume, AtLeast: 5}},
		},
		{
			Name:     "messages-ack-5ms",
			Title:    "Messages loop + Ack, 5 ms round trip",
			Words:    "a loop, 5 ms from the server (Messages)",
			Messages: 100_000,
			Delayed:  true,
			Once:     true,
			Rivals: []Contender{
				{Name: rivalMessages, Messages: 30_000, Run: natsMessages},
				{Name: rivalNext, Messages: 200, Run: jetstreamNext(1)},
				{Name: rivalSubscribe, Run: handSentPulls},
			},
			Targets: []Target{
				{Metric: Rate, Rival: rivalNext, AtLeast: 300},
				{Metric: Rate, Rival: rivalMessages, AtLeast: 4},
			},
		},
	}
}

// acksWanted reports whether messages of the round's consumer are to be acknowledged.
func acksWanted(c jetstream.Consumer) bool {
	return c.CachedInfo().Config.AckPolicy != jetstream.AckNonePolicy
}

func natsConsume(ctx context.Context, r *Round) error {
	consumer, err := r.consumer(ctx)
	if err != nil {
		return err
	}
	ack := acksWanted(consumer)
	return natsHandled(ctx, r, consumer, func(m jetstream.Msg) {
		if ack {
			_ = m.Ack() // a lost ack shows as ack pending at the end of the round
		}
		r.Receive(m.Data())
	})
}

// natsHandled runs Consume of nats.go until every message was received.
func natsHandled(ctx context.Context, r *Round, consumer jetstream.Consumer, handle func(jetstream.Msg)) error {
	r.Start()
	running, err := consumer.Consume(handle)
	if err != nil {
		return err
	}
	defer running.Stop()
	if err := r.Wait(ctx); err != nil {
		return err
	}
	return r.Stop(ctx)
}

func natsMessages(ctx context.Context, r *Round) error {
	consumer, err := r.consumer(ctx)
	if err != nil {
		return err
	}
	r.Start()
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for range r.Messages {
		m, err := messages.Next()
		if err != nil {
			return err
		}
		r.Receive(m.Data())
		if err := m.Ack(); err != nil {
			return err
		}
	}
	return r.Stop(ctx)
}

var wireAck = []byte("+ACK")

// Pulls of handSentPulls: two of a thousand stand at the server, so that it never runs out of demand.
const (
	handSentBatch  = 1_000
	handSentAhead  = 2
	handSentFormat = `{"batch":%d,"expires":30000000000}`
)

// handSentPulls is what any consumer built on nats.go stands on: a plain subscription whose callback acknowledges the
// message, and sends the next pull when one is used up. It is the limit for all of them.
func handSentPulls(ctx context.Context, r *Round) error {
	consumer, err := r.consumer(ctx)
	if err != nil {
		return err
	}
	ack, pull, inbox := acksWanted(consumer), r.pullSubject(), r.Conn.NewInbox()
	request := fmt.Appendf(nil, handSentFormat, handSentBatch)
	var received atomic.Int64
	failed := make(chan error, 1)
	_, err = r.Conn.Subscribe(inbox, func(m *nats.Msg) {
		if ack {
			_ = r.Conn.Publish(m.Reply, wireAck) // a lost one shows as ack pending at the end of the round
		}
		r.Receive(m.Data)
		if received.Add(1)%handSentBatch != 0 {
			return
		}
		if err := r.Conn.PublishRequest(pull, inbox, request); err != nil {
			select {
			case failed <- err:
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	r.Start()
	for range handSentAhead {
		if err := r.Conn.PublishRequest(pull, inbox, request); err != nil {
			return err
		}
	}
	select {
	case err := <-failed:
		return fmt.Errorf("send a pull: %w", err)
	case <-r.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return r.Stop(ctx)
}
