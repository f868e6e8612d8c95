package journal

import (
	"fmt"
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

// runOn starts a server with rare syncs of its own, and a store on it. With a disk, the store waits for it.
func runOn(t *testing.T, dir string, cfg Config, disk ...*power.Disk) (s *Store, stop func()) {
	t.Helper()
	opts := natsembed.Options{Dir: dir, Port: natsembed.NoPort, Sync: natsembed.SyncEvery(time.Hour), Logger: cfg.Logger}
	if len(disk) > 0 {
		opts.Fsync = disk[0].Fsync
	}
	srv, err := natsembed.Start(t.Context(), opts)
	require.NoError(t, err)
	nc, err := srv.Connect()
	require.NoError(t, err)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	if len(disk) > 0 {
		cfg.Disk = srv
	}
	s, err = openAs(t.Context(), js, cfg)
	require.NoError(t, err)
	return s, func() {
		s.Close()
		nc.Close()
		srv.Stop()
	}
}

// Answered messages, transitions and changes of the registry survive a power failure.
func TestPowerFailure(t *testing.T) {
	dir := t.TempDir()
	disk := &power.Disk{}
	s, stop := runOn(t, dir, Config{}, disk)
	defer stop()
	atOpen := disk.Clone()
	k := makeConsumer(t, s, "ch", "k", domain.Pull)

	enough, size := 9000, 2000 // three block files
	if testing.Short() {
		enough, size = 900, 10_000 // two
	}

	// Writers go on during the power failure. Answers up to that moment count.
	var mu sync.Mutex
	stored, delivered := map[string]uint64{}, map[string]uint64{}
	halt := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-halt:
					return
				default:
				}
				id := fmt.Sprintf("%d-%d", w, i)
				m, err := s.Messages.Append(t.Context(), domain.Message{ID: id, Channel: "ch", Payload: make([]byte, size)})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				stored[id] = m.Seq
				mu.Unlock()
				if i%3 != 0 {
					continue
				}
				_, err = s.Jobs.PutJob(t.Context(), domain.Job{ID: domain.JobID{Seq: m.Seq, Consumer: k.Number}, Status: domain.Delivered, ChangedAt: time.Now()})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				delivered[id] = m.Seq
				mu.Unlock()
			}
		})
	}
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(stored) > enough }, 5*time.Minute, time.Millisecond)
	mu.Lock()
	wantStored, wantDelivered := len(stored), len(delivered)
	ids := make(map[string]bool, wantStored)
	for id := range stored {
		_, done := delivered[id]
		ids[id] = done
	}
	mu.Unlock()
	after := t.TempDir()
	disk.Cut(t, dir, after)
	close(halt)
	wg.Wait()

	again, stopAgain := runOn(t, after, Config{})
	defer stopAgain()
	reborn, err := again.Directory.Consumers.Find(t.Context(), "ch", "k")
	require.NoError(t, err, "the consumer is gone")
	for id, done := range ids {
		m, err := again.Messages.Message(t.Context(), "ch", id)
		require.NoError(t, err, "message %s was answered and is gone", id)
		j, err := again.Jobs.Job(t.Context(), domain.JobID{Seq: m.Seq, Consumer: reborn.Number})
		require.NoError(t, err)
		if done {
			require.Equal(t, domain.Delivered, j.Status, "the delivery of message %s was answered and is gone", id)
		}
	}
	t.Logf("%d messages and %d deliveries survived", wantStored, wantDelivered)

	// Counter-check: without the syncs since the start everything is lost.
	lost := t.TempDir()
	atOpen.Cut(t, dir, lost)
	bare, stopBare := runOn(t, lost, Config{})
	defer stopBare()
	require.Zero(t, bare.Index.CountMessages("ch"))
}

// When most of a block is deleted, the server writes the rest to a new file and renames it without a sync. The rest survives a
// power failure once another write was answered.
func TestPowerFailureAfterABlockWasRewritten(t *testing.T) {
	dir := t.TempDir()
	disk := &power.Disk{}
	s, stop := runOn(t, dir, Config{}, disk)
	defer stop()
	k := makeConsumer(t, s, "ch", "k", domain.Pull)
	const all = 900 // two block files of messages
	seqs := make([]uint64, all)
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := w; i < all; i += 16 {
				m, err := s.Messages.Append(t.Context(), domain.Message{ID: fmt.Sprint(i), Channel: "ch", Payload: make([]byte, 10_000)})
				if err != nil {
					t.Error(err)
					return
				}
				seqs[i] = m.Seq
				job := domain.Job{ID: domain.JobID{Seq: m.Seq, Consumer: k.Number}, Status: domain.Inflight, ChangedAt: time.Now()}
				if job, err = s.Jobs.PutJob(t.Context(), job); err == nil { // a record that another one will replace
					job.Status = domain.Delivered
					_, err = s.Jobs.PutJob(t.Context(), job)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(seqs)
	before := disk.Clone()
	var pruned, kept []uint64
	for i, seq := range seqs {
		if i < 700 && i%4 > 0 { // most of the first block; deleting only its first messages does not cause a rewrite
			pruned = append(pruned, seq)
		} else {
			kept = append(kept, seq)
		}
	}
	prune(t, s, pruned)
	require.Eventually(t, func() bool { return before.Replaced() }, time.Minute, time.Millisecond, "no block was rewritten, so there is nothing to test")
	_, err := s.Messages.Append(t.Context(), domain.Message{ID: "last", Channel: "ch"})
	require.NoError(t, err)
	after := t.TempDir()
	disk.Cut(t, dir, after)

	again, stopAgain := runOn(t, after, Config{})
	defer stopAgain()
	left, err := again.Messages.InOrder(t.Context(), kept)
	require.NoError(t, err)
	require.Equal(t, len(kept), len(left))
	for _, seq := range kept {
		j, err := again.Jobs.Job(t.Context(), domain.JobID{Seq: seq, Consumer: k.Number})
		require.NoError(t, err)
		require.Equal(t, domain.Delivered, j.Status)
	}
}

// A replay leaves out records that are younger than its request. So the last record at that time must not be lost. Otherwise its
// sequence would be assigned to the record of a replayed job, and the replay would select that job again.
func TestPowerFailureKeepsTheBoundOfAReplay(t *testing.T) {
	dir := t.TempDir()
	disk := &power.Disk{}
	s, stop := runOn(t, dir, Config{}, disk)
	defer stop()
	k := makeConsumer(t, s, "ch", "k", domain.Pull)
	m := appendMessage(t, s, "ch", "m", 0)
	_, err := s.Jobs.PutJob(t.Context(), domain.Job{ID: domain.JobID{Seq: m.Seq, Consumer: k.Number}, Status: domain.Inflight, ChangedAt: time.Now()})
	require.NoError(t, err) // a claim is not synced
	upTo, err := s.Replays.LastRecord(t.Context())
	require.NoError(t, err)
	after := t.TempDir()
	disk.Cut(t, dir, after)

	again, stopAgain := runOn(t, after, Config{})
	defer stopAgain()
	last, err := again.Replays.LastRecord(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, last, upTo)
}
