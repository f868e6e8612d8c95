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
func (p *Pool[M]) giveUp(ctx context.Context, s *slot[M], e *entry[M], try attempt, delay time.Duration) {
	reason := deadReason(try.err)
	why := fmt.Sprintf("failed %d times: %s", try.number, reason)
	if p.ops.Bury == nil {
		p.terminate(e, try, TermSent, why)
		return
	}
	err := p.bury(ctx, e, try.number, reason)
	if err != nil && try.last {
		err = p.insist(ctx, e, try.number, reason)
	}
	switch {
	case err == nil:
		p.terminate(e, try, DeadLettered, why)
	case try.last:
		p.ops.Report.Error(fmt.Errorf("jetpull: stream sequence %d was delivered for the last time and has no dead letter: %w", e.id.Seq, err))
		p.nak(e, try, delay)
	default:
		p.again(s, e, try, delay)
	}
}

func (p *Pool[M]) bury(ctx context.Context, e *entry[M], attempts int, reason string) error {
	err := p.ops.Bury(ctx, e.msg, reason, attempts)
	if err != nil {
		p.ops.Report.Error(err)
	}
	return err
}

// insist tries for a dead letter until it is stored, ctx ends, which is that of handlers, or the connection is
// closed for good. The message is kept in progress meanwhile.
func (p *Pool[M]) insist(ctx context.Context, e *entry[M], attempts int, reason string) error {
	p.queue.mu.Lock()
	e.insists = true
	p.queue.mu.Unlock()
	ended, cutOff := p.ended, false
	for wait := buryAgain; ; wait = min(2*wait, buryLast) {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ended:
			ended, wait = nil, buryAgain/2 // there is no time to lose
		case <-p.ops.CutOff:
			cutOff = true
		case <-ctx.Done():
		}
		timer.Stop()
		err := p.bury(ctx, e, attempts, reason)
		if err == nil || ctx.Err() != nil || cutOff {
			return err
		}
	}
}
