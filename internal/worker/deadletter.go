package worker

import (
	"context"
	"fmt"
	"time"
)

// buryAgain is how long after a failed try for a dead letter the next one follows, at first; it doubles up to
// buryLast.
const (
	buryAgain = time.Second
	buryLast  = 10 * time.Second
)

// giveUp ends a message that has failed for the last time. With a dead letter the original is terminated only
// when the copy is stored; until then it is retried. The last delivery that MaxDeliver allows cannot be had
// again, so there the worker tries until the copy is stored or the drain ends: a stream of dead letters that is
// down stops the call.
func (p *Pool[M]) giveUp(ctx context.Context, s *slot[M], e *entry[M], a attempt) {
	reason := deadReason(a.err)
	if p.ops.Bury == nil {
		p.terminate(e, a.number, reason)
		p.event(e.msg, a, WasTerminated, 0)
		return
	}
	err := p.bury(ctx, e, a.number, reason)
	if err != nil && a.last {
		err = p.insist(ctx, e, a.number, reason)
	}
	delay := max(buryAgain, p.delay(p.terms(), a.number))
	switch {
	case err == nil:
		p.terminate(e, a.number, reason)
		p.event(e.msg, a, WasDeadLettered, 0)
	case a.last:
		p.ops.Report.Unburied(e.id.Seq, err)
		m := e.msg
		p.check(p.ops.Nak(p.release(e), delay))
		p.event(m, a, WasHandedBack, delay)
	default:
		p.again(s, e, delay, a)
	}
}

// terminate ends a message for good.
func (p *Pool[M]) terminate(e *entry[M], attempts int, reason string) {
	e.outcome = Terminated
	p.check(p.ops.Term(e.msg, fmt.Sprintf("failed %d times: %s", attempts, reason)))
}

func (p *Pool[M]) bury(ctx context.Context, e *entry[M], attempts int, reason string) error {
	err := p.ops.Bury(ctx, e.msg, reason, attempts)
	p.ops.Report.DeadLetter(e.id.Seq, err)
	return err
}

// insist tries for a dead letter until it is stored, ctx ends, which is that of handlers, or the connection is
// closed for good. The message is kept in progress meanwhile.
func (p *Pool[M]) insist(ctx context.Context, e *entry[M], attempts int, reason string) error {
	p.setInsists(e, true)
	defer p.setInsists(e, false)
	ended := p.ended
	for wait := buryAgain; ; wait = min(2*wait, buryLast) {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ended:
			ended, wait = nil, buryAgain/2 // there is no time to lose
		case <-p.ops.CutOff:
		case <-ctx.Done():
		}
		timer.Stop()
		err := p.bury(ctx, e, attempts, reason)
		if err == nil || ctx.Err() != nil || p.cutOff() {
			return err
		}
	}
}

func (p *Pool[M]) cutOff() bool {
	select {
	case <-p.ops.CutOff:
		return true
	default:
		return false
	}
}

func (p *Pool[M]) setInsists(e *entry[M], on bool) {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	e.insists = on
}
