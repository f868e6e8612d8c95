package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/service/progress"
)

const (
	group  = "primary"
	unpins = 2 // how often the pin is taken away
)

// pinSwitch is an event of the pin.
type pinSwitch struct {
	at   time.Time
	what string
	done int64 // messages handled by then
}

// rota is the state of the pinned group. Of its two workers, the pinned one handles all messages, in order. The other is the stand-by.
type rota struct {
	demo  *demo
	bar   *progress.Bar
	share int64
	done  atomic.Int64
	stop  context.CancelFunc

	mu       sync.Mutex
	switches []pinSwitch
	byWorker map[string]int
	lastSeq  uint64
	backward int // messages that came after one with a higher sequence
}

// workPinned handles the share of the pinned group. During the work, it takes the pin away twice; each time, the stand-by takes over.
func (d *demo) workPinned(ctx context.Context, p part, share int) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := &rota{
		demo: d, share: int64(share), stop: stop, byWorker: map[string]int{},
		bar: progress.New(d.screen, p.consumer, int64(share)),
	}
	names := []string{"Ada", "Grace"}
	var subs []*jetpull.Subscription
	for _, name := range names {
		sub, err := jetpull.Subscribe(ctx, d.js, stream, p.consumer, jetpull.Group(group),
			jetpull.OnPin(func(jetpull.PinEvent) { r.note(name + " is pinned") }),
			jetpull.OnUnpin(func(jetpull.PinEvent) { r.note(name + " has lost the pin") }))
		if err != nil {
			return errors.Join(err, closeAll(ctx, subs))
		}
		subs = append(subs, sub)
	}
	begin := time.Now()
	var team sync.WaitGroup
	failed := make(chan error, len(subs))
	for i, sub := range subs {
		team.Go(func() {
			if err := r.work(ctx, sub, names[i]); err != nil {
				failed <- fmt.Errorf("%s: %w", names[i], err)
				stop()
			}
		})
	}
	team.Wait()
	close(failed)
	r.bar.Done()
	s := step{name: p.consumer, call: "Next, Ack", workers: "1 of 2", messages: share, took: time.Since(begin)}
	var errs []error
	for err := range failed {
		errs = append(errs, err)
	}
	for _, sub := range subs {
		s.pulls += sub.Stats().Pulls
	}
	d.steps = append(d.steps, s)
	errs = append(errs, closeAll(ctx, subs)) // gives up the pin
	d.pins = r.history()
	return errors.Join(errs...)
}

func closeAll(ctx context.Context, subs []*jetpull.Subscription) error {
	var errs []error
	for _, sub := range subs {
		errs = append(errs, sub.Close(context.WithoutCancel(ctx)))
	}
	return errors.Join(errs...)
}

// work is a worker's loop. A stand-by waits in Next and needs no extra code.
func (r *rota) work(ctx context.Context, sub *jetpull.Subscription, name string) error {
	for {
		m, err := sub.Next(ctx)
		switch {
		case ctx.Err() != nil && r.done.Load() >= r.share:
			return nil
		case errors.Is(err, jetpull.ErrTimeout) && ctx.Err() == nil:
			continue // the other worker is pinned
		case err != nil:
			return err
		}
		if err := r.demo.ledger.settle(m); err != nil {
			return err
		}
		if err := m.Ack(); err != nil {
			return err
		}
		if err := r.count(ctx, sub, name, m.Sequence()); err != nil {
			return err
		}
	}
}

// count counts a handled message. It takes the pin away when that is due, and ends the work after the last message.
func (r *rota) count(ctx context.Context, sub *jetpull.Subscription, name string, seq uint64) error {
	r.bar.Add(1)
	r.mu.Lock()
	r.byWorker[name]++
	if seq < r.lastSeq {
		r.backward++
	}
	r.lastSeq = max(r.lastSeq, seq)
	r.mu.Unlock()
	done := r.done.Add(1)
	if done == r.share {
		r.stop()
		return nil
	}
	if every := r.share / (unpins + 1); done%every == 0 && done/every <= unpins {
		r.note("unpin requested")
		// The other worker may end the work in the meantime, which cancels ctx.
		return sub.Unpin(context.WithoutCancel(ctx))
	}
	return nil
}

func (r *rota) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.switches = append(r.switches, pinSwitch{time.Now(), what, r.done.Load()})
}

// history returns the events of the pin. The last entry states how many messages each worker handled.
func (r *rota) history() []pinSwitch {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(slices.Clone(r.switches), pinSwitch{
		at: time.Now(), done: r.done.Load(),
		what: fmt.Sprintf("Ada did %s, Grace %s, out of order %d",
			progress.Count(r.byWorker["Ada"]), progress.Count(r.byWorker["Grace"]), r.backward),
	})
}
