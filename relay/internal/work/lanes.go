package work

import (
	"context"
	"sync"
	"time"

	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// idleAfter is how long a lane without work stays.
	idleAfter = 2 * time.Second
	// consumerIdle is how long the server keeps the consumer after the last process has ended its lane.
	consumerIdle = 5 * time.Second
	// followEvery is the interval at which the queues are checked for entries that wait.
	followEvery = 2 * time.Second
	// searchEvery is the interval between searches for entries without a consumer.
	searchEvery = time.Minute
)

// laneQueues are the queues that lanes work on. A message is in the next of them before it leaves the one before.
var laneQueues = []store.Queue{store.ToReceiver, store.FromReceiver, store.ToSender}

// lanes are the workers of receivers and senders. A lane exists while its queue has entries for its receiver or sender. A worker
// that puts an entry into a queue wakes the lane. [lanes.follow] wakes the lanes of entries that other processes, or an earlier
// run of this one, have put there.
type lanes struct {
	w *Workers

	mu      sync.Mutex
	running map[laneKey]*lane
	closed  bool
}

// laneKey is a queue, and the receiver or sender whose entries a lane works on.
type laneKey struct {
	queue store.Queue
	owner string
}

// lane is the worker of one receiver or sender. One goroutine runs it, and another ends it when it is idle.
type lane struct {
	laneKey
	gate *gate // only a lane that sends to a receiver uses it

	// Guarded by lanes.mu.
	woken bool // the queue may have got an entry since this was reset
	end   context.CancelFunc
}

// wake starts the lane of a receiver or sender, or makes it look at its queue again.
func (l *lanes) wake(q store.Queue, owner string) {
	key := laneKey{q, owner}
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.running[key]; one != nil {
		one.woken = true
	} else if !l.closed {
		one = &lane{laneKey: key, gate: newGate(l.w.core, owner)}
		l.running[key] = one
		l.w.running.Go(func() { l.run(one) })
	}
}

// close prevents new lanes.
func (l *lanes) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// run runs a lane until it is idle, or the workers stop.
func (l *lanes) run(one *lane) {
	for again := true; again; again = l.goesOn(one) {
		ctx, end := context.WithCancel(l.w.ctx)
		l.mu.Lock()
		one.end = end
		l.mu.Unlock()
		worker := l.worker(one)
		worker.consumer.InactiveThreshold = consumerIdle
		consuming, stop := context.WithCancel(context.WithoutCancel(ctx)) // ends after ctx: see gate.stop
		var idle sync.WaitGroup
		idle.Go(func() {
			defer stop()
			defer end()
			l.awaitIdle(ctx, one)
			one.gate.stop()
		})
		l.w.consume(consuming, worker)
		idle.Wait()
	}
	one.gate.forget()
	l.dropMetrics(one.queue, one.owner)
}

func (l *lanes) worker(one *lane) worker {
	switch one.queue {
	case store.FromReceiver:
		return l.w.fromReceiverAsync(one.owner)
	case store.ToSender:
		return l.w.toSender(one.owner)
	default:
		return l.w.toReceiver(one)
	}
}

// awaitIdle returns when nothing has woken a lane for a while, and the server has no entry that waits or is in progress.
func (l *lanes) awaitIdle(ctx context.Context, one *lane) {
	for {
		select {
		case <-time.After(idleAfter):
		case <-ctx.Done():
			return
		}
		// An entry that is put into the queue after this check wakes the lane again.
		if l.look(ctx, one) {
			continue
		}
		if n, err := l.w.store.Backlog(ctx, one.queue, one.owner); err == nil && n == 0 {
			return
		}
	}
}

// look reports whether the lane was woken since the last call. If the lane is to end, it leaves the answer to goesOn.
func (l *lanes) look(ctx context.Context, one *lane) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	woken := one.woken
	one.woken = woken && ctx.Err() != nil
	return woken
}

// restart ends a lane and starts it again with the present configuration of its receiver.
func (l *lanes) restart(one *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one.woken = true
	one.end()
}

// goesOn reports whether a lane whose worker has ended begins again. Otherwise it removes the lane.
func (l *lanes) goesOn(one *lane) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one.woken && !l.closed {
		one.woken = false
		return true
	}
	delete(l.running, one.laneKey)
	return false
}

// get returns a lane, or nil.
func (l *lanes) get(q store.Queue, owner string) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running[laneKey{q, owner}]
}

// gate returns the gate of a receiver's lane, or a new one if the receiver has no lane here.
func (l *lanes) gate(receiver string) *gate {
	if one := l.get(store.ToReceiver, receiver); one != nil {
		return one.gate
	}
	return &gate{w: l.w.core, name: receiver}
}

// changed is called after each change of the registry.
func (l *lanes) changed(q store.Queue, owner string) {
	if one := l.get(q, owner); one != nil {
		one.gate.configured()
	}
	l.dropMetrics(q, owner)
}

// dropMetrics removes the metrics of a receiver or sender if it is deleted. It is also called at the end of a lane, since a lane
// counts until then.
func (l *lanes) dropMetrics(q store.Queue, owner string) {
	if q == store.ToSender {
		if s, known := l.w.store.Senders.Get(owner); !known || s.Deleted {
			l.w.cfg.Metrics.forget("sender", owner)
		}
	} else if r, known := l.w.store.Receivers.Get(owner); !known || r.Deleted {
		l.w.cfg.Metrics.forget("receiver", owner)
	}
}

// follow wakes the lanes of entries that wait, whichever process has put them there.
func (l *lanes) follow(ctx context.Context) {
	searched := map[store.Queue]time.Time{}
	watch.Every(ctx, followEvery, func() {
		for _, q := range laneQueues {
			if err := l.wakeWaiting(ctx, q, searched); err != nil && ctx.Err() == nil {
				l.w.log.Info("a queue is looked at again", "queue", q, "error", err)
			}
		}
	})
}

// wakeWaiting wakes the lanes of consumers that have entries. If a queue has more entries than its consumers count, some entries
// have no consumer: their process died before it created one, or the server removed it while no process ran. They are searched
// for by receiver.
func (l *lanes) wakeWaiting(ctx context.Context, q store.Queue, searched map[store.Queue]time.Time) error {
	all, err := l.w.store.Entries(ctx, q)
	if err != nil || all == 0 {
		return err
	}
	waiting, err := l.w.store.Backlogs(ctx, q)
	if err != nil {
		return err
	}
	covered := uint64(0)
	for owner, n := range waiting {
		if covered += n; n > 0 {
			l.wake(q, owner)
		}
	}
	if all <= covered || time.Since(searched[q]) < searchEvery {
		return nil
	}
	for _, owner := range l.owners(q) {
		if l.get(q, owner) != nil {
			continue
		}
		first, err := l.w.store.First(ctx, q, l.w.store.Filter(q, owner))
		if err != nil {
			return err
		}
		if first != nil {
			l.wake(q, owner)
		}
	}
	searched[q] = time.Now()
	return nil
}

// owners returns the receivers or senders for which a queue may have entries.
func (l *lanes) owners(q store.Queue) (names []string) {
	if q == store.ToSender {
		for _, s := range l.w.store.Senders.All() {
			names = append(names, s.Name)
		}
		return names
	}
	for _, r := range l.w.store.Receivers.All() {
		names = append(names, r.Name)
	}
	return names
}
