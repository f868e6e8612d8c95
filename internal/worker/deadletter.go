package worker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// deadLetterPause is how long after a failed try for a dead letter the next one follows, at first; it doubles up to
// deadLetterPauseMost.
const (
	deadLetterPause     = time.Second
	deadLetterPauseMost = 10 * time.Second
)

// giveUp ends a message that has failed for the last time. With a dead letter the original is terminated only
// when the copy is stored; until then it is retried. After the last delivery that MaxDeliver allows there is no other:
// the worker keeps the message in progress and tries until the copy is stored, the handlers' context ends, or
// the connection is closed for good. So a stream of dead letters that is down stops the call.
func (p *Pool[M]) giveUp(ctx context.Context, s *slot[M], e *entry[M], try attempt, delay time.Duration) {
	reason := deadReason(try.err)
	why := GivenUp(try.number, try.err)
	if p.ops.DeadLetter == nil {
		p.terminate(e, try, TermSent, why)
		return
	}
	p.queue.mu.Lock()
	e.insists = true
	p.queue.mu.Unlock()
	var err error
	ended, last := p.ended, false
	for wait := deadLetterPause; ; wait = min(2*wait, deadLetterPauseMost) {
		if err = p.ops.DeadLetter(ctx, e.msg, reason, try.number); err == nil {
			break
		}
		p.ops.Report.Error(err)
		last = p.isLast(e)
		if !last || ctx.Err() != nil || errors.Is(err, ErrFinal) {
			break
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ended:
			ended, wait = nil, deadLetterPause/2 // the call ends: try again at once
		case <-ctx.Done():
		}
		timer.Stop()
	}
	switch {
	case err == nil:
		p.terminate(e, try, DeadLettered, why)
	case last:
		p.ops.Report.Error(fmt.Errorf("jetpull: stream sequence %d was delivered for the last time and has no dead letter: %w", e.id.Seq, err))
		p.nak(e, try, delay)
	default:
		p.again(s, e, try, delay)
	}
}
