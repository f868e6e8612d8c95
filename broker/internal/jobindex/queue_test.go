package jobindex

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// running runs the timers of an index, and collects the claims that have expired.
func running(t *testing.T, x *Index) (expired *[]uint64, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	expired = new([]uint64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			j, ok := x.Queue.Expired(ctx)
			if !ok {
				return
			}
			*expired = append(*expired, j.ID.Seq)
		}
	}()
	return expired, func() { cancel(); <-done }
}

func sequences(jobs []domain.Job) (seqs []uint64) {
	for _, j := range jobs {
		seqs = append(seqs, j.ID.Seq)
	}
	return seqs
}

// Timers fire at their time, the earliest first, in whatever order they were set, and only if the job has not changed.
func TestDueInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New()
		x.PutConsumer("ch", domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}})
		expired, stop := running(t, x)
		defer stop()
		begin := time.Now()
		for seq := uint64(1); seq <= 6; seq++ {
			x.AddMessage("ch", Entry{Seq: seq, At: begin.UnixNano()}, "")
		}
		put := func(seq, revision uint64, status domain.JobStatus, due time.Duration) {
			x.PutRecord(domain.Job{ID: domain.JobID{Seq: seq, Consumer: 1}, Status: status, Revision: revision, Due: begin.Add(due), ChangedAt: begin})
			synctest.Wait()
		}
		put(3, 1, domain.Inflight, 3*time.Hour)
		put(2, 1, domain.Queued, 2*time.Minute)
		put(1, 1, domain.Inflight, time.Minute)
		put(4, 1, domain.Inflight, time.Minute)
		put(4, 2, domain.Inflight, 2*time.Hour) // extended
		require.Equal(t, []uint64{5, 6}, sequences(x.Queue.Queued(1, 9)))
		taken := x.Queue.Take(1, 2)
		x.Queue.GiveBackAfter(taken[0], 90*time.Second)
		require.Empty(t, x.Queue.Queued(1, 9))

		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		require.Equal(t, []uint64{1}, *expired)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []uint64{2, 5}, sequences(x.Queue.Queued(1, 9)), "the other is taken still")
		time.Sleep(4 * time.Hour)
		synctest.Wait()
		require.Equal(t, []uint64{1, 4, 3}, *expired)
	})
}

// The timer of a claim that has ended early takes no memory until its time, even if the claim had a long timeout.
func TestTimersOfClaimsThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New()
		x.PutConsumer("ch", domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}})
		expired, stop := running(t, x)
		for seq := uint64(1); seq <= 1000; seq++ {
			j := domain.Job{ID: domain.JobID{Seq: seq, Consumer: 1}, Status: domain.Inflight, Revision: 2 * seq, Due: time.Now().AddDate(0, 0, 7)}
			x.PutRecord(j)
			j.Status, j.Revision = domain.Delivered, 2*seq+1
			x.PutRecord(j)
		}
		time.Sleep(time.Hour)
		stop()
		require.Empty(t, *expired)
		require.Zero(t, x.Queue.timers.Len(), "an hour after the last job was done")
	})
}

// Ready returns push consumers that have a job to take, have new settings, or were removed, and no pull consumers.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New()
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan []uint32)
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer close(got)
			for {
				ready := x.Queue.Ready(ctx)
				if len(ready) == 0 {
					return
				}
				got <- ready
			}
		}()
		none := func(what string) {
			t.Helper()
			synctest.Wait()
			select {
			case ready := <-got:
				t.Fatalf("%s: %v are ready", what, ready)
			default:
			}
		}
		push := domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}, Type: domain.Push}
		x.PutConsumer("ch", push)
		require.Equal(t, []uint32{1}, <-got)
		x.PutConsumer("ch", domain.Consumer{Stakeholder: domain.Stakeholder{Number: 2}, Type: domain.Pull})
		none("a worker's")
		x.AddMessage("ch", Entry{Seq: 1, At: time.Now().UnixNano()}, "")
		require.Equal(t, []uint32{1}, <-got)
		j := x.Queue.Take(1, 1)[0]
		none("a job is taken")
		x.Queue.GiveBack(j)
		require.Equal(t, []uint32{1}, <-got)
		j = x.Queue.Take(1, 1)[0]
		j.Revision, j.Status = 7, domain.Inflight
		x.PutRecord(j)
		none("a job is in flight")
		j.Revision, j.Status = 8, domain.Queued
		x.PutRecord(j)
		require.Equal(t, []uint32{1}, <-got)
		push.Type = domain.Pull
		x.PutConsumer("ch", push)
		require.Equal(t, []uint32{1}, <-got)
		push.Type = domain.Push
		x.PutConsumer("ch", push)
		require.Equal(t, []uint32{1}, <-got)
		x.RemoveConsumer(1)
		require.Equal(t, []uint32{1}, <-got)
		cancel()
		<-done
	})
}

// A worker is notified once of the next job.
func TestQueuedSignal(t *testing.T) {
	x := New()
	x.PutConsumer("ch", domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}, Type: domain.Pull})
	signal := x.Queue.QueuedSignal(1)
	x.AddMessage("ch", Entry{Seq: 1, At: time.Now().UnixNano()}, "")
	<-signal
	require.NotEqual(t, signal, x.Queue.QueuedSignal(1))
	signal = x.Queue.QueuedSignal(1)
	x.RemoveConsumer(1)
	<-signal
}

// A job is not taken before its time, unless the consumer's type changes, and never twice.
func TestJobThatWaitsForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New()
		k := domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}, Type: domain.Push}
		x.PutConsumer("ch", k)
		_, stop := running(t, x)
		defer stop()
		x.AddMessage("ch", Entry{Seq: 1, At: time.Now().UnixNano()}, "")
		job := x.Queue.Take(1, 10)[0]
		job.Retries, job.Due, job.Revision = 1, time.Now().Add(time.Hour), 1
		x.PutRecord(job)
		require.Equal(t, 1, x.CountJobs(1)[0].Count)
		require.Empty(t, x.Queue.Take(1, 10))
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Len(t, x.Queue.Take(1, 10), 1)
		require.Empty(t, x.Queue.Take(1, 10), "it is taken")
		x.Queue.GiveBack(domain.Job{ID: job.ID})
		require.Empty(t, x.Queue.Take(1, 10), "it has changed since")
		x.Queue.GiveBack(job)
		require.Len(t, x.Queue.Take(1, 10), 1)
		job.Revision, job.Due = 2, time.Now().Add(time.Hour)
		x.PutRecord(job)
		require.Empty(t, x.Queue.Take(1, 10))
		k.Type = domain.Pull
		x.PutConsumer("ch", k)
		require.Equal(t, []uint64{1}, sequences(x.Queue.Queued(1, 10)))
	})
}

// If a job's record arrives before its consumer, its timer is set when the consumer arrives.
func TestRecordsThatComeBeforeTheirConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New()
		expired, stop := running(t, x)
		defer stop()
		x.PutRecord(domain.Job{ID: domain.JobID{Seq: 1, Consumer: 5}, Status: domain.Queued, Due: time.Now().Add(time.Minute), Revision: 1})
		x.PutRecord(domain.Job{ID: domain.JobID{Seq: 2, Consumer: 5}, Status: domain.Inflight, Due: time.Now().Add(time.Minute), Revision: 2})
		x.PutConsumer("ch", domain.Consumer{Stakeholder: domain.Stakeholder{Number: 5}, Channel: "ch", Type: domain.Push})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, []uint64{1}, sequences(x.Queue.Queued(5, 9)))
		require.Equal(t, []uint64{2}, *expired)
	})
}
