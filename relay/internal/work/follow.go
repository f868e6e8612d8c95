package work

import (
	"context"
	"errors"
	"time"

	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// followEvery is the time between two looks at what waits in the queues.
	followEvery = 2 * time.Second
	// searchEvery is the time between two searches for entries without a consumer, and between two looks at a deleted receiver.
	searchEvery = time.Minute
	// forgetAfter is how long the registry has a deleted receiver at least. A worker that found the receiver before it was deleted
	// can put an entry into its queue until then, and the entry fails as all others do.
	forgetAfter = time.Hour
)

// follower keeps the lanes in step with queues and registry. One goroutine has it.
type follower struct {
	w         *Workers
	searched  map[store.Queue]time.Time
	looked    map[string]time.Time // at deleted receivers
	uncounted map[string]uint64    // deleted receivers and senders without metrics, by kind and name: the revision
}

// followQueues wakes the lanes of what waits, whoever put it there, and removes what deleted receivers leave behind.
func (w *Workers) followQueues(changed <-chan struct{}) {
	f := follower{w: w, searched: map[store.Queue]time.Time{}, looked: map[string]time.Time{}, uncounted: map[string]uint64{}}
	every := time.NewTicker(followEvery)
	defer every.Stop()
	for {
		if err := f.look(w.ctx); err != nil && w.ctx.Err() == nil {
			w.log.Info("what waits in the queues is looked at again", "error", err)
		}
		w.lanes.dropGates()
		if err := f.forget(w.ctx); err != nil && w.ctx.Err() == nil {
			w.log.Info("deleted receivers are forgotten later", "error", err)
		}
		for waits := true; waits; {
			select {
			case <-w.ctx.Done():
				return
			case <-every.C:
				waits = false
			case <-changed:
				w.reconfigured()
			}
		}
	}
}

// reconfigured brings what runs in step with the registry.
func (w *Workers) reconfigured() {
	w.lanes.reconfigured()
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, g := range w.gates {
		if r, ok := w.store.Receiver(name); ok {
			g.configured(r.Revision)
		}
	}
}

// look wakes the lanes of consumers that have something. If a queue has more than its consumers, some entries have none: their
// process died before it made one, or the server removed it while nobody ran. They are searched for.
func (f *follower) look(ctx context.Context) error {
	for _, q := range laneQueues {
		all, err := f.w.store.Entries(ctx, q)
		if err != nil {
			return err
		}
		waiting, err := f.w.store.Backlogs(ctx, q)
		if err != nil {
			return err
		}
		covered := uint64(0)
		for owner, n := range waiting {
			if covered += n; n > 0 {
				f.w.lanes.wake(q, owner)
			}
		}
		if all > covered && time.Since(f.searched[q]) >= searchEvery {
			if err := f.search(ctx, q); err != nil {
				return err
			}
			f.searched[q] = time.Now()
		}
	}
	return nil
}

// search wakes the lanes of all receivers or senders for which a queue has an entry.
func (f *follower) search(ctx context.Context, q store.Queue) error {
	for _, owner := range f.owners(q) {
		if f.w.lanes.runs(q, owner) {
			continue
		}
		waits, err := f.w.store.AnyEntry(ctx, q, owner)
		if err != nil {
			return err
		}
		if waits {
			f.w.lanes.wake(q, owner)
		}
	}
	return nil
}

func (f *follower) owners(q store.Queue) (names []string) {
	if q == store.ToSender {
		for _, s := range f.w.store.Senders() {
			names = append(names, s.Name)
		}
		return names
	}
	for _, r := range f.w.store.Receivers() {
		if q == store.ToReceiver || r.Asked {
			names = append(names, r.Name)
		}
	}
	return names
}

// forget removes the metrics of what was deleted and has no lane, and in the end a deleted receiver's entry of the registry. Two
// answers of the server decide about that: the entry says that the receiver was deleted, and the queues have nothing for it. It
// is removed by a compare-and-swap: a receiver that was configured again stays.
func (f *follower) forget(ctx context.Context) error {
	for _, s := range f.w.store.Senders() {
		if s.Deleted && f.uncount("sender "+s.Name, s.Revision, f.w.lanes.runs(store.ToSender, s.Name)) {
			f.w.cfg.Metrics.forgetSender(s.Name)
		}
	}
	looked := map[string]time.Time{}
	for _, r := range f.w.store.DeletedReceivers() {
		runs := f.w.lanes.runs(store.ToReceiver, r.Name) || f.w.lanes.runs(store.FromReceiver, r.Name)
		if f.uncount("receiver "+r.Name, r.Revision, runs) {
			f.w.cfg.Metrics.forgetReceiver(r.Name)
		}
		looked[r.Name] = f.looked[r.Name]
		// A receiver of that name that is configured within its window must find what the window has.
		if runs || f.w.store.Now().Sub(r.Changed) < max(forgetAfter, r.Window) || time.Since(looked[r.Name]) < searchEvery {
			continue
		}
		if err := f.forgetReceiver(ctx, r); err != nil {
			return err
		}
		looked[r.Name] = time.Now()
	}
	f.looked = looked
	return nil
}

// uncount reports whether the metrics of one that was deleted are to be removed: they are once, after its lanes.
func (f *follower) uncount(name string, revision uint64, runs bool) bool {
	if runs {
		delete(f.uncounted, name)
		return false
	}
	was, ok := f.uncounted[name]
	f.uncounted[name] = revision
	return !ok || was != revision
}

func (f *follower) forgetReceiver(ctx context.Context, r store.Receiver) error {
	for _, q := range []store.Queue{store.ToReceiver, store.FromReceiver} {
		waits, err := f.w.store.AnyEntry(ctx, q, r.Name)
		if err != nil {
			return err
		}
		if waits {
			f.w.lanes.wake(q, r.Name)
			return nil
		}
	}
	err := f.w.store.ForgetReceiver(ctx, r)
	if err == nil {
		delete(f.uncounted, "receiver "+r.Name)
	}
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	return err
}

// waits reports whether a message that has arrived has its entry in the queue of its receiver, and wakes the lane if it has.
func (w *core) waits(ctx context.Context, r *machine.Record) (bool, error) {
	_, _, err := w.store.Waiting(ctx, store.ToReceiver, r.Receiver, r.Source, r.ID)
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	w.lanes.wake(store.ToReceiver, r.Receiver)
	return err == nil, err
}
