package worker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Verdict is what the error of a handler asks for. The zero Verdict means a retry after a delay of the call.
type Verdict struct {
	Terminate bool // the message is never delivered again, for the Reason
	Reason    string
	Retry     bool // the message is handled again After its own delay
	After     time.Duration
}

// handle runs the handler for those of a worker's messages that may begin, and settles each message by its own result.
func (p *Pool[M]) handle(s *slot[M]) {
	ctx := p.handlers // a batch has one context: its end for one message is its end for all
	for _, check := range p.ops.Checks {
		for _, e := range s.es {
			if e.begins() {
				ctx = p.ask(ctx, e, check)
			}
		}
	}
	for _, e := range s.es {
		if e.begins() {
			s.ms = append(s.ms, e.msg)
		}
	}
	if len(s.ms) > 0 {
		p.call(ctx, s)
	} else {
		p.settle(s, nil)
	}
}

// ask asks one of Ops.Checks whether e may begin, and returns the context of the handler. If e must wait, it is held without a worker. At the end of
// the call it is handed back, unless the drain must handle it.
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
	wait, ok := errors.AsType[*Wait](err)
	if !ok {
		e.err = err
		return ctx
	}
	p.ops.Report.Error(wait.Err)
	if !p.wait(e, wait, false) {
		e.back = true
		p.handBack(e)
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

// begins reports whether the message of a worker may begin, as far as is known.
func (e *entry[M]) begins() bool { return e != nil && e.err == nil && !e.back }

// call calls the handler, and then settle with the result, even if the handler panics or ends its goroutine. A handler that has run for
// HandlerTimeout has failed, whatever it returns.
func (p *Pool[M]) call(ctx context.Context, s *slot[M]) {
	cancel := func() {}
	if d := p.set.HandlerTimeout; d > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, d, fmt.Errorf("%w: it is %v", ErrHandlerTimeout, d))
	}
	err := errGoexit
	defer func() {
		if v := recover(); v != nil {
			err = recovered("the handler", v)
		}
		if cause := context.Cause(ctx); errors.Is(cause, ErrHandlerTimeout) {
			err = cause
		}
		cancel()
		p.settle(s, Readable(err))
	}()
	err = p.ops.Handle(ctx, s.ms)
}

// settle settles the messages of a worker whose handler has returned err. It settles failed messages last, because dead letters can take long.
func (p *Pool[M]) settle(s *slot[M], err error) {
	for _, e := range s.es {
		if !e.begins() {
			continue
		}
		if e.end != nil {
			e.end()
		}
		if e.err = err; p.ops.Failure != nil {
			e.err = Readable(p.ops.Failure(err, e.msg))
		}
		if e.err == nil {
			p.conclude(e, nil)
		}
	}
	p.confirm(s)
	for _, e := range s.es {
		if e != nil && e.err != nil {
			p.conclude(e, e.err)
		}
	}
}

// conclude settles a message by its handler's result, unless the handler has settled it.
func (p *Pool[M]) conclude(e *entry[M], err error) {
	how, settled := p.ops.Settled(e.msg), "settled already"
	if p.ackNone {
		settled = "not redelivered: ack policy none"
	}
	if err != nil && (p.ackNone || how != Undecided) {
		p.ops.Report.Failed(e.id.Seq, err, false, settled)
	}
	switch {
	case p.ackNone:
	case how == Naked:
		p.release(e) // before its redelivery arrives: see known
	case how != Undecided:
		e.how = how
	case err != nil:
		p.fail(e, err)
	case p.set.ManualAck:
		p.park(e)
	default:
		p.acknowledge(e)
	}
}

// fail settles a message whose handler failed.
func (p *Pool[M]) fail(e *entry[M], err error) {
	q, verdict := &p.queue, p.ops.Verdict(err)
	if !verdict.Terminate {
		if p.cancelled(err) { // before the call of Fresh, in which the call can end
			p.ops.Report.Failed(e.id.Seq, err, false, HandedBack)
			p.handBack(e)
			return
		}
		q.mu.Lock()
		e.failed = true
		q.mu.Unlock()
		p.check() // the handler may have taken nearly all of AckWait, without KeepAlive
		p.ops.Fresh(p.handlers)
	}
	q.mu.Lock()
	consumer := q.consumer
	try := attempt{int(e.delivered) + e.retries, err, consumer.Alone && p.ops.Key != nil}
	if try.alone { // earlier deliveries went to a former owner or were handed back: perhaps no handler had them
		try.number -= max(0, int(e.first)-1)
	}
	q.mu.Unlock()
	if verdict.Terminate {
		p.terminate(e, try, TermSent, verdict.Reason)
		return
	}
	limit := p.set.MaxAttempts
	if limit == 0 && p.ops.Key != nil {
		limit = int(consumer.MaxDeliver) // the server's count does not grow with retries in place
	}
	delay := p.delay(consumer, try.number)
	if errors.Is(err, ErrFinal) || limit > 0 && (try.number >= limit || p.isLast(e)) {
		p.giveUp(e, try, max(deadLetterPause, delay))
		return
	}
	if verdict.Retry {
		delay = verdict.After
	}
	p.again(e, try, delay)
}

// cancelled reports whether a handler's error follows from the end of its call, which has cancelled the handlers' context. Such an error is not an
// attempt, so MaxAttempts, events, counters and dead letters ignore it. Errors of HandlerTimeout, and errors that match ErrFinal, count as attempts
// nevertheless.
func (p *Pool[M]) cancelled(err error) bool {
	return p.handlers.Err() != nil && !errors.Is(err, ErrHandlerTimeout) && !errors.Is(err, ErrFinal)
}
