package jsstream

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
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
