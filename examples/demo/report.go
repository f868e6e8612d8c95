package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/service/progress"
)

// settleWait limits the wait for acknowledgements that were sent but not confirmed.
const settleWait = 5 * time.Second

// report prints the demo's results and the server's counters. It returns an error if they do not match, or if an order is missing or was
// handled twice.
func (d *demo) report(ctx context.Context, out io.Writer) error {
	if err := d.awaitAcks(ctx); err != nil {
		return err
	}
	js, restarted, err := d.home.restart(ctx)
	if err != nil {
		return err
	}
	d.js = js
	var page strings.Builder
	err = d.write(ctx, &page, restarted)
	_, writeErr := io.WriteString(out, page.String())
	return errors.Join(err, writeErr)
}

func (d *demo) write(ctx context.Context, out *strings.Builder, restarted bool) error {
	if err := errors.Join(d.printSteps(out), d.printPins(out)); err != nil {
		return err
	}
	heading := "The counters of the server:"
	if restarted {
		heading = "The counters of the server after a restart on the same files:"
	}
	fmt.Fprintf(out, "\n%s\n", heading)
	if err := d.printProof(ctx, out); err != nil {
		return err
	}
	b := d.ledger.balance()
	if !b.even() {
		return fmt.Errorf("the ledger is not even: of %d orders %d were worked off once, %d deliveries were repeats; %s came in and %s went out",
			b.orders, b.once, b.repeated, euros(b.published), euros(b.received))
	}
	fmt.Fprintf(out, "\nAll %s orders, worth %s, were handled exactly once.\n", progress.Count(b.orders), euros(b.received))
	if d.home.keeps {
		fmt.Fprintf(out, "The store is in %s; look at it with: jetpull info %s pinned --embedded %s\n",
			d.home.srv.Dir(), stream, d.home.srv.Dir())
	}
	return nil
}

func euros(cents int64) string {
	return fmt.Sprintf("%s.%02d €", progress.Count(cents/100), cents%100)
}

func (d *demo) printSteps(out *strings.Builder) error {
	var rows [][]string
	for _, s := range d.steps {
		pulls := "–"
		if s.pulls > 0 {
			pulls = progress.Count(s.pulls)
		}
		rows = append(rows, []string{
			s.name, s.call, s.workers, progress.Count(s.messages), progress.Short(s.took),
			progress.Count(progress.Rate(int64(s.messages), s.took)), pulls,
		})
	}
	fmt.Fprintln(out)
	return progress.Table(out, []string{"step", "with", ">workers", ">messages", ">time", ">messages/s", ">pulls"}, rows)
}

func (d *demo) printPins(out *strings.Builder) error {
	var rows [][]string
	for _, p := range d.pins {
		rows = append(rows, []string{
			"+" + progress.Short(p.at.Sub(d.pins[0].at)), progress.Count(p.done), p.what,
		})
	}
	fmt.Fprintf(out, "\nThe pin of group %q, whose holder gets all messages while the other worker waits:\n", group)
	return progress.Table(out, []string{">at", ">messages done", "what happened"}, rows)
}

func (d *demo) printProof(ctx context.Context, out io.Writer) error {
	var rows [][]string
	var wrong error
	shares := sharesOf(d.orders)
	for i, p := range parts() {
		info, err := d.info(ctx, p.consumer)
		if err != nil {
			return err
		}
		again := int64(info.Delivered.Consumer) - int64(shares[i])
		rows = append(rows, []string{
			p.consumer, progress.Count(info.Delivered.Consumer), progress.Count(again),
			fmt.Sprintf("%s of %s", progress.Count(info.AckFloor.Stream), progress.Count(info.Delivered.Stream)),
			progress.Count(info.NumPending), progress.Count(info.NumAckPending),
		})
		if info.NumPending != 0 || info.NumAckPending != 0 || info.AckFloor.Stream != info.Delivered.Stream {
			wrong = errors.Join(wrong, fmt.Errorf("consumer %s is not done: %d pending, %d unacknowledged, ack floor %d of %d",
				p.consumer, info.NumPending, info.NumAckPending, info.AckFloor.Stream, info.Delivered.Stream))
		}
	}
	return errors.Join(progress.Table(out, []string{"consumer", ">delivered", ">redelivered", ">ack floor", ">pending", ">ack pending"}, rows), wrong)
}

// awaitAcks waits until the server has received the acknowledgements that were sent without confirmation.
func (d *demo) awaitAcks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for _, p := range parts() {
		for {
			info, err := d.info(ctx, p.consumer)
			if err != nil {
				return err
			}
			if info.NumAckPending == 0 {
				break
			}
			<-again.C
		}
	}
	return nil
}

func (d *demo) info(ctx context.Context, consumer string) (*jetstream.ConsumerInfo, error) {
	c, err := d.js.Consumer(ctx, stream, consumer)
	if err != nil {
		return nil, fmt.Errorf("info of consumer %s: %w", consumer, err)
	}
	return c.CachedInfo(), nil
}
