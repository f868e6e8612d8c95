package jetpull

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Retry is the result of a handler whose message is to be delivered again
// after the given time, at once if that is 0 or less, and after a year at the
// latest, unless it has had [MaxAttempts]. err says why and may be nil.
func Retry(after time.Duration, err error) error { return &retryError{min(after, maxWait), err} }

// Terminate is the result of a handler whose message is never to be delivered
// again. The reason goes to the server's advisory, in one line of at most 1,024
// bytes; it makes no dead letter. err says why and may be nil.
func Terminate(reason string, err error) error { return &terminateError{reason, err} }

type retryError struct {
	after time.Duration
	err   error
}

func (e *retryError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("jetpull: retry after %v", e.after)
	}
	return fmt.Sprintf("jetpull: retry after %v: %v", e.after, e.err)
}

func (e *retryError) Unwrap() error { return e.err }

type terminateError struct {
	reason string
	err    error
}

func (e *terminateError) Error() string {
	if e.err == nil {
		return "jetpull: terminate: " + e.reason
	}
	return fmt.Sprintf("jetpull: terminate: %s: %v", e.reason, e.err)
}

func (e *terminateError) Unwrap() error { return e.err }

// conclude settles a message by what its handler returned. ctx is the
// handler's.
func (st *stream) conclude(ctx context.Context, h held, err error) {
	if err != nil {
		st.report(fmt.Errorf("jetpull: stream sequence %d: %w", h.m.Sequence(), err))
	}
	switch {
	case st.sub.ackNone.Load():
		st.queue.settled(h)
	case h.m.settled.Load() && h.m.how.Load() == byNak:
		if most := st.sub.config().MaxDeliver; most > 0 && h.m.Delivered() >= uint64(most) {
			st.settled(h)
			return
		}
		// The handler's own NAK holds its line back like one of ours.
		st.holdBack(h, time.Duration(h.m.delay.Load()))
	case h.m.settled.Load():
		st.settled(h)
	case err == nil:
		st.acknowledge(h)
	default:
		st.failed(ctx, h, err)
	}
}

// acknowledge acknowledges h, perhaps with others, and opens its line.
func (st *stream) acknowledge(h held) {
	switch {
	case st.acks != nil:
		st.acks.ack(h.m)
		st.queue.settled(h)
	case st.outbox != nil:
		st.outbox.ack(h.m, !st.queue.empty())
		st.queue.settled(h)
	default:
		st.settledBy(h, h.m.Ack())
	}
}

// settledBy opens h's line after an acknowledgement. If that could not be sent
// the connection is gone for good, and the server redelivers the message.
func (st *stream) settledBy(h held, err error) {
	if err != nil {
		st.report(err)
	}
	st.settled(h)
}

// settled lets the line of h go on.
func (st *stream) settled(h held) {
	if st.acks != nil {
		st.acks.settled(h.m.Sequence())
	}
	st.queue.settled(h)
}

// failed settles a message whose handler returned an error.
func (st *stream) failed(ctx context.Context, h held, err error) {
	if st.acks != nil {
		st.acks.flush()
	}
	if term, ok := errors.AsType[*terminateError](err); ok {
		st.settledBy(h, h.m.TermWithReason(term.reason))
		return
	}
	attempts := int(h.m.Delivered())
	if limit := st.set.streaming.maxAttempts; limit > 0 && attempts >= limit {
		st.giveUp(ctx, h, attempts, err)
		return
	}
	delay := st.retryDelay(attempts)
	if retry, ok := errors.AsType[*retryError](err); ok {
		delay = max(0, retry.after)
	}
	if h.flaw != nil {
		delay = max(keylessAgain, delay)
	}
	st.retry(h, attempts, delay)
}

// retry has h delivered again after delay, and holds back its line until then.
func (st *stream) retry(h held, attempts int, delay time.Duration) {
	if most := st.sub.config().MaxDeliver; most > 0 && attempts >= most {
		// The server will not deliver it again.
		st.settledBy(h, h.m.NakWithDelay(delay))
		return
	}
	waits, m, freed, bytes := st.queue.nextTry(h, delay)
	if freed > 0 {
		st.tellFreed(freed, bytes)
	}
	if waits {
		st.holdBack(h, 0)
		return
	}
	if m == nil {
		m = h.m
	}
	// The line is blocked first: the message can be back before Nak returns.
	st.holdBack(h, delay)
	if err := m.NakWithDelay(delay); err != nil {
		st.report(err)
	}
}

// lookForGone finds out what has become of messages that were handed back and
// did not come again in time. They may be settled by somebody else, or still be
// at the server, where the acknowledgement of a later one would cover them.
func (st *stream) lookForGone(ctx context.Context) {
	if st.acks == nil || !st.acks.late(time.Now()) {
		return
	}
	floor := uint64(0)
	if st.e.nc.IsConnected() {
		if info := st.ask(ctx); info != nil {
			floor = info.AckFloor.Stream
		}
	}
	st.acks.found(floor, time.Now().Add(min(st.sub.patience(), lineGrace)))
}

func (st *stream) retryDelay(attempts int) time.Duration {
	delays := st.set.streaming.retryDelays
	if len(delays) == 0 {
		delays = st.sub.config().BackOff
	}
	if len(delays) == 0 {
		return 0
	}
	return delays[min(max(attempts, 1), len(delays))-1]
}
