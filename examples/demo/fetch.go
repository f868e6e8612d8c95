package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/service/progress"
)

const (
	fetchWorkers = 4
	batch        = 200
	nextWorkers  = 16
)

// workFetch runs a few workers that fetch batches from one Subscription until no messages are left. They confirm each batch as a whole.
func (d *demo) workFetch(ctx context.Context, p part, share int) error {
	return d.team(ctx, p, share, fetchWorkers, fmt.Sprintf("Fetch(%d), ConfirmAcks", batch),
		func(ctx context.Context, sub *jetpull.Subscription, bar *progress.Bar) error {
			for {
				msgs, err := sub.Fetch(ctx, batch, jetpull.NoWait())
				if err != nil {
					return unlessEmpty(err)
				}
				for _, m := range msgs {
					if err := d.ledger.settle(m); err != nil {
						return err
					}
				}
				if err := jetpull.ConfirmAcks(ctx, msgs...); err != nil {
					return err
				}
				bar.Add(len(msgs))
			}
		})
}

// workNext runs many workers that take one message at a time. Each acknowledges its message and pulls the next with one protocol message.
func (d *demo) workNext(ctx context.Context, p part, share int) error {
	return d.team(ctx, p, share, nextWorkers, "Next, AckNext",
		func(ctx context.Context, sub *jetpull.Subscription, bar *progress.Bar) error {
			m, err := sub.Next(ctx, jetpull.NoWait())
			for err == nil {
				if err := d.ledger.settle(m); err != nil {
					return err
				}
				bar.Add(1)
				m, err = m.AckNext(ctx, jetpull.NoWait())
			}
			return unlessEmpty(err)
		})
}

func unlessEmpty(err error) error {
	if errors.Is(err, jetpull.ErrNoMessages) {
		return nil
	}
	return err
}

// team runs workers on one Subscription, and appends a step with the result.
func (d *demo) team(ctx context.Context, p part, share, workers int, call string,
	work func(context.Context, *jetpull.Subscription, *progress.Bar) error,
) error {
	sub, err := jetpull.Subscribe(ctx, d.js, stream, p.consumer)
	if err != nil {
		return err
	}
	begin := time.Now()
	bar := progress.New(d.screen, p.consumer, int64(share))
	failed := make(chan error, workers)
	var team sync.WaitGroup
	for range workers {
		team.Go(func() { failed <- work(ctx, sub, bar) })
	}
	team.Wait()
	close(failed)
	bar.Done()
	d.steps = append(d.steps, step{
		name: p.consumer, call: call, workers: strconv.Itoa(workers),
		messages: share, took: time.Since(begin), pulls: sub.Stats().Pulls,
	})
	for e := range failed {
		err = errors.Join(err, e)
	}
	return errors.Join(err, sub.Close(context.WithoutCancel(ctx)))
}
