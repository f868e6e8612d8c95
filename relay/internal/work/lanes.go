package work

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// idleAfter is how long a lane stays that has nothing to do.
	idleAfter = 2 * time.Second
	// consumerIdle is how long the server keeps the consumer of a lane that has ended everywhere.
	consumerIdle = 5 * time.Second
)

// laneQueues are the queues whose entries lanes work on. An entry that moves on is in the next of them before it leaves the one
// before.
var laneQueues = []store.Queue{store.ToReceiver, store.FromReceiver, store.ToSender}

// lanes are the workers of receivers and senders. A lane is there while its queue has something for its receiver or sender: who
// puts an entry into a queue wakes the lane, and [Workers.followQueues] wakes those of entries that other processes, or an earlier run of
// this one, have put there.
type lanes struct {
	w *Workers

	mu      sync.Mutex
	running map[laneKey]*lane
	closed  bool
}

// laneKey is a queue, and the receiver or sender whose entries in it a lane works on.
type laneKey struct {
	queue store.Queue
	owner string
}

// lane is the worker of one receiver or sender. Its goroutine runs it, and ends it when it is idle.
type lane struct {
	laneKey

	busy    atomic.Int64  // handlers that run
	handled atomic.Uint64 // handlers that have ended

	// Guarded by lanes.mu.
	woken bool   // the queue may have got an entry since this was reset
	mode  string // the part of the configuration that its consumer was started with
	end   context.CancelFunc
}

// wake has a lane work on what the queue has for a receiver or sender.
func (l *lanes) wake(q store.Queue, owner string) {
	key := laneKey{q, owner}
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.running[key]; one != nil {
		one.woken = true
	} else if !l.closed {
		one = &lane{laneKey: key}
		l.running[key] = one
		l.w.running.Go(func() { l.run(one) })
	}
}

// close lets no lane start any more.
func (l *lanes) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// run works until there is nothing to do, or the workers stop.
func (l *lanes) run(one *lane) {
	for again := true; again; again = l.goesOn(one) {
		ctx, end := context.WithCancel(l.w.ctx)
		worker := l.begin(one, end)
		var idle sync.WaitGroup
		idle.Go(func() {
			defer end()
			l.awaitIdle(ctx, one)
		})
		l.w.consume(ctx, worker, false)
		idle.Wait()
	}
}

// begin makes the worker of a lane as its receiver is configured now.
func (l *lanes) begin(one *lane, end context.CancelFunc) worker {
	// Not without the lock: a change of the configuration is in what is read here, or reconfigured finds the mode that it was read in.
	l.mu.Lock()
	defer l.mu.Unlock()
	worker := l.worker(one.laneKey)
	worker.consumer.InactiveThreshold = consumerIdle
	handle := worker.handle
	worker.handle = func(ctx context.Context, m *jetpull.Msg) error {
		one.busy.Add(1)
		defer one.handled.Add(1)
		defer one.busy.Add(-1)
		return handle(ctx, m)
	}
	one.mode, one.end = worker.mode, end
	return worker
}

func (l *lanes) worker(key laneKey) worker {
	switch key.queue {
	case store.FromReceiver:
		return l.w.fromReceiverAsync(key.owner)
	case store.ToSender:
		return l.w.toSender(key.owner)
	default:
		return l.w.toReceiver(key.owner)
	}
}

// awaitIdle returns when a lane has had nothing to do for a while, and the server says that nothing waits for it.
func (l *lanes) awaitIdle(ctx context.Context, one *lane) {
	every := time.NewTicker(idleAfter)
	defer every.Stop()
	for handled := uint64(0); ; {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		before := handled
		handled = one.handled.Load()
		// What is put into the queue after this wakes the lane again.
		if woken := l.look(one); woken || handled != before || one.busy.Load() > 0 {
			continue
		}
		if n, err := l.w.store.Backlog(ctx, one.queue, one.owner); err == nil && n == 0 {
			return
		}
	}
}

// look reports whether a lane was woken since the last look.
func (l *lanes) look(one *lane) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	woken := one.woken
	one.woken = false
	return woken
}

// goesOn reports whether a lane whose worker has ended begins again. If not, the lane is gone.
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

// reconfigured has the lanes begin again whose receivers are to be worked on in another mode.
func (l *lanes) reconfigured() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, one := range l.running {
		if key.queue != store.ToReceiver || one.end == nil {
			continue
		}
		if r, ok := l.w.store.Receiver(key.owner); ok && string(r.Order) != one.mode {
			one.woken = true
			one.end()
		}
	}
}

// runs reports whether there is a lane.
func (l *lanes) runs(q store.Queue, owner string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running[laneKey{q, owner}] != nil
}

// dropGates forgets the gates that have no lane and know nothing, or whose receiver was deleted.
func (l *lanes) dropGates() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	for name, g := range l.w.gates {
		r, known := l.w.store.Receiver(name)
		if l.running[laneKey{store.ToReceiver, name}] == nil && (!known || r.Deleted || g.knowsNothing(time.Now())) {
			delete(l.w.gates, name)
		}
	}
}
