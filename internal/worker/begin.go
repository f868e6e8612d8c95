package worker

import (
	"context"
	"errors"
)

// ask asks one of Ops.Checks whether e may begin, and returns the context of the handler. If e must wait, it is held without a worker.
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

// decide calls a check, and returns a panic as an error, because checks call functions of the user.
func decide[M any](ctx context.Context, m M, may Check[M]) (checked context.Context, end func(), err error) {
	defer func() {
		if v := recover(); v != nil {
			err = recovered("a function that decides whether a message begins", v)
		}
	}()
	return may(ctx, m)
}

// hold keeps a message that cannot begin yet, without a worker. At the end of the call it hands the message back, unless the drain must handle it.
func (p *Pool[M]) hold(e *entry[M], w *Wait) {
	p.ops.Report.Error(w.Err)
	q, until := &p.queue, p.open
	q.mu.Lock()
	if q.stopped {
		until = p.handlers
		if until.Err() != nil || !p.set.DrainBuffered && !q.consumer.isLast(e.delivered) {
			q.mu.Unlock()
			e.back = true
			p.giveBack(e)
			return
		}
	}
	p.wait(until, e, w)
	q.mu.Unlock()
}
