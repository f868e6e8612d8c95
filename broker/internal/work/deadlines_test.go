package work

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// What is due while the store takes nothing waits, with one line in the log, and
// is done when it does again.
func TestDueWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemoryStore(100)
		var logs bytes.Buffer
		parts := partsOf(s)
		parts.Logger = slog.New(slog.NewTextHandler(&logs, nil))
		b := New(parts)
		for id, j := range s.jobs {
			j.Status, j.Due, j.Revision = domain.Inflight, time.Now().Add(time.Second), 1
			s.jobs[id] = j
			b.deadlines.jobChanged(j)
		}
		s.down = errors.New("the disk failed")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.Dispatch.due.run(ctx, b.deadlines.fire) }()
		status := func() (n map[domain.JobStatus]int) {
			synctest.Wait()
			n = map[domain.JobStatus]int{}
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, j := range s.jobs {
				n[j.Status]++
			}
			return n
		}
		time.Sleep(time.Hour)
		require.Equal(t, map[domain.JobStatus]int{domain.Inflight: 100}, status())
		require.Equal(t, 1, strings.Count(logs.String(), "\n"), logs.String())
		require.Contains(t, logs.String(), "the disk failed")
		s.mu.Lock()
		s.down = nil
		s.mu.Unlock()
		time.Sleep(storePause)
		require.Equal(t, map[domain.JobStatus]int{domain.Queued: 100}, status())
		require.Equal(t, 2, strings.Count(logs.String(), "\n"), logs.String())
		s.mu.Lock()
		s.down = errors.New("down at the end")
		s.mu.Unlock()
		b.Dispatch.due.add(dueItem{id: domain.JobID{Seq: 1, Consumer: 1}})
		synctest.Wait()
		cancel()
		<-done
		b.core.running.Wait()
	})
}

// Items come up at their time, the earliest first, whatever the order in which
// they were added.
func TestDueQueueInVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newDueQueue()
		begin := time.Now()
		type firing struct {
			seq   uint64
			after time.Duration
		}
		var fired []firing
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			q.run(ctx, func(_ context.Context, item dueItem) {
				fired = append(fired, firing{item.id.Seq, time.Since(begin)})
				if item.id.Seq == 1 {
					q.add(dueItem{at: begin.Add(90 * time.Second), id: domain.JobID{Seq: 9}})
				}
			})
		}()
		add := func(seq uint64, after time.Duration) {
			q.add(dueItem{at: begin.Add(after), id: domain.JobID{Seq: seq}})
		}
		add(3, 3*time.Hour)
		synctest.Wait()
		add(1, time.Minute)
		add(2, 2*time.Minute)
		add(0, -time.Minute)
		time.Sleep(4 * time.Hour)
		cancel()
		<-done
		require.Equal(t, []firing{{0, 0}, {1, time.Minute}, {9, 90 * time.Second}, {2, 2 * time.Minute}, {3, 3 * time.Hour}}, fired)
	})
}

// A claim with a long timeout that is over costs no memory until its time has come.
func TestTimersOfClaimsThatAreOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 1000
		d := dispatch(t, jobs)
		defer d.stop()
		timers := func() int {
			d.Dispatch.due.mu.Lock()
			defer d.Dispatch.due.mu.Unlock()
			return d.Dispatch.due.items.Len()
		}
		k := domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}, Type: domain.Pull}
		for range jobs {
			work, err := d.Jobs.ClaimJobs(t.Context(), k, 1, 7*24*time.Hour, 0)
			require.NoError(t, err)
			d.deadlines.jobChanged(work[0].Job) // what the store tells
			_, err = d.Jobs.TransitionJob(t.Context(), work[0].Job.ID, domain.Request{Next: domain.Delivered, Claim: work[0].Job.Claim})
			require.NoError(t, err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Zero(t, timers(), "an hour after the last job was done")
	})
}

// One that goes on ends at its time, and not before.
func TestLongClaimStillExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 1)
		defer d.stop()
		k := domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}, Type: domain.Pull}
		work, err := d.Jobs.ClaimJobs(t.Context(), k, 1, 2*time.Hour, 0)
		require.NoError(t, err)
		d.deadlines.jobChanged(work[0].Job)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Equal(t, domain.Inflight, d.status(1))
		time.Sleep(40 * time.Second)
		synctest.Wait()
		require.Equal(t, domain.Queued, d.status(1))
		require.Equal(t, 1, d.job(1).Retries)
	})
}
