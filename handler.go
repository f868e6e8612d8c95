package jetpull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jetpull/jetpull/internal/worker"
)

// Handler handles one message. Its result settles the message: nil acknowledges it, and after an error it is retried (see
// [RetryDelays]). [Retry] sets the delay, and [Terminate] terminates the message. A message that the handler has settled
// itself stays as it is. A handler that passes its message to another goroutine must wait until that goroutine has finished
// with it, or use [ManualAck]. A panic is recovered, reported, and counts as an error.
//
// The context has the values of Consume's context but does not end with it. If the handler has not returned [DrainTimeout]
// after Consume's context has ended, its context is cancelled. If it then returns an error other than [Terminate], that is
// not a failed attempt, whatever [MaxAttempts] says: the message is handed back immediately. See also [HandlerTimeout].
type Handler func(ctx context.Context, m *Msg) error

// Middleware wraps a Handler with behavior that all handlers of a program share, such as traces, logs and rate limits. See [Use].
type Middleware func(Handler) Handler

// HandleJSON returns a Handler that passes the JSON payload of each message to h as a T. A payload that [json.Unmarshal] cannot
// read is not retried: its error matches [ErrPayload], and the message goes to [DeadLetter], if that is set, and is terminated.
func HandleJSON[T any](h func(ctx context.Context, v T, m *Msg) error) Handler {
	if h == nil {
		return nil
	}
	return func(ctx context.Context, m *Msg) error {
		var v T
		if err := json.Unmarshal(m.Data(), &v); err != nil {
			return fmt.Errorf("%w: %d bytes on %s are not JSON for %T: %w", ErrPayload, len(m.Data()), m.Subject(), v, err)
		}
		return h(ctx, v, m)
	}
}

// RetryError is a handler's result that asks for another attempt After a delay: immediately if that is 0 or less, and after
// a year at most. [MaxAttempts] still applies. Middleware finds it with [errors.As].
type RetryError struct {
	After time.Duration
	Err   error // the reason, or nil
}

// Retry returns a [RetryError]. err is the reason, and may be nil.
func Retry(after time.Duration, err error) error { return &RetryError{after, err} }

// Error returns the delay and the reason.
func (e *RetryError) Error() string {
	return because(fmt.Sprintf("jetpull: retry after %v", e.After), e.Err)
}

// Unwrap returns Err.
func (e *RetryError) Unwrap() error { return e.Err }

// TerminateError is a handler's result that terminates the message without a dead letter. The Reason goes to the server's
// advisory, in one line of at most 1,024 bytes. Middleware finds it with [errors.As].
type TerminateError struct {
	Reason string
	Err    error // the cause, or nil
}

// Terminate returns a [TerminateError]. err is the cause, and may be nil.
func Terminate(reason string, err error) error { return &TerminateError{reason, err} }

// Error returns the reason and the cause.
func (e *TerminateError) Error() string { return because("jetpull: terminate: "+e.Reason, e.Err) }

// Unwrap returns Err.
func (e *TerminateError) Unwrap() error { return e.Err }

func because(text string, err error) string {
	if err == nil {
		return text
	}
	return fmt.Sprintf("%s: %v", text, err)
}

// verdict returns what the error of a handler asks for.
func verdict(err error) (v worker.Verdict) {
	if e, ok := errors.AsType[*TerminateError](err); ok {
		v.Terminate, v.Reason = true, e.Reason
	} else if e, ok := errors.AsType[*RetryError](err); ok {
		v.Retry, v.After = true, min(max(0, e.After), maxWait)
	}
	return v
}

// Event is a failed attempt to handle a message, and its outcome: see [OnEvent].
type Event struct {
	Msg *Msg
	// Attempt is the number of the attempt, from 1, as counted by [MaxAttempts]. If [MaxCrashes] or [ExpiresAt] gave up, it did not begin.
	Attempt int
	Outcome EventOutcome
	// After is the delay of a message that is Retried or HandedBack.
	After time.Duration
	// DeadLetter is the subject to which the copy was published, if the Outcome is DeadLettered.
	DeadLetter string
	// TimedOut reports whether the handler had run for [HandlerTimeout].
	TimedOut bool
	// Err is the error that the handler returned, or its panic.
	Err error
}

// EventOutcome is the outcome of a failed attempt.
type EventOutcome string

// The outcomes of a failed attempt.
const (
	// Retried says that the message will be handled again.
	Retried EventOutcome = worker.Retried
	// DeadLettered says that the message was published to DeadLetter, and terminated.
	DeadLettered EventOutcome = worker.DeadLettered
	// Terminated says that the message was terminated without a dead letter.
	Terminated EventOutcome = worker.TermSent
	// HandedBack says that the message was handed back at the last delivery that MaxDeliver allows: it is in its stream, and
	// the server does not deliver it again.
	HandedBack EventOutcome = worker.HandedBack
)

// failed counts and reports a failed attempt.
func (r *run) failed(m *Msg, attempt int, outcome string, after time.Duration, err error) {
	e := Event{Msg: m, Attempt: attempt, Outcome: EventOutcome(outcome), After: after, Err: err, TimedOut: errors.Is(err, worker.ErrHandlerTimeout)}
	c, logged := &r.sub.counts, []any{outcome}
	c.mu.Lock()
	c.attempts.Failed++
	if e.TimedOut {
		c.attempts.TimedOut++
	}
	if errors.Is(err, errExpired) {
		c.attempts.Expired++
	}
	switch e.Outcome {
	case Retried:
		c.attempts.Retried++
		logged = append(logged, "delay", after.Round(time.Millisecond))
	case DeadLettered:
		c.attempts.DeadLettered++
		e.DeadLetter = r.set.run.deadLetter
	case Terminated:
		c.attempts.Terminated++
	}
	c.mu.Unlock()
	r.report.Failed(m.Sequence(), err, true, logged...)
	if f := r.set.run.onEvent; f != nil {
		r.report.Call(func() { f(e) })
	}
}
