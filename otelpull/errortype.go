package otelpull

import (
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/jetpull/jetpull"
)

// errorType is the attribute that distinguishes errors: the type of the first error in
// err that is more than a wrapper, or what that says of itself.
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

// isWrapper reports whether an error only adds words to another, or what is to become of the message. Packages fmt and errors
// have no exported types for that.
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

// ErrorType is the value of error.type.
func (panicError) ErrorType() string { return "panic" }
