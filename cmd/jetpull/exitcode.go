package main

import (
	"context"
	"errors"

	"github.com/jetpull/jetpull"
)

// The exit codes, which the help of the root command documents.
const (
	exitDone        = 0
	exitError       = 1
	exitUsage       = 2
	exitNoMessages  = 3
	exitTimeout     = 4
	exitFailed      = 5
	exitInterrupted = 130
)

const exitCodesHelp = `Exit codes:
  0    done
  1    error
  2    the command line is wrong, or asks for what the consumer cannot do
  3    no messages
  4    timeout: no or fewer messages than asked for came in time, or no answer did
  5    done, but a message was not acknowledged: its command failed
  130  interrupted before the work asked for was done`

// usageError is a command line that cannot be carried out.
type usageError struct{ error }

// Unwrap returns what is wrong.
func (e usageError) Unwrap() error { return e.error }

var (
	// errFailed ends a bounded run in which a message was not acknowledged.
	errFailed = errors.New("not every message was acknowledged")
	// errShort ends a run that got fewer messages than it was to wait for.
	errShort = errors.New("fewer messages than asked for")
	// errInterrupted ends a bounded run that a signal stopped.
	errInterrupted = errors.New("interrupted")
)

func exitCode(ctx context.Context, err error) int {
	var usage usageError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &usage), errors.Is(err, jetpull.ErrInvalidOption):
		return exitUsage
	case errors.Is(err, errInterrupted), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return exitInterrupted
	case errors.Is(err, errFailed):
		return exitFailed
	case errors.Is(err, jetpull.ErrNoMessages):
		return exitNoMessages
	case errors.Is(err, jetpull.ErrTimeout), errors.Is(err, errShort), errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	}
	return exitError
}
