package worker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// DrainGrace is how long after DrainTimeout a call waits for handlers whose context it has cancelled.
const DrainGrace = time.Second

// Run handles messages until ctx or the call ends, and drains. It returns an error if the drain timed out.
func (p *Pool[M]) Run(ctx context.Context) error {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	q := &p.queue
	q.mu.Lock()
	q.begin = func(s *slot[M]) { p.workers.Go(func() { p.work(ctx, work, s) }) }
	q.started = 1
	q.begin(&q.slots[0])
	q.mu.Unlock()
	var err error
	select {
	case <-ctx.Done():
	case <-p.ended:
		err = p.err
	}
	p.End(err)
	done := make(chan struct{})
	go func() {
		p.workers.Wait()
		close(done)
	}()
	if errors.Is(p.err, ErrReconfigured) { // handlers are not cancelled for that
		select {
		case <-done:
		case <-ctx.Done():
			p.endedAt = p.ops.Now()
		case <-p.ops.Over.Done():
			p.err, p.endedAt = context.Cause(p.ops.Over), p.ops.Now()
		}
	}
	return p.drain(done, cancel)
}

// drain waits until the running handlers are done, and cancels them after DrainTimeout. Its error counts them, those that go on
// although they are cancelled, and the messages that were not settled or not started.
func (p *Pool[M]) drain(done <-chan struct{}, cancel context.CancelFunc) error {
	timer := time.NewTimer(p.set.DrainTimeout)
	defer timer.Stop()
	select {
	case <-done: // messages behind a parked one, or left by StopAfter, are handed back
		p.handBackUnstarted()
		return nil
	case <-timer.C:
	}
	unstarted, unsettled := p.handBackUnstarted()
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
	return fmt.Errorf("%d handlers ran for more than %v after the end and were cancelled, and %d of them go on; %d messages were left unsettled; %d messages at their last delivery, or to be drained, were not handled",
		running, p.set.DrainTimeout, left, unsettled, unstarted)
}

// handBackUnstarted hands back the messages that no worker has begun. It returns their number, and how many are parked.
func (p *Pool[M]) handBackUnstarted() (unstarted, parked int) {
	p.queue.mu.Lock()
	back, parked := p.queue.unstarted(func(*entry[M]) bool { return false }), p.queue.parked
	p.queue.mu.Unlock()
	p.handBackAll(back)
	return len(back), parked
}

// Quota is how many messages StopAfter leaves to be handled.
func (p *Pool[M]) Quota() int {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	return max(0, p.queue.quota.left)
}

// Left is the rest of DrainTimeout and its grace.
func (p *Pool[M]) Left() time.Duration {
	return max(time.Millisecond, p.endedAt+p.set.DrainTimeout+DrainGrace-p.ops.Now())
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

// work handles messages until the queue is stopped and empty. If a handler ends its goroutine (runtime.Goexit),
// another takes the worker's place.
func (p *Pool[M]) work(callCtx, ctx context.Context, s *slot[M]) {
	clean := false
	defer func() {
		if !clean {
			p.workers.Go(func() { p.work(callCtx, ctx, s) })
		}
	}()
	for {
		if callCtx.Err() != nil {
			p.End(nil) // no message is begun after the end of ctx
		}
		e := p.queue.next(s)
		if e == nil {
			clean = true
			p.End(nil)
			return
		}
		p.handle(ctx, s, e)
	}
}

// Next returns the next message for a caller that settles it itself. The last one counts as handled. It
// reports false when the call has ended.
func (p *Pool[M]) Next(ctx context.Context) (m M, ok bool) {
	if ctx.Err() != nil {
		p.End(nil)
	}
	if e := p.queue.next(&p.queue.slots[0]); e != nil {
		return e.msg, true
	}
	return m, false
}
