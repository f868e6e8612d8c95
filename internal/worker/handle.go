package worker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Verdict is what the error of a handler asks for. Without any, the message is handled again after a delay of the call's.
type Verdict struct {
	Terminate bool // the message is never delivered again, for the Reason
	Reason    string
	Retry     bool // the message is handled again After a time of its own
	After     time.Duration
}

// handle runs the handler for e, and settles e by the result.
func (p *Pool[M]) handle(ctx context.Context, s *slot[M], e *entry[M]) {
	begun := ctx
	end, err := p.begin(ctx, e)
	if err == nil {
		begun, end, err = p.admit(ctx, e, end)
	}
	if wait, ok := errors.AsType[*Wait](err); ok {
		p.hold(ctx, s, e, wait)
		return
	}
	if err != nil {
		p.conclude(ctx, s, e, err)
		return
	}
	p.call(begun, func(ctx context.Context) error { return p.ops.Handle(ctx, e.msg) }, func(err error) {
		if end != nil {
			end()
		}
		p.conclude(ctx, s, e, err)
	})
}

// call calls a handler, and then with its result, even if the handler panics or ends its goroutine. A handler that has run for HandlerTimeout
// has failed, whatever it returns.
func (p *Pool[M]) call(ctx context.Context, handler func(context.Context) error, then func(error)) {
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
		if err != nil {
			err = readable(err)
		}
		then(err)
	}()
	err = handler(ctx)
}

// conclude settles a message by its handler's result, unless the handler has settled it.
func (p *Pool[M]) conclude(ctx context.Context, s *slot[M], e *entry[M], err error) {
	how, settled := p.ops.Settled(e.msg), "settled already"
	if p.ackNone {
		settled = "not redelivered: ack policy none"
	}
	if err != nil && (p.ackNone || how != Undecided) {
		p.ops.Report.Failed(e.id.Seq, err, settled, false)
	}
	switch {
	case p.ackNone:
	case how == Naked:
		p.removeEntry(e) // before its redelivery comes: see known
	case how != Undecided:
		e.how = how
	case err != nil:
		p.fail(ctx, s, e, err)
	case p.set.ManualAck:
		p.park(s, e)
	default:
		p.acknowledge(e)
	}
}

// fail settles a message whose handler failed.
func (p *Pool[M]) fail(ctx context.Context, s *slot[M], e *entry[M], err error) {
	byEnd, verdict := cancelled(ctx, err), p.ops.Verdict(err) // before the reading, which the end can overtake
	if p.ops.Fresh != nil && !byEnd && !verdict.Terminate {
		p.ops.Fresh(ctx)
	}
	q := &p.queue
	q.mu.Lock()
	consumer := q.consumer
	try := attempt{int(e.delivered) + e.retries, err, consumer.Alone && p.ops.Key != nil}
	if try.alone { // deliveries before were taken over or handed back: no handler may have seen them
		try.number -= max(0, int(e.first)-1)
	}
	q.mu.Unlock()
	if verdict.Terminate {
		p.terminate(e, try, TermSent, verdict.Reason)
		return
	}
	if byEnd {
		p.ops.Report.Failed(e.id.Seq, err, "cancelled by the end, and handed back", false)
		p.giveBack(e)
		return
	}
	limit := p.set.MaxAttempts
	if limit == 0 && p.ops.Key != nil {
		limit = int(consumer.MaxDeliver) // the server's count does not grow with retries in place
	}
	delay := p.delay(consumer, try.number)
	if errors.Is(err, ErrFinal) || limit > 0 && (try.number >= limit || p.isLast(e)) {
		p.giveUp(ctx, s, e, try, max(deadLetterPause, delay))
		return
	}
	if verdict.Retry {
		delay = verdict.After
	}
	p.again(s, e, try, delay)
}

// cancelled reports whether a handler's error follows from the end of its call, which has cancelled ctx. Such an error is no attempt, so MaxAttempts,
// events, counters and dead letters do not see it. The handler's own time limit, and an error that says that no attempt can succeed, count.
func cancelled(ctx context.Context, err error) bool {
	return ctx.Err() != nil && !errors.Is(err, ErrHandlerTimeout) && !errors.Is(err, ErrFinal)
}
