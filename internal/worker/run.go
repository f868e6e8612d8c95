package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// New returns an empty pool.
func New[M any](ops Ops[M], set Settings, consumer Consumer) *Pool[M] {
	p := &Pool[M]{ops: ops, set: set, ackNone: consumer.AckNone}
	p.open, p.closing = context.WithCancel(context.Background())
	p.keyless.Start = ops.Report.Notifier.Start
	q := &p.queue
	q.ops, q.some.L = &p.ops, &q.mu
	q.lines, q.slots = map[string]*line[M]{}, make([]slot[M], set.Workers)
	q.started = len(q.slots)
	q.held.prev, q.held.next = &q.held, &q.held
	q.quota, q.batch = cmp.Or(set.StopAfter, math.MaxInt), set.Batch
	q.window = window{fixed: set.Prefetch, workers: set.Workers * max(1, set.Batch), bytes: set.PrefetchBytes}
	p.Follow(consumer)
	q.window.restart()
	if set.Workers > 1 && ops.Handle != nil {
		p.acks = newAckBatch(ops.Ack, ops.Report.Error)
	}
	p.timer = time.AfterFunc(time.Hour, p.check)
	p.timer.Stop()
	return p
}

// Follow applies another configuration of the consumer, also to the messages that the pool holds, as the server does.
func (p *Pool[M]) Follow(c Consumer) {
	q := &p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.consumer = c
	q.window.bound, q.window.waitMost = c.WindowMost, c.Shortest/4
	q.window.fit()
	if q.n > 0 {
		p.checkWithin(p.ops.Now(), 0)
	}
}

// DrainGrace is how long after DrainTimeout a call waits for handlers whose context it has cancelled.
const DrainGrace = time.Second

// Run handles messages until ctx or the call ends, and drains. It returns an error if the drain timed out.
func (p *Pool[M]) Run(ctx context.Context) error {
	var cancel context.CancelFunc
	p.handlers, cancel = context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	q := &p.queue
	q.mu.Lock()
	q.begin = func(s *slot[M]) { p.workers.Go(func() { p.work(ctx, s) }) }
	q.started = 1
	q.begin(&q.slots[0])
	q.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-p.open.Done():
	}
	p.End(nil)
	done := make(chan struct{})
	go func() {
		p.workers.Wait()
		close(done)
	}()
	if errors.Is(p.err, ErrReconfigured) { // which does not cancel handlers
		select {
		case <-done:
		case <-ctx.Done():
		case <-p.ops.Over.Done():
		}
		p.endedAt = p.ops.Now()
	}
	return p.drain(done, cancel)
}

// drain waits until the running handlers have returned, and cancels them after DrainTimeout. Its error counts the cancelled handlers,
// those that continue nevertheless, and the messages that were not settled or not started.
func (p *Pool[M]) drain(done <-chan struct{}, cancel context.CancelFunc) error {
	none := func(*entry[M]) bool { return false }
	timer := time.NewTimer(p.set.DrainTimeout)
	defer timer.Stop()
	select {
	case <-done: // messages behind a parked one, or left by StopAfter, are handed back
		p.handBackUnstarted(none)
		return nil
	case <-timer.C:
	}
	unstarted, unsettled := p.handBackUnstarted(none)
	_, running, _ := p.Size()
	left := 0
	cancel()
	if running+unstarted+unsettled == 0 {
		return nil
	}
	if running > 0 {
		timer.Reset(DrainGrace * 19 / 20)
		select {
		case <-done:
		case <-timer.C:
			_, left, _ = p.Size()
		}
	}
	return fmt.Errorf("%d handlers ran for more than %v after the end and were cancelled, and %d of them go on; %d messages were left unsettled; %d "+
		"messages at their last delivery, or to be drained, were not handled",
		running, p.set.DrainTimeout, left, unsettled, unstarted)
}

// Quota returns how many more messages StopAfter allows.
func (p *Pool[M]) Quota() int {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	return max(0, p.queue.quota)
}

// Left returns the rest of DrainTimeout and DrainGrace, at least 1 ms.
func (p *Pool[M]) Left() time.Duration {
	return max(time.Millisecond, p.endedAt+p.set.DrainTimeout+DrainGrace-p.ops.Now())
}

// Next returns the next message for a caller that settles it itself. The message before counts as handled. Next
// reports false when the call has ended.
func (p *Pool[M]) Next(ctx context.Context) (m M, ok bool) {
	if s := &p.queue.slots[0]; p.fill(ctx, s) {
		return s.es[0].msg, true
	}
	p.End(nil)
	return m, false
}

// work handles messages until the queue is stopped and empty. If a handler ends its goroutine (runtime.Goexit), another goroutine
// replaces it.
func (p *Pool[M]) work(ctx context.Context, s *slot[M]) {
	clean := false
	defer func() {
		if !clean {
			p.workers.Go(func() { p.work(ctx, s) })
		}
	}()
	for p.fill(ctx, s) {
		p.handle(s)
	}
	clean = true
	p.End(nil)
}

// fill gives a worker its next message or batch. A batch is complete when it is full, when its first message has waited for BatchDelay, or when there
// are no more messages. fill reports false if there is no message. No message begins after the end of ctx, the call's context.
func (p *Pool[M]) fill(ctx context.Context, s *slot[M]) bool {
	if ctx.Err() != nil {
		p.End(nil)
	}
	e := p.queue.next(s, 0)
	for first := e; e != nil && len(s.es) < p.set.Batch; {
		e = p.queue.next(s, max(1, first.arrived+p.set.BatchDelay))
	}
	return len(s.es) > 0
}

// Close ends the pool. Messages that are still handled are settled by their workers.
func (p *Pool[M]) Close() {
	p.End(nil)
	p.abandon()
	p.timer.Stop()
	if p.acks != nil {
		p.acks.close()
	}
}
