package worker

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jetpull/jetpull/internal/watch"
)

// acknowledge acknowledges e, perhaps with others. e is removed, and remembered, when its worker asks for the next message.
func (p *Pool[M]) acknowledge(e *entry[M]) {
	e.how = Acked
	switch {
	case p.ops.Confirm != nil:
		e.worker.acked = append(e.worker.acked, e.msg)
	case p.acks != nil:
		p.acks.add(e.msg, !p.queue.empty())
	default:
		p.ops.Report.Error(p.ops.Ack(e.msg))
	}
}

// confirmPause is the pause before unconfirmed acknowledgements are sent again.
const confirmPause = 100 * time.Millisecond

// confirm acknowledges the messages of a batch. It repeats that until each is confirmed, the handlers' context ends, or nothing can be sent any
// more. If the call has ended with an error, for example because the consumer was deleted, it repeats nothing.
func (p *Pool[M]) confirm(s *slot[M]) {
	ms := s.acked
	s.acked = nil
	for len(ms) > 0 {
		err := p.ops.Confirm(p.handlers, ms)
		ms = slices.DeleteFunc(ms, func(m M) bool { return p.ops.Settled(m) != Undecided })
		if len(ms) == 0 {
			return
		}
		p.ops.Report.Error(err)
		_ = watch.Sleep(p.handlers, confirmPause)
		over := p.open.Err() != nil && p.Err() != nil && !errors.Is(p.Err(), ErrReconfigured)
		if over || p.handlers.Err() != nil || errors.Is(err, ErrFinal) {
			return
		}
	}
}

// The outcomes of a failed attempt, for Ops.Failed.
const (
	Retried      = "retried"
	DeadLettered = "dead_lettered"
	TermSent     = "terminated"
	HandedBack   = "handed_back"
)

// attempt is an attempt to handle a message that has failed.
type attempt struct {
	number int // from 1
	err    error
	alone  bool // the message is ordered, and no other client gets it
}

// again retries e after a delay: in place if messages are ordered by key, and otherwise by a NAK, unless this was the last delivery. At the end of a
// call that has the consumer alone, the NAK has no delay: otherwise the next client would get later messages of the key first.
func (p *Pool[M]) again(e *entry[M], try attempt, delay time.Duration) {
	m, id, last := e.msg, e.id, p.isLast(e) // read now, because another worker can own e once it waits for its retry
	if p.ops.Key == nil || last || !p.wait(e, &Wait{Until: For(delay)}, true) {
		if try.alone {
			delay = 0
		}
		latest, _ := p.release(e)
		p.ops.Report.Error(p.ops.Nak(latest, delay))
	}
	if !last {
		p.ops.Failed(m, try.number, Retried, delay, try.err)
		return
	}
	p.ops.Failed(m, try.number, HandedBack, delay, try.err)
	p.ops.Report.LastDeliveries(true, id.Seq)
}

// isLast reports whether the server will not deliver the message again, as far as is known: an edit can change that at any time.
func (p *Pool[M]) isLast(e *entry[M]) bool {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	return p.queue.consumer.isLast(e.delivered)
}

// terminate ends a message by a TERM.
func (p *Pool[M]) terminate(e *entry[M], try attempt, outcome, reason string) {
	e.how = Terminated
	p.ops.Report.Error(p.ops.Term(e.msg, reason))
	p.ops.Failed(e.msg, try.number, outcome, 0, try.err)
}

const (
	// firstDelay and lastDelay are the first and the longest default delay of a retry. Delays double.
	firstDelay = time.Second
	lastDelay  = time.Minute
)

// delay returns the delay before the next attempt, by the number of attempts: from RetryDelays, the consumer's
// BackOff, or the default.
func (p *Pool[M]) delay(c Consumer, attempts int) time.Duration {
	delays := p.set.RetryDelays
	if len(delays) == 0 {
		delays = c.BackOff
	}
	if n := len(delays); n > 0 {
		return delays[min(max(attempts, 1), n)-1]
	}
	d := min(lastDelay, firstDelay<<min(max(attempts-1, 0), 10))
	return d + time.Duration((rand.Float64()*2-1)*float64(d)/5)
}

// wait holds e without a worker, for a retry in place or because it cannot begin yet. It makes e ready when it can be tried again, unless e was
// handed back meanwhile. It reports false if the call has ended, and the drain does not handle e.
func (p *Pool[M]) wait(e *entry[M], w *Wait, retry bool) bool {
	q, until := &p.queue, p.open
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		until = p.handlers
		if retry || until.Err() != nil || !p.drains(e) {
			return false
		}
	}
	if retry {
		e.retries++
	}
	q.leave(e)
	e.worker, e.end, e.err, e.msg, e.waits = nil, nil, nil, e.latest, w
	q.waits++
	p.workers.Go(func() {
		w.Until(until)
		q.mu.Lock()
		defer q.mu.Unlock()
		if e.waits == w {
			e.waits = nil
			q.waits--
			q.wake(e)
		}
	})
	return true
}

// deadLetterPause is the first pause after a failed attempt to store a dead letter. The pause doubles up to
// deadLetterPauseMost.
const (
	deadLetterPause     = time.Second
	deadLetterPauseMost = 10 * time.Second
)

// giveUp ends a message that has failed for the last time. With DeadLetter, the original is terminated only when
// the copy is stored; until then it is retried. No other delivery follows the last one that MaxDeliver allows, and while the consumer cannot be
// read, each may be the last. Then the worker keeps the message in progress, and tries until the copy is stored, the handlers' context ends, or
// the connection is closed for good. So a stream of dead letters that is down stops the call.
func (p *Pool[M]) giveUp(e *entry[M], try attempt, delay time.Duration) {
	reason := deadReason(try.err)
	why := GivenUp(try.number, try.err)
	if p.ops.DeadLetter == nil {
		p.terminate(e, try, TermSent, why)
		return
	}
	until, last := p.open, p.isLast(e)
	for wait := deadLetterPause; ; wait = min(2*wait, deadLetterPauseMost) {
		err := p.ops.DeadLetter(p.handlers, e.msg, reason, try.number)
		if err == nil {
			p.terminate(e, try, DeadLettered, why)
			return
		}
		p.ops.Report.Error(err)
		known := try.alone || p.ops.Fresh(p.handlers) // alone: another client may have all by now, and no delivery is the last
		last = last || p.isLast(e)                    // the server may have ended the message before MaxDeliver was raised
		if known && !last || p.handlers.Err() != nil || errors.Is(err, ErrFinal) {
			p.again(e, try, delay)
			return
		}
		if watch.Sleep(until, wait) != nil {
			until, wait = p.handlers, deadLetterPause/2 // the call ends: try again at once
		}
	}
}
