package domain

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/rs/xid"

	"github.com/jetpull/jetpull/internal/tokens"
)

// JobStatus is the state of a job. The numbers are part of the HTTP contract.
type JobStatus int

// The states of a job.
const (
	Queued    JobStatus = 1001
	Inflight  JobStatus = 1002
	Delivered JobStatus = 1003
	Dead      JobStatus = 1004
	// Removed is the state of a job that was purged from the queue or the dead letters. No list, count or lookup shows it.
	Removed JobStatus = 1005
)

// JobStatuses lists the visible states in the order of a job's life.
var JobStatuses = [...]JobStatus{Queued, Inflight, Delivered, Dead}

var jobStatusNames = map[JobStatus]string{
	Queued: "QUEUED", Inflight: "INFLIGHT", Delivered: "DELIVERED", Dead: "DEAD", Removed: "REMOVED",
}

// String returns the name of the state as the HTTP contract spells it.
func (s JobStatus) String() string {
	if name, ok := jobStatusNames[s]; ok {
		return name
	}
	return strconv.Itoa(int(s))
}

// LogValue returns the name that the HTTP interface uses.
func (s JobStatus) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Settled reports whether a job stays in this state until a request changes it.
func (s JobStatus) Settled() bool { return s >= Delivered }

// ParseJobStatus returns the state with this name in the HTTP contract.
func ParseJobStatus(name string) (JobStatus, bool) {
	for _, s := range JobStatuses {
		if jobStatusNames[s] == name {
			return s, true
		}
	}
	return 0, false
}

// MessageStatus is the state of a message. The numbers are part of the HTTP contract.
type MessageStatus int

// The states of a message. A scheduled message is pending until its time. Any other message is dispatched as soon as it is stored, because storing it
// creates the jobs of all consumers.
const (
	Pending    MessageStatus = 101
	Dispatched MessageStatus = 102
)

// JobID identifies a job by its message and its consumer, so that no index is needed to find either.
type JobID struct {
	Seq      uint64 // the message's sequence in the store
	Consumer uint32 // the consumer's number
}

// String returns the ID in the form of an xid: 20 characters of base32hex.
func (id JobID) String() string {
	var raw xid.ID
	binary.BigEndian.PutUint64(raw[:8], id.Seq)
	binary.BigEndian.PutUint32(raw[8:], id.Consumer)
	return raw.String()
}

// LogValue returns the form that the HTTP interface uses.
func (id JobID) LogValue() slog.Value { return slog.StringValue(id.String()) }

// ParseJobID is the inverse of [JobID.String]. It returns an error for an ID that no job can have.
func ParseJobID(s string) (JobID, error) {
	raw, err := xid.FromString(s)
	if err != nil {
		return JobID{}, fmt.Errorf("job ID %q is not 20 characters of base32hex", s)
	}
	id := JobID{Seq: binary.BigEndian.Uint64(raw[:8]), Consumer: binary.BigEndian.Uint32(raw[8:])}
	if id.Seq == 0 || id.Consumer == 0 {
		return JobID{}, fmt.Errorf("job ID %q names no message or no consumer", s)
	}
	return id, nil
}

// NewID returns an ID for a message that has none.
func NewID() string { return xid.New().String() }

// The pull state machine. Time and I/O are arguments, so that a table can test every step.
//
//	           claim, start processing
//	   ┌──────────────────────────────────────┐
//	   │                                      ▼
//	[QUEUED] ◄────── time limit over ──── [INFLIGHT] ── successful ──► [DELIVERED]
//	   ▲           (retry count + 1)        │    ▲                         ■
//	   │                                    │    │
//	   │                          failed,   │    │ start processing again
//	   │                    or retries over │    │ (retry count + 1)
//	   │                                    ▼    │
//	   └──────────── requeue ───────────── [DEAD]
//	              (retry count 0)
//
// Rules that the arrows do not show:
//   - A request for the state that the job is in is accepted and changes nothing.
//   - A timeout belongs to a request for INFLIGHT on a job that is not INFLIGHT.
//   - If a request has a claim token and that claim has ended, the request is
//     refused, so that a slow worker learns that it was too slow. Repeating the
//     request that ended the claim is accepted.

// Request is a worker's request for a transition.
type Request struct {
	Next JobStatus
	// Timeout is added to the limit of the claim. 0 means that the request has none.
	Timeout time.Duration
	// Claim is the token of the claim that the worker believes it holds.
	Claim string
}

// Transition applies a worker's request to a job. limit is the duration of a claim without an incremental timeout.
func Transition(job Job, req Request, now time.Time, limit time.Duration) (Job, error) {
	if req.Claim != "" && !holds(job, req) {
		return job, ErrClaimLost
	}
	if req.Timeout != 0 && (req.Next != Inflight || job.Status == Inflight) {
		return job, fmt.Errorf("%w: IncrementalTimeout of %v with NextState %s, and the job is %s: give it with INFLIGHT for a job that is not "+
			"INFLIGHT, or extend the claim",
			ErrTimeoutWithInvalidState, req.Timeout, req.Next, job.Status)
	}
	switch {
	case job.Status == req.Next:
		return job, nil
	case job.Status == Queued && req.Next == Inflight:
		return startClaim(job, "", req.Timeout, now, limit), nil
	case job.Status == Dead && req.Next == Inflight:
		job.Retries++
		return startClaim(job, "", req.Timeout, now, limit), nil
	case job.Status == Inflight && (req.Next == Delivered || req.Next == Dead):
		return Settle(job, req.Next, now), nil
	}
	return job, fmt.Errorf("%w: NextState %s, and the job is %s: give %s", ErrInvalidTransition, req.Next, job.Status, accepts[job.Status])
}

// accepts lists, by state of a job, the states that a worker may request.
var accepts = map[JobStatus]string{
	Queued: "INFLIGHT", Inflight: "DELIVERED or DEAD", Dead: "INFLIGHT", Delivered: "none, a job that is DELIVERED stays so",
}

// Claim assigns a queued job to one worker, identified by token. It returns an error if the job is no longer queued.
func Claim(job Job, token string, timeout time.Duration, now time.Time, limit time.Duration) (Job, error) {
	if job.Status != Queued {
		return job, ErrConflict
	}
	return startClaim(job, token, timeout, now, limit), nil
}

// Extend renews the claim of an inflight job for a full limit from now, plus timeout. If the claim has a token, token must match it.
func Extend(job Job, token string, timeout time.Duration, now time.Time, limit time.Duration) (Job, error) {
	if job.Status != Inflight {
		if token != "" {
			return job, ErrClaimLost
		}
		return job, fmt.Errorf("%w: the job is %s: the claim of an INFLIGHT job can be extended", ErrInvalidTransition, job.Status)
	}
	if (token != "" || job.Claim != "") && !tokens.Same(job.Claim, token) {
		return job, ErrClaimLost
	}
	job.Due = now.Add(limit + timeout)
	job.IncrementalTimeout = timeout
	return job, nil
}

// Expire ends a claim that the caller knows to have expired. It changes nothing if the claim has ended meanwhile.
func Expire(job Job, now time.Time, maxRetry int) Job {
	switch {
	case job.Status != Inflight:
		return job
	case job.Exhausted(maxRetry):
		return Settle(job, Dead, now)
	}
	job.Retries++
	return Settle(job, Queued, now)
}

// Requeue queues a dead job with all its retries.
func Requeue(job Job, now time.Time) (Job, error) {
	if job.Status != Dead {
		return job, ErrInvalidTransition
	}
	next := Settle(job, Queued, now)
	next.Retries = 0
	return next, nil
}

// Remove removes a dead job from the dead letters for good.
func Remove(job Job, now time.Time, maxRetry int) (Job, error) {
	switch {
	case job.Status != Dead:
		return job, ErrNotFound
	case !job.Exhausted(maxRetry):
		return job, ErrRetriesLeft
	}
	return Settle(job, Removed, now), nil
}

// Drop removes a queued job for good.
func Drop(job Job, now time.Time) (Job, error) {
	if job.Status != Queued {
		return job, ErrInvalidTransition
	}
	return Settle(job, Removed, now), nil
}

func startClaim(job Job, token string, timeout time.Duration, now time.Time, limit time.Duration) Job {
	job.Status = Inflight
	job.ChangedAt = now
	job.Due = now.Add(limit + timeout)
	job.IncrementalTimeout = timeout
	job.Claim = token
	return job
}

// holds reports whether a request names the job's claim. A worker that has completed its job still holds the claim, so that it can repeat the request
// if the response was lost.
func holds(job Job, req Request) bool {
	return tokens.Same(job.Claim, req.Claim) && (job.Status == Inflight || job.Status == req.Next)
}

// Settle moves a job to a state in which no worker holds it. A delivered or dead job keeps the token of its last claim, so that a repeated request is
// recognized.
func Settle(job Job, status JobStatus, now time.Time) Job {
	job.Status = status
	job.ChangedAt = now
	job.Due = time.Time{}
	if status == Queued || status == Removed {
		job.Claim = ""
	}
	return job
}

// Backoff is a list of delays between the attempts of a callback.
type Backoff []time.Duration

// Delay returns the wait before retry n, which counts from 1: the n-th delay of the list. Past the end of the list it is the last delay times 2, 3
// and so on. An empty list means no delay.
func (b Backoff) Delay(n int) time.Duration {
	switch {
	case len(b) == 0 || n < 1:
		return 0
	case n <= len(b):
		return b[n-1]
	}
	return time.Duration(n-len(b)+1) * b[len(b)-1]
}

// Attempted returns the job after a callback: delivered, queued for another attempt, or dead if it has no retries left. The next attempt waits at
// least as long as the receiver asked for.
func Attempted(job Job, success bool, asked time.Duration, now time.Time, backoff Backoff, maxRetry int) Job {
	switch {
	case success:
		return Settle(job, Delivered, now)
	case job.Exhausted(maxRetry):
		return Settle(job, Dead, now)
	}
	next := Settle(job, Queued, now)
	next.Retries++
	next.Due = now.Add(max(backoff.Delay(next.Retries), asked))
	return next
}

// Attempt is one callback and its result.
type Attempt struct {
	// Number counts from 1 over the life of a job.
	Number    int
	StartedAt time.Time
	Duration  time.Duration
	// StatusCode is the status of the answer, or 0 without one.
	StatusCode int
	Error      string // empty after a success
	// Header and Body are the first 4 KiB of each, without secrets. Both are empty if the first attempt at a job succeeded, because the job's record
	// holds such an attempt.
	Header map[string]string
	Body   []byte
}
