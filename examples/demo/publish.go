package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/service/progress"
)

// inFlight is the maximum number of published orders that are not yet confirmed.
const inFlight = 500

// publish publishes the backlog, and returns when the server has confirmed every order. The orders of all parts are mixed, as in production.
func (d *demo) publish(ctx context.Context) error {
	begin := time.Now()
	bar := progress.New(d.screen, "publish", int64(d.orders))
	defer bar.Done()
	var waiting []jetstream.PubAckFuture
	for id, consumer := range d.destinations() {
		o := newOrder(id)
		body, err := json.Marshal(o)
		if err != nil {
			return err
		}
		future, err := d.js.PublishAsync(subject+consumer, body)
		if err != nil {
			return fmt.Errorf("publish order %d: %w", id, err)
		}
		d.ledger.publish(o)
		waiting = append(waiting, future)
		if len(waiting) == inFlight || id == d.orders-1 {
			if err := confirmed(ctx, waiting); err != nil {
				return err
			}
			bar.Add(len(waiting))
			waiting = waiting[:0]
		}
	}
	d.steps = append(d.steps, step{
		name: "publish", call: "PublishAsync of nats.go", workers: "1",
		messages: d.orders, took: time.Since(begin),
	})
	return nil
}

// destinations returns the consumer of each order. The parts take turns, in proportion to their shares.
func (d *demo) destinations() []string {
	left := sharesOf(d.orders)
	to := make([]string, 0, d.orders)
	for len(to) < d.orders {
		for i, p := range parts() {
			for n := min(left[i], p.percent/20); n > 0; n-- {
				to = append(to, p.consumer)
				left[i]--
			}
		}
	}
	return to
}

func confirmed(ctx context.Context, futures []jetstream.PubAckFuture) error {
	for _, f := range futures {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			return fmt.Errorf("publish to %s: %w", f.Msg().Subject, err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
