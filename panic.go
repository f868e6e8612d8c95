package jetpull

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// panicError is a panic of the user's code. Its text has the stack, for the logger
// and OnError.
type panicError struct {
	text  string // what panicked, and with which value
	stack []byte
}

// recovered is the error of a panic with value v, made where it is recovered.
func recovered(what string, v any) *panicError {
	return &panicError{fmt.Sprintf("%s panicked: %v", what, v), debug.Stack()}
}

func (e *panicError) Error() string { return fmt.Sprintf("jetpull: %s\n%s", e.text, e.stack) }

// deadReason is what others are told of the error for which a message is given up,
// in its dead letter and in the server's advisory. Where it panicked is for those who
// run the code.
func deadReason(err error) string {
	if p, ok := errors.AsType[*panicError](err); ok {
		return headerText(p.text)
	}
	return headerText(err.Error())
}
