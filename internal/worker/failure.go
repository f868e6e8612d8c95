package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/jetpull/jetpull/internal/watch"
)

// PanicError is a panic of the user's code. Its text has the stack, for the logger and OnError.
type PanicError struct {
	text  string // the message with the panic's value
	stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("jetpull: %s\n%s", e.text, e.stack) }

// recovered returns the error of a panic with value v. It must be called where the panic is recovered.
func recovered(what string, v any) *PanicError {
	return &PanicError{fmt.Sprintf("%s panicked: %v", what, v), debug.Stack()}
}

// ErrFinal matches an error after which no other attempt can succeed.
var ErrFinal = errors.New("no other attempt can succeed")

var (
	errGoexit = errors.New("jetpull: the handler ended its goroutine")
	// ErrHandlerTimeout is the cause with which a handler's context ends when the handler has run for its timeout.
	ErrHandlerTimeout = fmt.Errorf("jetpull: the handler ran for longer than HandlerTimeout: %w", context.DeadlineExceeded)
)

// Wait is the error of a message that cannot begin yet. The message is tried again, which does not count as an attempt.
type Wait struct {
	Until func(context.Context) // returns when the message should be tried again, or when the context ends
	Err   error                 // the problem; nil: there is none
}

// For returns the Until of a message that is tried again after d.
func For(d time.Duration) func(context.Context) {
	return func(ctx context.Context) { _ = watch.Sleep(ctx, d) }
}

// Error returns the reason.
func (w *Wait) Error() string { return fmt.Sprintf("cannot begin yet: %v", w.Err) }

// Unwrap returns Err.
func (w *Wait) Unwrap() error { return w.Err }

// Refusal is the error of a message that is given up before its handler begins.
type Refusal struct{ Reason string }

// Error returns the reason.
func (r *Refusal) Error() string { return r.Reason }

// Is reports that a Refusal matches ErrFinal.
func (r *Refusal) Is(target error) bool { return target == ErrFinal }

// Readable returns err, which may be nil, or a replacement if its methods panic, as those of a nil pointer do.
func Readable(err error) (readable error) {
	if err == nil {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			readable = fmt.Errorf("jetpull: the handler returned an error of type %T that cannot be read: %v", err, v)
		}
	}()
	_ = err.Error()
	_ = errors.Is(err, ErrFinal)
	return err
}

// GivenUp returns the reason for the server's advisory of a message that is given up after a number of attempts, or before the next begins.
func GivenUp(attempts int, err error) string {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return deadReason(r)
	}
	return fmt.Sprintf("failed %d times: %s", attempts, deadReason(err))
}

// deadReason returns the text of err for a dead letter and for the server's advisory. The text of a panic has no
// stack.
func deadReason(err error) string {
	if p, ok := errors.AsType[*PanicError](err); ok {
		return Line(p.text)
	}
	return Line(fmt.Sprint(err)) // Sprint survives an Error method that panics
}

// maxReason is the maximum length of a reason, in bytes.
const maxReason = 1024

// Line makes s fit for a header and for the server's advisory: one line of at most 1,024 bytes.
func Line(s string) string {
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "?")), " ")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "")
	}
	return s
}
