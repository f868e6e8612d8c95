package jobindex

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// steps are by how much a server's clock is set.
var steps = []time.Duration{time.Hour, -time.Hour, 10 * time.Minute, -10 * time.Minute}

// consumerWithMessages returns an index of n messages.
func consumerWithMessages(n uint64) *Index {
	x := New()
	x.PutConsumer("ch", domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}})
	for seq := uint64(1); seq <= n; seq++ {
		x.AddMessage("ch", Entry{Seq: seq, At: x.Clock.Now().UnixNano()}, "")
	}
	return x
}

// ending runs the timers of an index, and sends the sequences of claims that end.
func ending(t *testing.T, x *Index) (ended chan uint64, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended = make(chan uint64, 200)
	var running sync.WaitGroup
	running.Go(func() {
		for j, ok := x.Queue.Expired(ctx); ok; j, ok = x.Queue.Expired(ctx) {
			ended <- j.ID.Seq
		}
	})
	return ended, func() { cancel(); running.Wait() }
}

// putDue puts a record that was written a time ago by the store's clock, and is due after a wait.
func putDue(x *Index, seq, revision uint64, status domain.JobStatus, ago, wait time.Duration) domain.Job {
	changed := x.Clock.Now().Add(-ago)
	j := domain.Job{ID: domain.JobID{Seq: seq, Consumer: 1}, Status: status, Revision: revision, ChangedAt: changed, Due: changed.Add(wait)}
	x.PutRecord(j)
	return j
}

// The server's clock is set while 30 retries and 30 claims wait: none of them is early or late. Nor are those that begin then.
func TestServersClockIsSetWhileJobsWait(t *testing.T) {
	for _, step := range steps {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := consumerWithMessages(120)
				ended, stop := ending(t, x)
				defer stop()
				wait := func(from uint64) {
					for seq := from; seq < from+30; seq++ {
						putDue(x, seq, seq, domain.Queued, 0, time.Minute)
						putDue(x, seq+30, seq+30, domain.Inflight, 0, time.Minute)
					}
				}
				fired := func() (retries, claims int) {
					synctest.Wait()
					return len(x.Queue.Queued(1, 200)), len(ended)
				}
				check := func(wantRetries, wantClaims int) {
					t.Helper()
					retries, claims := fired()
					require.Equal(t, []int{wantRetries, wantClaims}, []int{retries, claims})
				}
				wait(1)
				check(60, 0)
				time.Sleep(30 * time.Second)
				x.Clock.Set(time.Now().Add(step), time.Now())
				wait(61)
				time.Sleep(29 * time.Second)
				check(0, 0)
				time.Sleep(2 * time.Second)
				check(30, 30)
				time.Sleep(28 * time.Second)
				check(30, 30)
				time.Sleep(2 * time.Second)
				check(60, 60)
			})
		})
	}
}

// A process starts after the server's clock was set. A job that waits is due at once if the clock was set ahead, and otherwise after no more
// than its whole wait.
func TestServersClockIsSetBeforeAStart(t *testing.T) {
	for _, step := range steps {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := consumerWithMessages(2)
				ended, stop := ending(t, x)
				defer stop()
				putDue(x, 1, 1, domain.Queued, step, time.Minute)
				putDue(x, 2, 2, domain.Inflight, step, time.Minute)
				if step < 0 {
					time.Sleep(59 * time.Second)
					synctest.Wait()
					require.Empty(t, ended)
					require.Empty(t, x.Queue.Queued(1, 9))
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.Len(t, ended, 1)
				require.Equal(t, []uint64{1}, sequences(x.Queue.Queued(1, 9)))
			})
		})
	}
}

// Another node's claims are seen late, and have then less time.
func TestRecordsThatAreSeenLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := consumerWithMessages(1)
		x.Clock.Set(time.Now().Add(10*time.Minute), time.Now()) // the clock of this process is behind
		ended, stop := ending(t, x)
		defer stop()
		putDue(x, 1, 1, domain.Inflight, 20*time.Second, 32*time.Second)
		time.Sleep(11 * time.Second)
		synctest.Wait()
		require.Empty(t, ended)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, ended, 1)
	})
}
