package measure

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
)

// nextCases measures one message at a time: Next and Ack on 1, 8 and 64 goroutines, and the two in one.
func nextCases() []Case {
	return []Case{
		nextCase(1, 5_000, "one message at a time (Next)"),
		nextCase(8, 20_000, ""),
		nextCase(64, 40_000, "one at a time on 64 goroutines (Next)"),
		{
			Name:     "acknext",
			Title:    "AckNext, 1 goroutine",
			Words:    "ack and next message in one (AckNext)",
			Messages: 5_000,
			Once:     true,
			Rivals: []Contender{
				{Name: rivalNext, Run: jetstreamNext(1)},
				{Name: rivalChan, Run: chanAckNext},
			},
			Targets: pullTargets(rivalNext),
		},
	}
}

func nextCase(goroutines, messages int, words string) Case {
	title := "Next + Ack, 1 goroutine"
	if goroutines > 1 {
		title = fmt.Sprintf("Next + Ack, %d goroutines", goroutines)
	}
	return Case{
		Name:     fmt.Sprintf("next-%d", goroutines),
		Title:    title,
		Words:    words,
		Messages: messages,
		Once:     true,
		Rivals: []Contender{
			{Name: rivalNext, Run: jetstreamNext(goroutines)},
			{Name: rivalLegacyOne, Run: legacyNext(goroutines)},
			{Name: rivalChan, Run: chanNext(goroutines)},
		},
		Targets: pullTargets(rivalNext),
	}
}

func jetstreamNext(goroutines int) func(context.Context, *Round) error {
	return func(ctx context.Context, r *Round) error {
		consumer, err := r.consumer(ctx)
		if err != nil {
			return err
		}
		return r.work(ctx, goroutines, func(context.Context) (func() error, error) {
			return func() error {
				m, err := consumer.Next()
				if err != nil {
					return err
				}
				r.Receive(m.Data())
				return m.Ack()
			}, nil
		})
	}
}

// legacyNext gives each goroutine a pull subscription of its own, bound to the one consumer.
func legacyNext(goroutines int) func(context.Context, *Round) error {
	return func(ctx context.Context, r *Round) error {
		js, err := r.Conn.JetStream()
		if err != nil {
			return err
		}
		return r.work(ctx, goroutines, func(context.Context) (func() error, error) {
			sub, err := js.PullSubscribe("", "", nats.Bind(r.Stream, r.Consumer))
			if err != nil {
				return nil, err
			}
			return func() error {
				msgs, err := sub.Fetch(1)
				if err != nil {
					return err
				}
				r.Receive(msgs[0].Data)
				return msgs[0].Ack()
			}, nil
		})
	}
}
