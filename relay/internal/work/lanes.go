package work

import (
	"context"
	"errors"
	"time"

	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// collectEvery is the time between two looks at a deleted receiver that still has a lane, and recheckEvery the time between
	// two looks at one that has none.
	collectEvery = 2 * time.Second
	recheckEvery = time.Minute
	// forgetAfter is how long the registry has a deleted receiver at least. A worker that found the receiver before it was deleted
	// can put an entry into its queue until then, and the entry fails as all others do.
	forgetAfter = time.Hour
)

// lane is a worker of one receiver or sender.
type lane struct {
	stop   context.CancelFunc
	done   chan struct{}
	mode   string // what of the configuration it was started with
	ending bool   // it was stopped, since nothing is left to do
}

// followRegistry starts, changes and ends lanes.
func (w *Workers) followRegistry(changed <-chan struct{}) {
	known := map[string]uint64{}
	deleted := collector{w: w}
	every := time.NewTicker(collectEvery)
	defer every.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-every.C:
		case <-changed:
			known = w.startLanes(known)
		}
		deleted.collect(w.ctx)
	}
}

// startLanes starts what is configured and has no lane, and returns the revisions of the receivers. Known has those of the last
// call.
func (w *Workers) startLanes(known map[string]uint64) map[string]uint64 {
	revisions := make(map[string]uint64, len(known))
	for _, r := range w.store.Receivers() {
		if !r.Deleted {
			w.ensureReceiver(r)
		}
		revisions[r.Name] = r.Revision
		if known[r.Name] != r.Revision {
			w.gate(r.Name).resume()
		}
	}
	for _, sender := range w.store.Senders() {
		w.ensure(w.toSender(sender.Name))
	}
	return revisions
}

func (w *Workers) ensureReceiver(r store.Receiver) {
	w.ensure(w.toReceiver(r))
	if r.Asked {
		w.ensure(w.fromReceiverAsync(r.Name))
	}
}

// ensure starts a worker as a lane, again if it has to work in another mode.
func (w *Workers) ensure(worker worker) {
	old := w.lanes[worker.consumer.Durable]
	if old != nil {
		if old.mode == worker.mode && !old.ending {
			return
		}
		old.stop()
	}
	ctx, stop := context.WithCancel(w.ctx)
	l := &lane{stop: stop, done: make(chan struct{}), mode: worker.mode}
	w.lanes[worker.consumer.Durable] = l
	w.running.Go(func() {
		defer close(l.done)
		if old != nil {
			<-old.done
		}
		w.consume(ctx, worker, old == nil)
	})
}

// endLane ends a lane, and tells whether it has ended.
func (w *Workers) endLane(durable string) bool {
	l := w.lanes[durable]
	if l == nil {
		return true
	}
	l.ending = true
	l.stop()
	select {
	case <-l.done:
		delete(w.lanes, durable)
		return true
	default:
		return false
	}
}

// collector removes what deleted receivers leave behind. Two answers of the server decide: the registry's entry says that the
// receiver was deleted, and the queues have no entry for it. Then its lanes end, and its consumers, gate and metrics go. After
// forgetAfter the entry of the registry goes too, by a compare-and-swap: a receiver that was configured again stays. The
// goroutine that starts lanes owns the collector, so that no lane starts while its consumer is removed.
type collector struct {
	w     *Workers
	looks map[string]look // by receiver
}

// look says when to look at a deleted receiver, as of a revision, again.
type look struct {
	revision uint64
	next     time.Time
}

// collect looks at all deleted receivers whose time has come.
func (c *collector) collect(ctx context.Context) {
	deleted := c.w.store.DeletedReceivers()
	looks := make(map[string]look, len(deleted))
	var failed error
	for _, r := range deleted {
		l := c.looks[r.Name]
		if l.revision != r.Revision {
			l = look{revision: r.Revision}
		}
		if failed == nil && !time.Now().Before(l.next) {
			var pause time.Duration
			if pause, failed = c.one(ctx, r); failed == nil {
				l.next = time.Now().Add(pause)
			}
		}
		looks[r.Name] = l
	}
	c.looks = looks
	if failed != nil && ctx.Err() == nil {
		c.w.log.Info("what deleted receivers leave behind is removed later", "error", failed)
	}
}

// one looks at a deleted receiver, and says after which time to look again.
func (c *collector) one(ctx context.Context, r store.Receiver) (again time.Duration, err error) {
	w := c.w
	// In this order: an entry that moves on is in the second queue before it leaves the first.
	queues := []store.Queue{store.ToReceiver, store.FromReceiver}
	for _, q := range queues {
		waits, err := w.store.AnyEntry(ctx, q, r.Name)
		if err != nil {
			return 0, err
		}
		if waits {
			w.ensureReceiver(r)
			return collectEvery, nil
		}
	}
	ended := true
	for _, q := range queues {
		ended = w.endLane(w.store.Durable(q, r.Name)) && ended
	}
	if !ended {
		return collectEvery, nil
	}
	for _, q := range queues {
		if err := w.store.DropConsumer(ctx, q, r.Name); err != nil {
			return 0, err
		}
	}
	w.dropGate(r.Name)
	w.cfg.Metrics.forgetReceiver(r.Name)
	// A receiver of that name that is configured within its window must find what the window has.
	if w.store.Now().Sub(r.Changed) < max(forgetAfter, r.Window) {
		return recheckEvery, nil
	}
	if err := w.store.ForgetReceiver(ctx, r); err != nil && !errors.Is(err, store.ErrConflict) {
		return 0, err
	}
	return recheckEvery, nil
}

func (w *Workers) dropGate(receiver string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.gates, receiver)
}
