package journal

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/natstest/power"
	"github.com/jetpull/jetpull/natsembed"
)

// heldUp blocks the disk of one stream and makes a call that has to wait for it. The returned function unblocks the disk and
// waits for the call.
func heldUp(t *testing.T, disk *power.Disk, w *Writer, call func() error) (goOn func()) {
	t.Helper()
	waiting, release := disk.Hold(power.Blocks(w.Disk.(*natsembed.Server).Dir(), w.name))
	ended := make(chan error, 1)
	go func() { ended <- call() }()
	require.Eventually(t, func() bool { return waiting() || len(ended) > 0 }, 10*time.Second, time.Millisecond)
	if len(ended) > 0 {
		release()
		t.Fatalf("answered before it was on disk (error: %v)", <-ended)
	}
	return func() {
		t.Helper()
		release()
		require.NoError(t, <-ended)
	}
}

// Deletes survive a power failure.
func TestDeletesSurviveAPowerFailure(t *testing.T) {
	dir := t.TempDir()
	disk := &power.Disk{}
	s, stop := runOn(t, dir, Config{}, disk)
	defer stop()
	k := makeConsumer(t, s, "ch", "gone", domain.Pull)
	makeConsumer(t, s, "ch", "stays", domain.Pull)
	at := time.Now().Add(time.Hour)
	schedule := func(id string) {
		require.NoError(t, s.Messages.Schedule(t.Context(), domain.Message{ID: id, Channel: "ch"}, at))
	}
	schedule("first")
	schedule("stays")
	fillBlock(t, s, dir, 2)
	require.NoError(t, s.messageWrites.DurableAt(t.Context(), 0))
	schedule("last")

	require.NoError(t, s.Directory.Consumers.Delete(t.Context(), k))
	require.NoError(t, s.Messages.CancelScheduled(t.Context(), "ch", "first"))
	require.NoError(t, s.Messages.CancelScheduled(t.Context(), "ch", "last"))
	after := t.TempDir()
	disk.Cut(t, dir, after)
	again, stopAgain := runOn(t, after, Config{})
	defer stopAgain()
	_, err := again.Directory.Consumers.Find(t.Context(), "ch", "gone")
	require.ErrorIs(t, err, domain.ErrNotFound, "the delete of the consumer was answered and is lost")
	_, err = again.Directory.Consumers.Find(t.Context(), "ch", "stays")
	require.NoError(t, err)
	for _, id := range []string{"first", "last"} {
		_, err := again.Messages.Scheduled(t.Context(), "ch", id)
		require.ErrorIs(t, err, domain.ErrNotFound, "the end of schedule %q was answered and is lost", id)
	}
	_, err = again.Messages.Scheduled(t.Context(), "ch", "stays")
	require.NoError(t, err)
}

// When the last message of an older block is deleted, the server only removes the file. The removal is on disk once the folder is
// synced.
func TestCancelThatRemovesABlockSyncsTheFolder(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	var names []string // files in the blocks' folder, at its last sync
	s, stop := runOn(t, dir, Config{}, &power.Disk{Synced: func(path string, _ int64) {
		if path != power.Blocks(dir, "broker_messages") {
			return
		}
		entries, err := os.ReadDir(path)
		require.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		names = nil
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}})
	defer stop()
	makeConsumer(t, s, "ch", "k", domain.Pull)
	require.NoError(t, s.Messages.Schedule(t.Context(), domain.Message{ID: "m", Channel: "ch"}, time.Now().Add(time.Hour)))
	raw, err := s.Last(t.Context(), s.messageStream, s.cfg.scheduleSubject(domain.SubjectToken("ch"), domain.SubjectToken("m")))
	require.NoError(t, err)
	next := fillBlock(t, s, dir, 2)
	for seq := raw.Sequence + 1; seq < next; seq++ {
		require.NoError(t, s.messageStream.DeleteMsg(t.Context(), seq))
	}
	require.NoError(t, s.messageWrites.DurableAt(t.Context(), 0))
	isNamed := func(name string) bool { mu.Lock(); defer mu.Unlock(); return slices.Contains(names, name) }
	require.True(t, isNamed("1.blk"))
	require.NoError(t, s.Messages.CancelScheduled(t.Context(), "ch", "m"))
	require.NoFileExists(t, filepath.Join(power.Blocks(dir, "broker_messages"), "1.blk"), "the server keeps it: this test shows nothing")
	require.False(t, isNamed("1.blk"), "its removal is not on disk")
}

// No answer reports a delete before it is on disk, not even the answer that the object was already deleted.
func TestDeletesWaitForTheDisk(t *testing.T) {
	dir := t.TempDir()
	disk := &power.Disk{}
	s, stop := runOn(t, dir, Config{}, disk)
	defer stop()
	k := makeConsumer(t, s, "ch", "k", domain.Pull)
	m := appendMessage(t, s, "ch", "m", 0)
	id := domain.JobID{Seq: m.Seq, Consumer: k.Number}
	_, err := s.Jobs.PutJob(t.Context(), domain.Job{ID: id, Status: domain.Delivered, ChangedAt: time.Now()})
	require.NoError(t, err)
	record := func() error {
		_, err := s.Last(t.Context(), s.jobStream, s.cfg.jobSubject(k.Number, "*"))
		return err
	}
	require.NoError(t, s.Messages.Schedule(t.Context(), domain.Message{ID: "s", Channel: "ch"}, time.Now().Add(time.Hour)))

	cancelled := heldUp(t, disk, s.messageWrites, func() error { return s.Messages.CancelScheduled(t.Context(), "ch", "s") })
	require.Zero(t, s.Index.CountScheduled("ch").Pending)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.Messages.CancelScheduled(short, "ch", "s"), context.DeadlineExceeded, "said to be gone before it was on disk")
	cancelled()
	require.ErrorIs(t, s.Messages.CancelScheduled(t.Context(), "ch", "s"), domain.ErrNotFound)

	pruned := heldUp(t, disk, s.messageWrites, func() error { _, err := s.Messages.Prune(t.Context(), []uint64{m.Seq}); return err })
	require.NoError(t, record(), "deleted before its message is for sure")
	pruned()
	require.ErrorIs(t, record(), domain.ErrNotFound)

	m = appendMessage(t, s, "ch", "m2", 0)
	_, err = s.Jobs.PutJob(t.Context(), domain.Job{ID: domain.JobID{Seq: m.Seq, Consumer: k.Number}, Status: domain.Delivered, ChangedAt: time.Now()})
	require.NoError(t, err)
	deleted := heldUp(t, disk, s.registryWrites, func() error { return s.Directory.Consumers.Delete(t.Context(), k) })
	require.NoError(t, record(), "deleted before its consumer is for sure")
	deleted()
	require.ErrorIs(t, record(), domain.ErrNotFound)
}

// A client that hangs up does not leave a partly deleted consumer.
func TestDeleteOfAConsumerIsFinished(t *testing.T) {
	dir := t.TempDir()
	disk := &power.Disk{}
	s, stop := runOn(t, dir, Config{}, disk)
	defer stop()
	k := makeConsumer(t, s, "ch", "k", domain.Push)
	m := appendMessage(t, s, "ch", "m", 0)
	_, err := s.Jobs.PutJob(t.Context(), domain.Job{ID: domain.JobID{Seq: m.Seq, Consumer: k.Number}, Status: domain.Delivered, ChangedAt: time.Now()})
	require.NoError(t, err)
	ctx, hangUp := context.WithCancel(t.Context())
	deleted := heldUp(t, disk, s.registryWrites, func() error { return s.Directory.Consumers.Delete(ctx, k) })
	hangUp()
	deleted()
	_, err = s.Last(t.Context(), s.jobStream, s.cfg.jobSubject(k.Number, "*"))
	require.ErrorIs(t, err, domain.ErrNotFound)
}

// A record or an attempt that is stored after its consumer was deleted is deleted with its message.
func TestWhatComesAfterAConsumerGoesWithItsMessage(t *testing.T) {
	s, stop := runOn(t, t.TempDir(), Config{})
	defer stop()
	k := makeConsumer(t, s, "ch", "k", domain.Push)
	m := appendMessage(t, s, "ch", "m", 0)
	require.NoError(t, s.Directory.Consumers.Delete(t.Context(), k))
	id := domain.JobID{Seq: m.Seq, Consumer: k.Number}
	require.NoError(t, s.Jobs.KeepAttempt(t.Context(), id, domain.Attempt{Number: 1}))
	_, err := s.Jobs.PutJob(t.Context(), domain.Job{ID: id, Status: domain.Dead, ChangedAt: time.Now()})
	require.NoError(t, err)
	_, err = s.Messages.Prune(t.Context(), []uint64{m.Seq})
	require.NoError(t, err)
	_, err = s.Last(t.Context(), s.jobStream, s.cfg.jobSubject(k.Number, "*"))
	require.ErrorIs(t, err, domain.ErrNotFound)
	_, err = s.Jobs.AttemptAt(t.Context(), id, 1)
	require.ErrorIs(t, err, domain.ErrNotFound)
}

// A sequence that is lost is assigned again. So nothing that refers to a sequence is written before that message is on disk.
func TestNothingNamesAMessageThatMayBeLost(t *testing.T) {
	dir := t.TempDir()
	disk := &power.Disk{}
	s, stop := runOn(t, dir, Config{Logger: slog.New(slog.DiscardHandler)}, disk)
	defer stop()
	k := makeConsumer(t, s, "ch", "k", domain.Pull)
	id := domain.JobID{Seq: storeOnly(t, s, "m", 10), Consumer: k.Number}
	put := heldUp(t, disk, s.messageWrites, func() error {
		_, err := s.Jobs.PutJob(t.Context(), domain.Job{ID: id, Status: domain.Delivered, ChangedAt: time.Now()})
		return err
	})
	_, err := s.jobStream.GetLastMsgForSubject(t.Context(), s.cfg.jobSubject(k.Number, "*"))
	require.ErrorIs(t, err, jetstream.ErrMsgNotFound)
	put()
	waiting, release := disk.Hold(dir)
	require.NoError(t, s.messageWrites.DurableAt(t.Context(), id.Seq))
	require.False(t, waiting(), "the next record would wait for a sync too")
	release()

	since := storeOnly(t, s, "n", 10)
	made := heldUp(t, disk, s.messageWrites, func() error {
		_, err := s.Directory.Consumers.Save(t.Context(), domain.Consumer{
			Stakeholder: domain.Stakeholder{ID: "late", Token: "t"}, Channel: "ch", CallbackURL: "http://127.0.0.1/", Type: domain.Pull,
		})
		return err
	})
	_, err = s.Directory.Consumers.Find(t.Context(), "ch", "late")
	require.ErrorIs(t, err, domain.ErrNotFound)
	made()
	late, err := s.Directory.Consumers.Find(t.Context(), "ch", "late")
	require.NoError(t, err)
	require.Equal(t, since, late.Since)
}

// The broker waits for a disk that is slower than the server's timeout: a cancelled schedule is not answered with an error.
func TestCancelWaitsForASlowDisk(t *testing.T) {
	dir := t.TempDir()
	disk := &power.Disk{}
	s, stop := runOn(t, dir, Config{}, disk)
	defer stop()
	makeConsumer(t, s, "ch", "k", domain.Pull)
	require.NoError(t, s.Messages.Schedule(t.Context(), domain.Message{ID: "s", Channel: "ch"}, time.Now().Add(time.Hour)))
	cancelled := heldUp(t, disk, s.messageWrites, func() error { return s.Messages.CancelScheduled(t.Context(), "ch", "s") })
	slow, cancel := context.WithTimeout(t.Context(), newsWait+500*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.messageWrites.DurableAt(slow, 0), context.DeadlineExceeded)
	cancelled()
}

// A broker that stops while it prunes leaves no records that a later start would not find.
func TestPruneIsFinished(t *testing.T) {
	dir := t.TempDir()
	disk := &power.Disk{}
	s, stop := runOn(t, dir, Config{}, disk)
	defer stop()
	k := makeConsumer(t, s, "ch", "k", domain.Pull)
	m := appendMessage(t, s, "ch", "m", 0)
	_, err := s.Jobs.PutJob(t.Context(), domain.Job{ID: domain.JobID{Seq: m.Seq, Consumer: k.Number}, Status: domain.Delivered, ChangedAt: time.Now()})
	require.NoError(t, err)
	ctx, shutdown := context.WithCancel(t.Context())
	pruned := heldUp(t, disk, s.messageWrites, func() error { _, err := s.Messages.Prune(ctx, []uint64{m.Seq}); return err })
	shutdown()
	pruned()
	_, err = s.Last(t.Context(), s.jobStream, s.cfg.jobSubject(k.Number, "*"))
	require.ErrorIs(t, err, domain.ErrNotFound)
	_, err = s.Messages.Prune(ctx, []uint64{appendMessage(t, s, "ch", "stays", 0).Seq})
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Messages.Message(t.Context(), "ch", "stays")
	require.NoError(t, err)
}
