package worker

import (
	"context"
	"time"
)

// Wait is the error of a message that cannot begin yet. It is tried again after a time, and that is no attempt.
type Wait struct {
	For time.Duration
	Err error // what went wrong; nil: nothing
}

// Error says why.
func (w *Wait) Error() string { return Line("cannot begin: " + deadReason(w.Err)) }

// Refusal is the error of a message that is given up before its handler begins.
type Refusal struct{ Reason string }

// Error is the reason.
func (r *Refusal) Error() string { return r.Reason }

// Is says that no other attempt can succeed.
func (r *Refusal) Is(target error) bool { return target == ErrFinal }

// begin asks whether e may begin. The functions that decide it are the user's.
func (p *Pool[M]) begin(ctx context.Context, e *entry[M]) (end func(), err error) {
	if p.ops.Begin == nil {
		return func() {}, nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = recovered("a function that decides whether a message begins", v)
		}
	}()
	return p.ops.Begin(ctx, e.msg)
}

// hold keeps a message that cannot begin yet, without a worker. In a drain nothing else can begin, so the worker waits and reports true: try again.
// What need not be handled in the drain is handed back.
func (p *Pool[M]) hold(ctx context.Context, s *slot[M], e *entry[M], w *Wait) (again bool) {
	p.ops.Report.Error(w.Err)
	q := &p.queue
	q.mu.Lock()
	last := q.consumer.isLast(e.delivered)
	if !q.stopped {
		p.putBack(s, e, w.For)
		q.mu.Unlock()
		return false
	}
	q.mu.Unlock()
	if last || p.set.DrainBuffered {
		timer := time.NewTimer(w.For)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
		}
	}
	p.giveBack(e)
	return false
}

// giveBack hands back a message that its worker has not begun.
func (p *Pool[M]) giveBack(e *entry[M]) {
	p.queue.mu.Lock()
	p.queue.remove(e)
	consumer := p.queue.consumer
	p.queue.mu.Unlock()
	p.handBack(consumer, e)
}
