package domain

import "time"

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
