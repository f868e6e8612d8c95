package domain

import (
	"context"
	"time"
)

// Attempt is one callback and what became of it.
type Attempt struct {
	// Number is counted from 1 over the life of a job.
	Number    int
	StartedAt time.Time
	Duration  time.Duration
	// StatusCode is that of the answer; 0: there was none.
	StatusCode int
	Error      string // empty after a success
	// Header and Body are the first 4 KiB of each, without secrets. Of a job's first attempt they are missing if it was a
	// success: that attempt is kept in the job's record.
	Header map[string]string
	Body   []byte
}

// Attempts keeps the attempts at push jobs that are not in the records of their jobs.
type Attempts interface {
	// KeepAttempt stores an attempt, in place of one with its number. It waits for no disk.
	KeepAttempt(ctx context.Context, id JobID, a Attempt) error
	// AttemptAt returns one that was stored, or ErrNotFound.
	AttemptAt(ctx context.Context, id JobID, number int) (Attempt, error)
}
