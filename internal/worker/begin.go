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

// begin asks whether e may begin. It returns what is called when the handler has returned.
func (p *Pool[M]) begin(ctx context.Context, e *entry[M]) (end func(), err error) {
	if p.ops.Begin == nil {
		return nil, nil
	}
	defer recoverBegin(&err)
	return p.ops.Begin(ctx, e.msg)
}

// admit asks whether the handler of e, for which begin has returned before, may begin now. It returns the handler's context, and what is called when
// that has returned.
func (p *Pool[M]) admit(ctx context.Context, e *entry[M], before func()) (admitted context.Context, end func(), err error) {
	if p.ops.Admit == nil {
		return ctx, before, nil
	}
	admitted, done, err := p.ask(ctx, e)
	if before == nil { // or else each message would have a function of its own
		return admitted, done, err
	}
	if err != nil {
		before()
		return nil, nil, err
	}
	return admitted, func() { done(); before() }, nil
}

func (p *Pool[M]) ask(ctx context.Context, e *entry[M]) (admitted context.Context, end func(), err error) {
	defer recoverBegin(&err)
	return p.ops.Admit(ctx, e.msg)
}

// recoverBegin makes an error of a panic: the functions that decide whether a message begins are the user's.
func recoverBegin(err *error) {
	if v := recover(); v != nil {
		*err = recovered("a function that decides whether a message begins", v)
	}
}

// hold keeps a message that cannot begin yet, without a worker. At the end of the call it is handed back, unless it has to be handled in the drain.
func (p *Pool[M]) hold(ctx context.Context, s *slot[M], e *entry[M], w *Wait) {
	p.ops.Report.Error(w.Err)
	q, until := &p.queue, p.open
	q.mu.Lock()
	if q.stopped {
		until = ctx
		if ctx.Err() != nil || !p.set.DrainBuffered && !q.consumer.isLast(e.delivered) {
			q.mu.Unlock()
			p.giveBack(e)
			return
		}
	}
	p.putBack(s, e)
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
