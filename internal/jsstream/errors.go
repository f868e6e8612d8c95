package jsstream

import "time"

const (
	// AttemptTimeout bounds the wait for the answer to one attempt at a request. A
	// leader that steps down answers nothing.
	AttemptTimeout = 2 * time.Second
	// CommitTimeout bounds all attempts.
	CommitTimeout = 10 * time.Second
	// RetryPause is between two attempts.
	RetryPause = 50 * time.Millisecond
)
