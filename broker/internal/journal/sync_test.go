package journal

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/natstest/power"
)

// An answer that an object exists already waits for the sync that the object's writer waits for.
func TestAnswersWaitForTheSyncOfOthers(t *testing.T) {
	dir := t.TempDir()
	disk := &power.Disk{}
	s, stop := runOn(t, dir, Config{}, disk)
	defer stop()
	k := makeConsumer(t, s, "ch", "k", domain.Pull)
	m, err := s.Messages.Append(t.Context(), domain.Message{ID: "before", Channel: "ch"})
	require.NoError(t, err)
	id := domain.JobID{Seq: m.Seq, Consumer: k.Number}

	// The disk is slow.
	_, messagesGoOn := disk.Hold(power.Blocks(dir, "broker_messages"))
	_, jobsGoOn := disk.Hold(power.Blocks(dir, "broker_jobs"))
	first := make(chan error, 2)
	go func() {
		_, err := s.Messages.Append(t.Context(), domain.Message{ID: "m", Channel: "ch"})
		first <- err
	}()
	go func() {
		_, err := s.Jobs.PutJob(t.Context(), domain.Job{ID: id, Status: domain.Delivered, ChangedAt: time.Now()})
		first <- err
	}()
	require.Eventually(t, func() bool {
		_, err := s.Messages.Message(t.Context(), "ch", "m")
		j, ok := s.Index.Lookup(id)
		return err == nil && ok && j.Status == domain.Delivered
	}, 10*time.Second, time.Millisecond)

	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = s.Messages.Append(short, domain.Message{ID: "m", Channel: "ch"})
	require.NotErrorIs(t, err, domain.ErrDuplicateMessage, "said before it was on disk")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.Jobs.Refresh(short, id)
	require.ErrorIs(t, err, context.DeadlineExceeded, "said before it was on disk")
	require.Empty(t, first)

	messagesGoOn()
	jobsGoOn()
	require.NoError(t, <-first)
	require.NoError(t, <-first)
	_, err = s.Messages.Append(t.Context(), domain.Message{ID: "m", Channel: "ch"})
	require.ErrorIs(t, err, domain.ErrDuplicateMessage)
	j, err := s.Jobs.Refresh(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, domain.Delivered, j.Status)
}

func TestNobodyWaitsAfterClose(t *testing.T) {
	dir := t.TempDir()
	disk := &power.Disk{}
	s, stop := runOn(t, dir, Config{}, disk)
	stop()
	require.ErrorIs(t, s.messageWrites.DurableAt(t.Context(), 0), domain.ErrUnavailable)
}

// Data stored before the start is on disk after it. Claims of that data do not wait for a sync, and the first write does not sync
// all blocks.
func TestNothingIsSyncedAgainAfterAStart(t *testing.T) {
	dir := t.TempDir()
	disk := &power.Disk{}
	s, stop := runOn(t, dir, Config{}, disk)
	k := makeConsumer(t, s, "ch", "k", domain.Pull)
	old := []uint64{appendMessage(t, s, "ch", "a", 0).Seq, appendMessage(t, s, "ch", "b", 0).Seq, fillBlock(t, s, dir, 2)}
	stop()
	var syncs atomic.Int64
	s, stop = runOn(t, dir, Config{}, &power.Disk{Synced: func(path string, _ int64) {
		if filepath.Dir(path) == power.Blocks(dir, "broker_messages") && filepath.Ext(path) == ".blk" {
			syncs.Add(1)
		}
	}})
	defer stop()
	atOpen := syncs.Load()
	require.Positive(t, atOpen)
	for _, seq := range old {
		_, err := s.Jobs.PutJob(t.Context(), domain.Job{
			ID: domain.JobID{Seq: seq, Consumer: k.Number}, Status: domain.Inflight, Due: time.Now().Add(time.Hour),
		})
		require.NoError(t, err)
	}
	require.Equal(t, atOpen, syncs.Load(), "a claim waited for a sync of what the start has synced")
	appendMessage(t, s, "ch", "c", 0)
	require.Equal(t, atOpen+1, syncs.Load(), "not the last block only")
}

// A PUT that changes nothing is answered only when the object that it found is on disk.
func TestRepeatedPutWaitsForTheFirst(t *testing.T) {
	dir := t.TempDir()
	var d power.Disk
	s, stop := runOn(t, dir, Config{}, &d)
	defer stop()
	producer := func(id string) domain.Producer {
		return domain.Producer{Stakeholder: domain.Stakeholder{ID: id, Name: "n", Token: "t"}}
	}
	made := heldUp(t, &d, s.registryWrites, func() error {
		_, err := s.Directory.Producers.Put(t.Context(), producer("p"))
		return err
	})
	p, err := s.Directory.Producers.Find(t.Context(), "", "p")
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = s.Directory.Producers.Put(short, p)
	require.ErrorIs(t, err, context.DeadlineExceeded, "said to be there before it was on disk")
	made()
	again, err := s.Directory.Producers.Put(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, p, again)

	d.Fail(power.Blocks(dir, "KV_broker_registry"))
	_, err = s.Directory.Producers.Put(t.Context(), producer("q"))
	require.ErrorIs(t, err, domain.ErrUnavailable)
	d.Recover()
	q, err := s.Directory.Producers.Find(t.Context(), "", "q")
	require.NoError(t, err)
	_, err = s.Directory.Producers.Put(t.Context(), q)
	require.ErrorIs(t, err, domain.ErrUnavailable, "the disk may not have it")
	_, err = s.Directory.Producers.Put(t.Context(), p)
	require.NoError(t, err, "it is on disk for long")
}
