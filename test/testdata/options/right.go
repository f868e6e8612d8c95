// Package options has calls with options that they can use.
package options

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/partition"
)

// fetch has an option of its own, and takes others from its caller. An option of Next is one of Fetch too.
func fetch(ctx context.Context, sub *jetpull.Subscription, opts ...jetpull.FetchOption) ([]*jetpull.Msg, error) {
	return sub.Fetch(ctx, 100, append(opts, jetpull.MaxWait(time.Second))...)
}

func consume(ctx context.Context, js jetstream.JetStream, h jetpull.Handler) error {
	wait, workers := jetpull.MaxWait(time.Second), jetpull.Concurrency(4)
	sub, err := jetpull.Subscribe(ctx, js, "S", "C", wait, workers, jetpull.Group("g"))
	if err != nil {
		return err
	}
	if _, err := sub.Next(ctx, wait); err != nil {
		return err
	}
	if _, err := fetch(ctx, sub, wait, jetpull.FillBatch()); err != nil {
		return err
	}
	for range sub.Messages(ctx, jetpull.Heartbeat(time.Second), jetpull.StopAfter(10)) {
		continue
	}
	return sub.Consume(ctx, h, workers, jetpull.Heartbeat(time.Second), jetpull.StopAfter(10), jetpull.DrainBuffered())
}

func ordered(ctx context.Context, set *partition.Set, h jetpull.Handler) error {
	return set.Consume(ctx, h, partition.With(jetpull.Concurrency(4), jetpull.MaxAttempts(5), jetpull.DeadLetter("dead.orders")))
}
