package work

import (
	"context"
	"sync"
	"time"

	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// idleAfter is how long a lane without work is kept.
	idleAfter = 2 * time.Second
	// consumerIdle is how long the server keeps a consumer after the last process has ended its lane.
	consumerIdle = 5 * time.Second
	// followEvery is the interval at which the queues are checked for entries that wait.
	followEvery = 2 * time.Second
	// searchEvery is the interval between searches for entries without a consumer.
	searchEvery = time.Minute
)

// laneQueues are the queues that lanes process, in the order in which a message passes them. It is in the next one before it leaves the previous one.
var laneQueues = []store.Queue{store.ToReceiver, store.FromReceiver, store.ToSender}

// lanes are the workers of receivers and senders. A lane exists while its queue has entries for its receiver or sender. A worker that puts an entry
// into a queue wakes the lane. [Workers.followQueues] wakes the lanes of entries from other processes, or from an earlier run of this one.
type lanes struct {
	start func(*lane) // starts a lane; called with mu held, so that none starts after close

	mu      sync.Mutex
	running map[laneKey]*lane
	closed  bool
}

// laneKey is a queue, and the receiver or sender whose entries a lane processes.
type laneKey struct {
	queue store.Queue
	owner string
}

// lane is the worker of one receiver or sender. One goroutine runs it, and another ends it when it is idle.
type lane struct {
	laneKey
	gate  *receiverGate // only a lane that sends to a receiver uses it
	woken bool          // guarded by lanes.mu: the queue may have got an entry since this was reset
}

// wake starts the lane of a receiver or sender, or makes a running one check its queue again before it ends.
func (l *lanes) wake(q store.Queue, owner string) {
	key := laneKey{q, owner}
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.running[key]; one != nil {
		one.woken = true
	} else if !l.closed {
		one = &lane{laneKey: key}
		l.running[key] = one
		l.start(one)
	}
}

func (l *lanes) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// startLane runs a lane until it is idle, or the workers stop.
func (w *Workers) startLane(one *lane) {
	one.gate = newGate(w.core, one.owner)
	w.running.Go(func() {
		for again := true; again; again = w.lanes.goesOn(one) {
			w.runLane(one)
		}
		one.gate.forget()
		w.dropMetrics(one.queue, one.owner)
	})
}

// runLane runs a lane until it is idle, must restart, or the workers stop.
func (w *Workers) runLane(one *lane) {
	run, restart := context.WithCancel(w.ctx)
	defer restart()
	worker := w.laneWorker(one, restart)
	worker.consumer.InactiveThreshold = consumerIdle
	consuming, stop := context.WithCancel(context.WithoutCancel(w.ctx)) // ends after w.ctx: see receiverGate.stop
	var idle sync.WaitGroup
	idle.Go(func() {
		defer stop()
		w.awaitEnd(run, one)
		one.gate.stop()
	})
	w.consume(consuming, worker)
	idle.Wait()
}

func (w *Workers) laneWorker(one *lane, restart func()) worker {
	switch one.queue {
	case store.FromReceiver:
		return w.fromReceiverAsync(one.owner)
	case store.ToSender:
		return w.toSender(one.owner)
	default:
		return w.toReceiver(one, restart)
	}
}

// awaitEnd returns when nothing has woken a lane for a while and the server has no entry for it. It also returns when run ends, because the lane must
// restart, or because the workers stop, after which none starts.
func (w *Workers) awaitEnd(run context.Context, one *lane) {
	for {
		if watch.Sleep(run, idleAfter) != nil {
			w.lanes.wake(one.queue, one.owner)
			return
		}
		// An entry that is put into the queue after this check wakes the lane again.
		if w.lanes.reset(one) {
			continue
		}
		// This asks the stream, because the consumer may have been deleted with its stream.
		first, err := w.store.First(w.ctx, one.queue, w.store.Filter(one.queue, one.owner))
		if err == nil && first == nil {
			return
		}
	}
}

// reset reports whether a lane was woken since the last call.
func (l *lanes) reset(one *lane) (woken bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	woken, one.woken = one.woken, false
	return woken
}

// goesOn reports whether a lane whose worker has ended must restart. If not, it removes the lane.
func (l *lanes) goesOn(one *lane) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !one.woken || l.closed {
		delete(l.running, one.laneKey)
		return false
	}
	one.woken = false
	return true
}

func (l *lanes) get(q store.Queue, owner string) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running[laneKey{q, owner}]
}

// gate returns the gate of a receiver's lane, or a new one if the receiver has no lane here.
func (w *Workers) gate(receiver string) *receiverGate {
	if one := w.lanes.get(store.ToReceiver, receiver); one != nil {
		return one.gate
	}
	return &receiverGate{w: w.core, name: receiver}
}

// changed is called after each change of the registry.
func (w *Workers) changed(q store.Queue, owner string) {
	if one := w.lanes.get(q, owner); one != nil {
		one.gate.configured()
	}
	w.dropMetrics(q, owner)
}

// dropMetrics removes the metrics of a receiver or sender if it is deleted. It is also called at the end of a lane, because a lane updates metrics
// until then.
func (w *Workers) dropMetrics(q store.Queue, owner string) {
	switch {
	case q == store.ToSender && w.store.Senders.Get(owner).Gone():
		w.Metrics.forget("sender", owner)
	case q != store.ToSender && w.store.Receivers.Get(owner).Gone():
		w.Metrics.forget("receiver", owner)
	}
}

// followQueues wakes the lanes of waiting entries, whichever process enqueued them.
func (w *Workers) followQueues(ctx context.Context) {
	searched := map[store.Queue]time.Time{}
	watch.Every(ctx, followEvery, func() {
		for _, q := range laneQueues {
			if err := w.wakeWaiting(ctx, q, searched); err != nil && ctx.Err() == nil {
				w.log.Info("a queue is looked at again", "queue", q, "error", err)
			}
		}
	})
}

// wakeWaiting wakes the lanes of consumers that have entries. If a queue has more entries than its consumers count, some entries have no consumer:
// their process died before it created one, or the server removed it while no process ran. wakeWaiting then looks for entries of each receiver or
// sender.
func (w *Workers) wakeWaiting(ctx context.Context, q store.Queue, searched map[store.Queue]time.Time) error {
	all, err := w.store.Entries(ctx, q)
	if err != nil || all == 0 {
		return err
	}
	waiting, err := w.store.Backlogs(ctx, q)
	if err != nil {
		return err
	}
	covered := uint64(0)
	for owner, n := range waiting {
		if covered += n; n > 0 {
			w.lanes.wake(q, owner)
		}
	}
	if all <= covered || time.Since(searched[q]) < searchEvery {
		return nil
	}
	for _, owner := range w.store.Owners(q) {
		if w.lanes.get(q, owner.Name) != nil {
			continue
		}
		first, err := w.store.First(ctx, q, w.store.Filter(q, owner.Name))
		if err != nil {
			return err
		}
		if first != nil {
			w.lanes.wake(q, owner.Name)
		}
	}
	searched[q] = time.Now()
	return nil
}
