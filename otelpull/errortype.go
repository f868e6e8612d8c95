package otelpull

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/jetpull/jetpull"
)

// wrappers are the types of errors that only add words to another, or what is to
// become of the message.
var wrappers = func() []reflect.Type {
	err := errors.New("some error")
	var types []reflect.Type
	for _, wrapped := range []error{
		fmt.Errorf("wrapped: %w", err), fmt.Errorf("wrapped: %w, %w", err, err), errors.Join(err),
		jetpull.Retry(0, err), jetpull.Terminate("", err),
	} {
		types = append(types, reflect.TypeOf(wrapped))
	}
	return types
}()

// errorType is the attribute that distinguishes errors: the type of the first error in
// err that is more than a wrapper, or what that says of itself.
func errorType(err error) attribute.KeyValue {
	for slices.Contains(wrappers, reflect.TypeOf(err)) {
		next := errors.Unwrap(err)
		if all, ok := err.(interface{ Unwrap() []error }); ok {
			next = all.Unwrap()[0]
		}
		if next == nil {
			break
		}
		err = next
	}
	return semconv.ErrorType(err)
}

// terminated is the type of the result of a handler whose message is never to be delivered again.
var terminated = reflect.TypeOf(jetpull.Terminate("", nil))

// has reports whether an error of a type is in the tree of err.
func has(err error, t reflect.Type) bool {
	if err == nil || reflect.TypeOf(err) == t {
		return err != nil
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(all.Unwrap(), func(e error) bool { return has(e, t) })
	}
	return has(errors.Unwrap(err), t)
}

// panicError is the error of a handler that did not return.
type panicError struct{}

func (panicError) Error() string { return "the handler panicked" }

// ErrorType is the value of error.type.
func (panicError) ErrorType() string { return "panic" }
