package worker

import (
	"context"
	"errors"
	"fmt"
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

// ErrFinal matches the error of a handler where no other attempt can succeed.
var ErrFinal = errors.New("no other attempt can succeed")

var (
	errGoexit = errors.New("jetpull: the handler ended its goroutine")
	// ErrHandlerTimeout is the cause with which the context of a handler ends that has run for its timeout.
	ErrHandlerTimeout = fmt.Errorf("jetpull: the handler ran for longer than HandlerTimeout: %w", context.DeadlineExceeded)
)

// Wait is the error of a message that cannot begin yet. It is tried again, and that is no attempt.
type Wait struct {
	Until func(context.Context) // returns when it is to be tried again, and when the context ends
	Err   error                 // what went wrong; nil: nothing
}

// For is the Until of a message that is tried again after a time.
func For(d time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// Error says why.
func (w *Wait) Error() string { return fmt.Sprintf("cannot begin yet: %v", w.Err) }

// Unwrap returns Err.
func (w *Wait) Unwrap() error { return w.Err }

// Refusal is the error of a message that is given up before its handler begins.
type Refusal struct{ Reason string }

// Error is the reason.
func (r *Refusal) Error() string { return r.Reason }

// Is says that no other attempt can succeed.
func (r *Refusal) Is(target error) bool { return target == ErrFinal }

// readable returns err, or another in its place whose methods do not panic, as those of a nil pointer do.
func readable(err error) (readable error) {
	defer func() {
		if v := recover(); v != nil {
			readable = fmt.Errorf("jetpull: the handler returned an error of type %T that cannot be read: %v", err, v)
		}
	}()
	_ = err.Error()
	_ = errors.Is(err, ErrFinal)
	return err
}

// GivenUp is the reason in the server's advisory of a message that is given up after so many attempts, or before the next one begins.
func GivenUp(attempts int, err error) string {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return deadReason(r)
	}
	return fmt.Sprintf("failed %d times: %s", attempts, deadReason(err))
}

// deadReason is the text for the dead letter and the server's advisory of the error for which a message is given up.
// The text of a panic has no stack.
func deadReason(err error) string {
	if p, ok := errors.AsType[*PanicError](err); ok {
		return Line(p.text)
	}
	return Line(fmt.Sprint(err)) // Sprint survives an Error method that panics
}

// maxReason is the length of the longest reason.
const maxReason = 1024

// Line makes s fit for a header and for the server's advisory: one line of at most 1,024 bytes.
func Line(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "")
	}
	return s
}
