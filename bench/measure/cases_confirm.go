package measure

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// confirmBatch is how many acks are confirmed together.
const confirmBatch = 100

// confirmCases measures acks that the server confirms. The messages are fetched before the clock starts.
func confirmCases() []Case {
	return []Case{
		{
			Name:     "confirm-100",
			Title:    "ConfirmAcks(100) against 100 × DoubleAck",
			Words:    "100 acks, each confirmed (ConfirmAcks)",
			Messages: 1_000,
			Once:     true,
			Rivals:   []Contender{{Name: rivalDoubleAck, Run: doubleAck}},
			Targets:  []Target{{Metric: Rate, Rival: rivalDoubleAck, AtLeast: 4}},
		},
		{
			Name:     "confirm-100-5ms",
			Title:    "ConfirmAcks(100) against 100 × DoubleAck, 5 ms round trip",
			Messages: 1_000,
			Delayed:  true,
			Once:     true,
			Rivals:   []Contender{{Name: rivalDoubleAck, Messages: confirmBatch, Run: doubleAck}},
			Targets:  []Target{{Metric: Rate, Rival: rivalDoubleAck, AtLeast: 50}},
		},
	}
}

func doubleAck(ctx context.Context, r *Round) error {
	consumer, err := r.consumer(ctx)
	if err != nil {
		return err
	}
	held := make([]jetstream.Msg, 0, r.Messages)
	for len(held) < r.Messages && ctx.Err() == nil {
		result, err := consumer.Fetch(min(confirmBatch, r.Messages-len(held)))
		if err != nil {
			return err
		}
		for m := range result.Messages() {
			r.Receive(m.Data())
			held = append(held, m)
		}
		if err := result.Error(); err != nil {
			return err
		}
	}
	r.Start()
	for _, m := range held {
		if err := m.DoubleAck(ctx); err != nil {
			return err
		}
	}
	return r.Stop(ctx)
}
