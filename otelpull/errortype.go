package otelpull

import (
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/jetpull/jetpull"
)

// errorType returns the attribute error.type: the type of the first error in err that is
// not a wrapper, or the result of that error's method ErrorType.
func errorType(err error) attribute.KeyValue {
	for isWrapper(err) {
		next := errors.Unwrap(err)
		if all, ok := err.(interface{ Unwrap() []error }); ok && len(all.Unwrap()) > 0 {
			next = all.Unwrap()[0]
		}
		if next == nil {
			break
		}
		err = next
	}
	return semconv.ErrorType(err)
}

// isWrapper reports whether an error only adds text to another one, or a verdict on the message. Packages fmt and errors have
// no exported types for that.
func isWrapper(err error) bool {
	switch err.(type) { //nolint:errorlint // the error itself is asked for, not those that it wraps
	case *jetpull.RetryError, *jetpull.TerminateError:
		return true
	}
	name := fmt.Sprintf("%T", err)
	return strings.HasPrefix(name, "*fmt.") || strings.HasPrefix(name, "*errors.")
}

// panicError is the error of a handler that did not return.
type panicError struct{}

func (panicError) Error() string { return "the handler panicked" }

// ErrorType returns the value of error.type.
func (panicError) ErrorType() string { return "panic" }
