package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	stream  = "DEMO_ORDERS"
	subject = "demo.orders."
)

// demo is one run and its results.
type demo struct {
	home   *home
	js     jetstream.JetStream
	orders int
	ledger *ledger
	screen io.Writer // where progress is shown

	steps []step
	pins  []pinSwitch
}

// step is the result of processing one part of the backlog.
type step struct {
	name, call, workers string
	messages            int
	took                time.Duration
	pulls               uint64
}

// part is the share of the backlog for one consumer.
type part struct {
	consumer string
	percent  int
	config   jetstream.ConsumerConfig
	work     func(*demo, context.Context, part, int) error
}

func parts() []part {
	return []part{
		{consumer: "fetch", percent: 60, work: (*demo).workFetch},
		{consumer: "next", percent: 20, work: (*demo).workNext},
		{consumer: "pinned", percent: 20, work: (*demo).workPinned, config: jetstream.ConsumerConfig{
			PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{group},
		}},
	}
}

// run runs the demo. It writes the results to out, and the progress to screen.
func run(ctx context.Context, s settings, out, screen io.Writer) error {
	home, err := openHome(ctx, s)
	if err != nil {
		return err
	}
	defer home.close()
	d := &demo{home: home, orders: s.orders, screen: screen, ledger: newLedger(s.orders)}
	if d.js, err = home.connect(); err != nil {
		return err
	}
	if err := d.createStream(ctx); err != nil {
		return err
	}
	if !home.keeps {
		// Read d.js late: report replaces it when it restarts the server.
		defer func() { _ = d.js.DeleteStream(context.WithoutCancel(ctx), stream) }()
	}
	if err := d.publish(ctx); err != nil {
		return err
	}
	shares := sharesOf(d.orders)
	for i, p := range parts() {
		p.config.Durable, p.config.FilterSubject = p.consumer, subject+p.consumer
		if _, err := d.js.CreateConsumer(ctx, stream, p.config); err != nil {
			return fmt.Errorf("create consumer %s: %w", p.consumer, err)
		}
		if err := p.work(d, ctx, p, shares[i]); err != nil {
			return fmt.Errorf("%s: %w", p.consumer, err)
		}
	}
	return d.report(ctx, out)
}

// createStream returns an error if the stream exists. Creating it again with the same configuration would succeed, and the demo would
// also count the old messages.
func (d *demo) createStream(ctx context.Context) error {
	_, err := d.js.Stream(ctx, stream)
	if err == nil {
		return fmt.Errorf("there is a stream %s already, of another demo; delete it, or name another folder with -store", stream)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = d.js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{subject + "*"}})
	}
	if err != nil {
		return fmt.Errorf("create stream %s: %w", stream, err)
	}
	return nil
}

// sharesOf returns the number of orders of each part. The first part also gets the remainder.
func sharesOf(orders int) []int {
	all := parts()
	shares := make([]int, len(all))
	shares[0] = orders
	for i, p := range all[1:] {
		shares[i+1] = orders * p.percent / 100
		shares[0] -= shares[i+1]
	}
	return shares
}
