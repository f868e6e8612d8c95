package work

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Claims that expire while the store is down wait for it, without a line in the log, and end when it is back.
func TestDueWaitsForTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newMemoryStore(100)
		var logs bytes.Buffer
		parts := partsOf(s)
		parts.Log = slog.New(slog.NewTextHandler(&logs, nil))
		b := New(parts)
		for id, j := range s.jobs {
			j.Status, j.Due, j.Revision = domain.Inflight, time.Now().Add(time.Second), 1
			s.jobs[id] = j
			s.index.PutRecord(j)
		}
		s.down = errors.New("the disk failed")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); b.Jobs.expireClaims(ctx) }()
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
		s.mu.Lock()
		s.down = nil
		s.mu.Unlock()
		time.Sleep(expirePause)
		require.Equal(t, map[domain.JobStatus]int{domain.Queued: 100}, status())
		require.Empty(t, logs.String())
		s.mu.Lock()
		s.down = errors.New("down at the end")
		s.mu.Unlock()
		over := s.jobs[domain.JobID{Seq: 1, Consumer: 1}]
		over.Status, over.Due, over.Revision = domain.Inflight, time.Now(), over.Revision+1
		s.index.PutRecord(over)
		time.Sleep(time.Second)
		synctest.Wait()
		cancel()
		<-done
		b.running.Wait()
	})
}

// A claim with a long timeout ends at its time, and not before.
func TestLongClaimStillExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dispatch(t, 1)
		defer d.stop()
		d.store.consumer.Type = domain.Pull
		d.store.index.PutConsumer("ch", d.store.consumer)
		d.begin()
		k := domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}, Type: domain.Pull}
		_, err := d.Jobs.ClaimJobs(t.Context(), k, 1, 2*time.Hour, 0)
		require.NoError(t, err)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		require.Equal(t, domain.Inflight, d.status(1))
		time.Sleep(40 * time.Second)
		synctest.Wait()
		require.Equal(t, domain.Queued, d.status(1))
		require.Equal(t, 1, d.job(1).Retries)
	})
}
