package domain

import (
	"fmt"
	"testing"
	"time"

	"github.com/rs/xid"
	"github.com/stretchr/testify/require"
)

var t0 = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// The table has a row for every state × request, with the outcome in the source document.
func TestTransitionTable(t *testing.T) {
	const limit = 32250 * time.Millisecond
	outcomes := map[JobStatus]map[JobStatus]string{
		Queued:    {Queued: "same", Inflight: "claim", Delivered: "invalid", Dead: "invalid"},
		Inflight:  {Queued: "invalid", Inflight: "same", Delivered: "settle", Dead: "settle"},
		Delivered: {Queued: "invalid", Inflight: "invalid", Delivered: "same", Dead: "invalid"},
		Dead:      {Queued: "invalid", Inflight: "claim+1", Delivered: "invalid", Dead: "same"},
	}
	for _, from := range JobStatuses {
		for _, to := range JobStatuses {
			for _, timeout := range []time.Duration{0, 10 * time.Second} {
				t.Run(fmt.Sprintf("%s to %s with %s", from, to, timeout), func(t *testing.T) {
					job := Job{Status: from, Retries: 2, ChangedAt: t0.Add(-time.Hour), Revision: 7}
					next, err := Transition(job, Request{Next: to, Timeout: timeout}, t0, limit)
					if timeout != 0 && (to != Inflight || from == Inflight) {
						require.ErrorIs(t, err, ErrTimeoutWithInvalidState)
						require.Equal(t, job, next)
						return
					}
					want := job
					switch outcomes[from][to] {
					case "same":
						require.NoError(t, err)
					case "invalid":
						require.ErrorIs(t, err, ErrInvalidTransition)
					case "claim+1":
						want.Retries++
						fallthrough
					case "claim":
						want.Due, want.IncrementalTimeout = t0.Add(limit+timeout), timeout
						want.Status, want.ChangedAt = to, t0
						require.NoError(t, err)
					case "settle":
						want.Status, want.ChangedAt = to, t0
						require.NoError(t, err)
					}
					require.Equal(t, want, next)
				})
			}
		}
	}
}

// Two steps are based on the same state. The store accepts one of them, and the other is decided again on the new state.
func TestTransitionRaces(t *testing.T) {
	const limit, maxRetry = 10 * time.Second, 2
	held := Job{Status: Inflight, Claim: "mine", Due: t0.Add(limit)}
	expired := Expire(held, t0.Add(limit), maxRetry)
	require.Equal(t, Queued, expired.Status)
	require.Equal(t, 1, expired.Retries)
	done, err := Transition(held, Request{Next: Delivered, Claim: "mine"}, t0, limit)
	require.NoError(t, err)
	others, err := Claim(expired, "others", 0, t0, limit)
	require.NoError(t, err)
	extended, err := Extend(held, "mine", time.Minute, t0.Add(5*time.Second), limit)
	require.NoError(t, err)

	for _, tt := range []struct {
		name string
		job  Job
		req  Request
		want error
	}{
		{"done after the claim expired", expired, Request{Next: Delivered, Claim: "mine"}, ErrClaimLost},
		{"done after another worker claimed", others, Request{Next: Delivered, Claim: "mine"}, ErrClaimLost},
		{"dead after another worker claimed", others, Request{Next: Dead, Claim: "mine"}, ErrClaimLost},
		{"done twice, the answer was lost", done, Request{Next: Delivered, Claim: "mine"}, nil},
		{"dead after done", done, Request{Next: Dead, Claim: "mine"}, ErrClaimLost},
		{"done by another after done", done, Request{Next: Delivered, Claim: "others"}, ErrClaimLost},
		{"done while extended", extended, Request{Next: Delivered, Claim: "mine"}, nil},
		{"done without a token after expiry", expired, Request{Next: Delivered}, ErrInvalidTransition},
		{"done without a token on another's claim", others, Request{Next: Delivered}, nil},
		{"again in flight with a lost claim", expired, Request{Next: Inflight, Claim: "mine"}, ErrClaimLost},
	} {
		_, err := Transition(tt.job, tt.req, t0, limit)
		require.ErrorIs(t, err, tt.want, tt.name)
	}

	require.Equal(t, done, Expire(done, t0.Add(time.Hour), maxRetry), "a job that is done does not expire")
	_, err = Claim(others, "third", 0, t0, limit)
	require.ErrorIs(t, err, ErrConflict)
	for _, lost := range []Job{expired, done, others} {
		_, err = Extend(lost, "mine", 0, t0, limit)
		require.ErrorIs(t, err, ErrClaimLost)
	}
	_, err = Extend(held, "", 0, t0, limit)
	require.ErrorIs(t, err, ErrClaimLost, "a claim with a token is not extended without")
}

func TestExpireUntilDead(t *testing.T) {
	job := Job{Status: Inflight, Due: t0}
	for retry := 1; retry <= 3; retry++ {
		next := Expire(job, t0, 3)
		require.Equal(t, Queued, next.Status)
		require.Equal(t, retry, next.Retries)
		job, _ = Claim(next, "", 0, t0, 0)
	}
	next := Expire(job, t0, 3)
	require.Equal(t, Dead, next.Status)
	require.True(t, next.Exhausted(3))
	removed, err := Remove(next, t0, 3)
	require.NoError(t, err)
	require.Equal(t, Removed, removed.Status)
	requeued, err := Requeue(next, t0)
	require.NoError(t, err)
	require.Zero(t, requeued.Retries)
	_, err = Requeue(requeued, t0)
	require.ErrorIs(t, err, ErrInvalidTransition)
	_, err = Remove(Job{Status: Dead, Retries: 2}, t0, 3)
	require.ErrorIs(t, err, ErrRetriesLeft)
	_, err = Remove(Job{Status: Queued, Retries: 3}, t0, 3)
	require.ErrorIs(t, err, ErrNotFound)
}

func TestAttempts(t *testing.T) {
	backoff := Backoff{5 * time.Second, 30 * time.Second, 60 * time.Second}
	job := Job{Status: Inflight}
	for _, want := range []int{7, 30, 60, 120, 180} {
		job = Attempted(job, false, 7*time.Second, t0, backoff, 5)
		require.Equal(t, Queued, job.Status)
		require.Equal(t, t0.Add(time.Duration(want)*time.Second), job.Due)
	}
	require.Equal(t, Dead, Attempted(job, false, 7*time.Second, t0, backoff, 5).Status)
	require.Equal(t, Delivered, Attempted(job, true, 0, t0, backoff, 5).Status)
	require.Zero(t, Backoff(nil).Delay(3))
}

func TestJobIDIsAnXid(t *testing.T) {
	for _, id := range []JobID{{1, 1}, {1 << 40, 77}, {1<<64 - 1, 1<<32 - 1}} {
		_, err := xid.FromString(id.String())
		require.NoError(t, err)
		back, err := ParseJobID(id.String())
		require.NoError(t, err)
		require.Equal(t, id, back)
	}
	for _, bad := range []string{
		"", "x", "00000000000000000000", JobID{0, 1}.String(), JobID{1, 0}.String(), JobID{1, 1}.String() + "0",
		"zzzzzzzzzzzzzzzzzzzz",
	} {
		_, err := ParseJobID(bad)
		require.Error(t, err, bad)
	}
}

func FuzzParseJobID(f *testing.F) {
	f.Add(JobID{5, 6}.String())
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := ParseJobID(s); err == nil {
			require.Equal(t, s, id.String())
		}
	})
}

func TestStatusNumbersOfTheContract(t *testing.T) {
	for name, number := range map[string]int{"QUEUED": 1001, "INFLIGHT": 1002, "DELIVERED": 1003, "DEAD": 1004} {
		s, ok := ParseJobStatus(name)
		require.True(t, ok)
		require.Equal(t, number, int(s))
		require.Equal(t, name, s.String())
	}
	_, ok := ParseJobStatus("REMOVED")
	require.False(t, ok)
	require.Equal(t, 102, int(Dispatched))
	require.Equal(t, 101, int(Pending))
}
