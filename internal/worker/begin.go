package worker

import (
	"context"
	"errors"
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

// ask asks whether e may begin, by one of Ops.Checks, and returns the context of its handler. One that has to wait is held, without a worker.
func (p *Pool[M]) ask(ctx context.Context, e *entry[M], may Check[M]) context.Context {
	checked, end, err := decide(ctx, e.msg, may)
	if err == nil {
		if before := e.end; before == nil {
			e.end = end
		} else if end != nil {
			e.end = func() { end(); before() }
		}
		return checked
	}
	if e.end != nil {
		e.end()
	}
	if wait, ok := errors.AsType[*Wait](err); ok {
		p.hold(e, wait)
	} else {
		e.err = err
	}
	return ctx
}

// decide calls a check, and makes an error of a panic: the functions that decide whether a message begins are the user's.
func decide[M any](ctx context.Context, m M, may Check[M]) (checked context.Context, end func(), err error) {
	defer func() {
		if v := recover(); v != nil {
			err = recovered("a function that decides whether a message begins", v)
		}
	}()
	return may(ctx, m)
}

// hold keeps a message that cannot begin yet, without a worker. At the end of the call it is handed back, unless it has to be handled in the drain.
func (p *Pool[M]) hold(e *entry[M], w *Wait) {
	p.ops.Report.Error(w.Err)
	q, until := &p.queue, p.open
	q.mu.Lock()
	if q.stopped {
		until = p.handlers
		if until.Err() != nil || !p.set.DrainBuffered && !q.consumer.isLast(e.delivered) {
			q.mu.Unlock()
			p.giveBack(e)
			return
		}
	}
	q.putBack(e)
	e.waits = w
	q.waits++
	p.workers.Go(func() { p.wakeAfter(until, e, w) })
	q.mu.Unlock()
}

// wakeAfter makes a message ready when it can be tried again, unless it was handed back meanwhile.
func (p *Pool[M]) wakeAfter(until context.Context, e *entry[M], w *Wait) {
	w.Until(until)
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	if e.waits == w {
		e.waits = nil
		p.queue.waits--
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
