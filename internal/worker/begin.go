package worker

import (
	"context"
	"fmt"
	"time"
)

// Wait is the error of a message that cannot begin yet. It is tried again, and that is no attempt.
type Wait struct {
	Until func(context.Context) // returns when it is to be tried again, and when the context ends
	Err   error                 // what went wrong; nil: nothing
}

// For is the Until of a message that is tried again after a time.
func For(d time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// Error says why.
func (w *Wait) Error() string { return fmt.Sprintf("cannot begin yet: %v", w.Err) }

// Unwrap returns Err.
func (w *Wait) Unwrap() error { return w.Err }

// Refusal is the error of a message that is given up before its handler begins.
type Refusal struct{ Reason string }

// Error is the reason.
func (r *Refusal) Error() string { return r.Reason }

// Is says that no other attempt can succeed.
func (r *Refusal) Is(target error) bool { return target == ErrFinal }

// begin asks whether e may begin, and returns the context of its handler. The functions that decide it are the user's.
func (p *Pool[M]) begin(ctx context.Context, e *entry[M]) (begun context.Context, end func(), err error) {
	if p.ops.Begin == nil {
		return ctx, nil, nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = recovered("a function that decides whether a message begins", v)
		}
	}()
	return p.ops.Begin(ctx, e.msg)
}

// hold keeps a message that cannot begin yet, without a worker. In a drain nothing else can begin, so the worker waits and reports true: try again.
// A message that need not be handled in the drain is handed back.
func (p *Pool[M]) hold(ctx context.Context, s *slot[M], e *entry[M], w *Wait) (again bool) {
	p.ops.Report.Error(w.Err)
	q := &p.queue
	q.mu.Lock()
	last := q.consumer.isLast(e.delivered)
	if !q.stopped {
		p.putBack(s, e)
		e.waits = w
		p.workers.Go(func() { p.wakeAfter(e, w) })
		q.mu.Unlock()
		return false
	}
	q.mu.Unlock()
	if last || p.set.DrainBuffered {
		if w.Until(ctx); ctx.Err() == nil {
			return true
		}
	}
	p.giveBack(e)
	return false
}

// wakeAfter makes a message ready when it can be tried again, unless the call has ended.
func (p *Pool[M]) wakeAfter(e *entry[M], w *Wait) {
	w.Until(p.open)
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	if e.waits == w {
		e.waits = nil
		p.queue.wake(e)
	}
}

// giveBack hands back a message that its worker has not begun.
func (p *Pool[M]) giveBack(e *entry[M]) {
	p.queue.mu.Lock()
	p.queue.remove(e)
	consumer := p.queue.consumer
	p.queue.mu.Unlock()
	p.handBack(consumer, e)
}
