package measure

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
)

// fetchCases measures batches on one goroutine, every message acknowledged by itself.
func fetchCases() []Case {
	return []Case{
		fetchCase(10, 20_000, "batches of 10 (Fetch)"),
		fetchCase(100, 50_000, "batches of 100 (Fetch)"),
		fetchCase(1000, 50_000, ""),
	}
}

func fetchCase(batch, messages int, words string) Case {
	return Case{
		Name:     fmt.Sprintf("fetch-%d", batch),
		Title:    fmt.Sprintf("Fetch(%d), Ack of every message", batch),
		Words:    words,
		Messages: messages,
		Once:     true,
		Rivals: []Contender{
			{Name: rivalFetch, Run: jetstreamFetch(batch)},
			{Name: rivalLegacy, Run: legacyFetch(batch)},
			{Name: rivalChan, Run: chanFetch(batch)},
		},
		Targets: pullTargets(rivalFetch),
	}
}

func jetstreamFetch(batch int) func(context.Context, *Round) error {
	return func(ctx context.Context, r *Round) error {
		consumer, err := r.consumer(ctx)
		if err != nil {
			return err
		}
		r.Start()
		for left := r.Messages; left > 0 && ctx.Err() == nil; {
			result, err := consumer.Fetch(min(batch, left))
			if err != nil {
				return err
			}
			for m := range result.Messages() {
				r.Receive(m.Data())
				if err := m.Ack(); err != nil {
					return err
				}
				left--
			}
			if err := result.Error(); err != nil {
				return err
			}
		}
		return r.Stop(ctx)
	}
}

func legacyFetch(batch int) func(context.Context, *Round) error {
	return func(ctx context.Context, r *Round) error {
		js, err := r.Conn.JetStream()
		if err != nil {
			return err
		}
		sub, err := js.PullSubscribe("", "", nats.Bind(r.Stream, r.Consumer))
		if err != nil {
			return err
		}
		r.Start()
		for left := r.Messages; left > 0 && ctx.Err() == nil; {
			msgs, err := sub.Fetch(min(batch, left))
			if err != nil {
				return err
			}
			for _, m := range msgs {
				r.Receive(m.Data)
				if err := m.Ack(); err != nil {
					return err
				}
			}
			left -= len(msgs)
		}
		return r.Stop(ctx)
	}
}
