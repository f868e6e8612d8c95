package jsstream

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrNotFound says that a stream does not have what was asked for.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that what was to be changed has changed meanwhile.
	ErrConflict = errors.New("changed meanwhile")
	// ErrUnavailable says that there was no answer: it is not known whether something is there, or whether a change was made.
	ErrUnavailable = errors.New("the store is not available, try again")
)

const (
	// AttemptTimeout bounds the wait for the answer to one attempt at a request. A
	// leader that steps down answers nothing.
	AttemptTimeout = 2 * time.Second
	// CommitTimeout bounds all attempts.
	CommitTimeout = 10 * time.Second
	// RetryPause is between two attempts.
	RetryPause = 50 * time.Millisecond
)

// Refused reports whether the server refused a write because of the last sequence that it expects, of the stream or the subject.
func Refused(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}
