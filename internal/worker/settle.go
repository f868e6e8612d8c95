package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"
)

// PanicError is a panic of the user's code. Its text has the stack, for the logger and OnError.
type PanicError struct {
	text  string // the message with the panic's value
	stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("jetpull: %s\n%s", e.text, e.stack) }

// recovered is the error of a panic with value v, made where it is recovered.
func recovered(what string, v any) *PanicError {
	return &PanicError{fmt.Sprintf("%s panicked: %v", what, v), debug.Stack()}
}

// RetryError is the result of a handler whose message is to be handled again After a time of its own.
type RetryError struct {
	After time.Duration
	Err   error // nil: it gave none
}

func (e *RetryError) Error() string {
	return because(fmt.Sprintf("jetpull: retry after %v", e.After), e.Err)
}

// Unwrap returns why.
func (e *RetryError) Unwrap() error { return e.Err }

// TerminateError is the result of a handler whose message is never to be delivered again.
type TerminateError struct {
	Reason string
	Err    error // nil: it gave none
}

func (e *TerminateError) Error() string { return because("jetpull: terminate: "+e.Reason, e.Err) }

// Unwrap returns why.
func (e *TerminateError) Unwrap() error { return e.Err }

func because(text string, err error) string {
	if err == nil {
		return text
	}
	return fmt.Sprintf("%s: %v", text, err)
}

// ErrFinal matches the error of a handler where no other attempt can succeed.
var ErrFinal = errors.New("no other attempt can succeed")

var (
	errGoexit = errors.New("jetpull: the handler ended its goroutine")
	// ErrHandlerTimeout is the cause with which the context of a handler ends that has run for its timeout.
	ErrHandlerTimeout = fmt.Errorf("jetpull: the handler ran for longer than HandlerTimeout: %w", context.DeadlineExceeded)
)

const (
	// firstDelay and lastDelay are the default delays of a retry: the first, which doubles, and the longest.
	firstDelay = time.Second
	lastDelay  = time.Minute

	maxReason = 1024
)

// handle runs the handler for e, and settles e by the result. A handler that has run for HandlerTimeout has failed, whatever
// it returns.
func (p *Pool[M]) handle(ctx context.Context, s *slot[M], e *entry[M]) {
	limited, cancel := ctx, func() {}
	if d := p.set.HandlerTimeout; d > 0 {
		limited, cancel = context.WithTimeoutCause(ctx, d, fmt.Errorf("%w: it is %v", ErrHandlerTimeout, d))
	}
	err, returned := error(nil), false
	defer func() {
		if !returned {
			if v := recover(); v != nil {
				err = recovered("the handler", v)
			} else {
				err = errGoexit
			}
		}
		if cause := context.Cause(limited); errors.Is(cause, ErrHandlerTimeout) {
			err = cause
		}
		cancel()
		p.conclude(ctx, s, e, err)
	}()
	err = p.ops.Handle(limited, e.msg)
	returned = true
}

// conclude settles a message by its handler's result, unless the handler has settled it.
func (p *Pool[M]) conclude(ctx context.Context, s *slot[M], e *entry[M], err error) {
	none := p.queue.consumer.AckNone
	how := p.ops.Settled(e.msg)
	if err != nil && (none || how != Undecided) {
		p.ops.Report.Failed(e.id.Seq, err, "settled already", false)
	}
	switch {
	case none:
	case how == Undecided && err != nil:
		p.fail(ctx, s, e, err)
	case how == Undecided && p.set.ManualAck:
		p.park(s, e)
	case how == Undecided:
		p.acknowledge(e)
	case how == Naked:
		p.removeEntry(e) // before its redelivery comes: see known
	default:
		e.how = how
	}
}

// acknowledge acknowledges e, perhaps with others.
func (p *Pool[M]) acknowledge(e *entry[M]) {
	e.how = Acked
	if p.acks != nil {
		p.acks.add(e.msg, !p.queue.empty())
		return
	}
	p.ops.Report.Error(p.ops.Ack(e.msg))
}

// removeEntry removes e before the server can redeliver it, and returns its newest delivery, which is handed back.
func (p *Pool[M]) removeEntry(e *entry[M]) M {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	p.queue.remove(e)
	return e.latest
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
	last   bool // the server does not deliver the message again
}

// fail settles a message whose handler failed.
func (p *Pool[M]) fail(ctx context.Context, s *slot[M], e *entry[M], err error) {
	q := &p.queue
	q.mu.Lock()
	try := attempt{number: int(e.delivered) + e.retries, err: err, last: q.consumer.isLast(e.delivered)}
	q.mu.Unlock()
	if term, ok := errors.AsType[*TerminateError](err); ok {
		p.terminate(e, try, TermSent, term.Reason)
		return
	}
	limit := p.set.MaxAttempts
	if limit == 0 && p.ops.Key != nil {
		limit = int(q.consumer.MaxDeliver) // the server's count does not grow with retries in place
	}
	delay := p.delay(q.consumer, try.number)
	if errors.Is(err, ErrFinal) || limit > 0 && try.number >= limit {
		p.giveUp(ctx, s, e, try, max(deadLetterPause, delay))
		return
	}
	if retry, ok := errors.AsType[*RetryError](err); ok {
		delay = max(0, retry.After)
	}
	p.again(s, e, try, delay)
}

// again retries e after a delay: in place if messages are ordered by key, else by the server.
func (p *Pool[M]) again(s *slot[M], e *entry[M], try attempt, delay time.Duration) {
	m := e.msg // once it waits for its retry, e is another worker's
	if p.ops.Key != nil && p.retryInPlace(s, e, delay) {
		p.ops.Failed(m, try.number, Retried, delay, try.err)
		return
	}
	p.nak(e, try, delay)
	if try.last {
		p.ops.Report.LastDeliveries(true, e.id.Seq)
	}
}

// nak hands e back. The server redelivers it, unless this was its last delivery.
func (p *Pool[M]) nak(e *entry[M], try attempt, delay time.Duration) {
	m, outcome := e.msg, Retried
	if try.last {
		outcome = HandedBack
	}
	p.ops.Report.Error(p.ops.Nak(p.removeEntry(e), delay))
	p.ops.Failed(m, try.number, outcome, delay, try.err)
}

// terminate ends a message for good.
func (p *Pool[M]) terminate(e *entry[M], try attempt, outcome, reason string) {
	e.how = Terminated
	p.ops.Report.Error(p.ops.Term(e.msg, reason))
	p.ops.Failed(e.msg, try.number, outcome, 0, try.err)
}

// delay is the delay before the next attempt, by the number of attempts: from the user's delays, the consumer's
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

// retryInPlace keeps e, first of its key, until its delay is over. It reports false if the call has ended.
func (p *Pool[M]) retryInPlace(s *slot[M], e *entry[M], delay time.Duration) bool {
	q := &p.queue
	q.mu.Lock()
	if q.stopped {
		q.mu.Unlock()
		return false
	}
	s.e = nil
	q.quota.busy--
	e.taken, e.msg = false, e.latest
	e.retries++
	e.since = p.ops.Now()
	e.due = max(1, e.since+delay)
	p.look(e.since, delay)
	m := e.msg
	q.mu.Unlock()
	_ = p.ops.InProgress(m) // its handler may have taken nearly all of AckWait, without KeepAlive
	return true
}

// deadReason is the text for the dead letter and the server's advisory of the error for which a message is given up.
// The text of a panic has no stack.
func deadReason(err error) string {
	if p, ok := errors.AsType[*PanicError](err); ok {
		return Line(p.text)
	}
	return Line(fmt.Sprint(err)) // Sprint survives an Error method that panics
}

// Line makes s fit for a header and for the server's advisory: one line of at most 1,024 bytes.
func Line(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "")
	}
	return s
}
