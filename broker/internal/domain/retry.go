package domain

import "time"

// Backoff is a list of delays between the attempts of a callback.
type Backoff []time.Duration

// Delay returns how long to wait before retry n, counted from 1: the n-th
// delay, and past the end of the list a multiple of the last one that grows by
// one with each retry. An empty list never waits.
func (b Backoff) Delay(n int) time.Duration {
	switch {
	case len(b) == 0 || n < 1:
		return 0
	case n <= len(b):
		return b[n-1]
	}
	return time.Duration(n-len(b)+1) * b[len(b)-1]
}

// ClaimLimit returns how long a claim lasts without an incremental timeout: as
// long as the broker itself would wait for a callback, a quarter of a second
// for the way, and the rational delay.
func ClaimLimit(connectionTimeout, rationalDelay time.Duration) time.Duration {
	return connectionTimeout + 250*time.Millisecond + rationalDelay
}

// Attempted decides what becomes of a job after a callback: delivered, queued
// for another attempt, or dead once its retries are used up.
func Attempted(job Job, success bool, now time.Time, backoff Backoff, maxRetry int) Job {
	switch {
	case success:
		return Settle(job, Delivered, now)
	case job.Exhausted(maxRetry):
		return Settle(job, Dead, now)
	}
	next := Settle(job, Queued, now)
	next.Retries++
	next.Due = now.Add(backoff.Delay(next.Retries))
	return next
}
