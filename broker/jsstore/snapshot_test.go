package jsstore

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
)

// view is what users see of an index.
type view struct {
	messages  map[string][]entry
	jobs      map[string]map[string][]broker.Job
	queues    map[string][]broker.Job
	counts    map[string][]broker.StatusCount
	scheduled map[string][]broker.Scheduled
	recorded  map[broker.JobID]broker.Job
}

func look(s *Store, channels ...string) view {
	all := broker.Page{Limit: 1 << 20}
	v := view{
		messages: map[string][]entry{}, jobs: map[string]map[string][]broker.Job{}, queues: map[string][]broker.Job{},
		counts: map[string][]broker.StatusCount{}, scheduled: map[string][]broker.Scheduled{}, recorded: map[broker.JobID]broker.Job{},
	}
	for _, c := range channels {
		s.index.channel(encodeToken(c)).messages.ascend(nil, func(e entry) bool {
			v.messages[c] = append(v.messages[c], e)
			return true
		})
		for _, e := range s.ListScheduled(c, 0, all) {
			if !e.DispatchedAt.IsZero() {
				// A store that has read everything has it in its broadcast's place.
				e.Seq = 0
			}
			v.scheduled[c] = append(v.scheduled[c], e)
		}
		for _, k := range s.Consumers(c) {
			v.jobs[k.ID] = map[string][]broker.Job{}
			for _, status := range broker.JobStatuses {
				v.jobs[k.ID][status.String()] = s.ListJobs(k.Number, status, all)
			}
			v.queues[k.ID] = s.Queued(k.Number, 1<<20)
			v.counts[k.ID] = s.CountJobs(k.Number)
		}
	}
	s.Recorded(0, func(j broker.Job) bool { v.recorded[j.ID] = j; return true })
	return v
}

// fill makes messages in two channels, and jobs in every state.
func fill(t *testing.T, s *Store) {
	t.Helper()
	before, err := s.Append(t.Context(), broker.Message{ID: "before any consumer", Channel: "ch"})
	require.NoError(t, err)
	makeConsumer(t, s, "other", "o", broker.Pull)
	k := makeConsumer(t, s, "ch", "k", broker.Pull)
	gone := makeConsumer(t, s, "ch", "gone", broker.Pull)
	states := append([]broker.JobStatus{broker.Removed, broker.Queued}, broker.JobStatuses[:]...)
	var pruned []uint64
	var last uint64 // record
	for i := range 40 {
		m, err := s.Append(t.Context(), broker.Message{ID: fmt.Sprint(i), Channel: "ch", Priority: i % 3})
		require.NoError(t, err)
		_, err = s.Append(t.Context(), broker.Message{ID: fmt.Sprint(i), Channel: "other"})
		require.NoError(t, err)
		for _, consumer := range []broker.Consumer{k, gone} {
			if i%2 == 0 {
				j, err := s.PutJob(t.Context(), broker.Job{
					ID: broker.JobID{Seq: m.Seq, Consumer: consumer.Number}, Status: states[i/2%len(states)], Priority: i % 3,
					Retries: i, ChangedAt: time.Now(), Due: time.Now().Add(time.Hour), Claim: "token", IncrementalTimeout: time.Second,
				})
				require.NoError(t, err)
				last = j.Revision
			}
		}
		if i%10 == 0 {
			pruned = append(pruned, m.Seq)
		}
	}
	require.NoError(t, s.Prune(t.Context(), append(pruned, before.Seq)))
	// A stop would wait for news of the last record, which does not come once it is deleted.
	require.NoError(t, s.jobsSeen.wait(t.Context(), last))
	require.NoError(t, s.DeleteConsumer(t.Context(), gone))
	for _, id := range []string{"stays", "cancelled", "fires"} {
		at := time.Now().Add(time.Hour)
		if id == "fires" {
			at = time.Now().Add(time.Second)
		}
		require.NoError(t, s.Schedule(t.Context(), broker.Message{ID: id, Channel: "ch"}, at))
	}
	require.NoError(t, s.CancelScheduled(t.Context(), "ch", "cancelled"))
	require.Eventually(t, func() bool { return s.CountScheduled("ch").Dispatched == 1 }, 20*time.Second, 10*time.Millisecond)
}

// A store that opens with a snapshot knows what one knows that reads everything.
func TestSnapshotIsWhatTheStreamsSay(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{SnapshotDir: dir}
	s, stop := runOn(t, dir, cfg)
	fill(t, s)
	stop()
	require.FileExists(t, cfg.withDefaults().snapshotPath())

	s, stop = runOn(t, dir, cfg)
	require.NoFileExists(t, cfg.withDefaults().snapshotPath(), "a store that may be written to has no snapshot")
	restored := look(s, "ch", "other")
	// It goes on from there.
	require.Positive(t, s.messagesSeen.reached())
	require.Positive(t, s.jobsSeen.reached())
	stop()

	require.NoError(t, os.Remove(cfg.withDefaults().snapshotPath()))
	s, stop = runOn(t, dir, cfg)
	read := look(s, "ch", "other")
	require.Len(t, read.messages["ch"], 37)
	require.Len(t, read.scheduled["ch"], 2)
	require.NotEmpty(t, read.recorded)
	require.Equal(t, read, restored)
	stop()

	// The stream is followed from where the snapshot ended.
	s, stop = runOn(t, dir, cfg)
	defer stop()
	header, err := encodeEnvelope(broker.Message{ID: "x", Channel: "ch"}, time.Time{})
	require.NoError(t, err)
	ack, err := s.js.PublishMsg(t.Context(), &nats.Msg{
		Subject: s.cfg.messageSubject("ch", "x"), Header: nats.Header{headerEnvelope: {header}},
	})
	require.NoError(t, err)
	require.NoError(t, s.messagesSeen.wait(t.Context(), ack.Sequence))
	require.Equal(t, 38, s.CountMessages("ch"))
}

// A snapshot is of one state of the streams. With any other it is as if there
// were none.
func TestSnapshotOfAnotherStateIsNotUsed(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{SnapshotDir: dir}
	path := cfg.withDefaults().snapshotPath()
	s, stop := runOn(t, dir, cfg)
	makeConsumer(t, s, "ch", "k", broker.Pull)
	for i := range 3 {
		_, err := s.Append(t.Context(), broker.Message{ID: fmt.Sprint(i), Channel: "ch"})
		require.NoError(t, err)
	}
	stop()
	old, err := os.ReadFile(path)
	require.NoError(t, err)

	s, stop = runOn(t, dir, cfg)
	_, err = s.Append(t.Context(), broker.Message{ID: "more", Channel: "ch"})
	require.NoError(t, err)
	require.NoError(t, s.Prune(t.Context(), []uint64{s.index.messages("ch", broker.Page{Limit: 10})[3]}))
	stop()
	for name, content := range map[string][]byte{"of before": old, "empty": nil, "cut": old[:len(old)-9], "foreign": []byte("something else")} {
		require.NoError(t, os.WriteFile(path, content, 0o600))
		s, stop = runOn(t, dir, cfg)
		require.Equal(t, 3, s.CountMessages("ch"), name)
		_, err := s.Message(t.Context(), "ch", "more")
		require.NoError(t, err)
		stop()
	}
}

func TestDamagedSnapshot(t *testing.T) {
	good, state := sampleSnapshot(t)
	_, err := readSnapshot(bytes.NewReader(good), state)
	require.NoError(t, err)
	_, err = readSnapshot(bytes.NewReader(good), storeState{})
	require.ErrorIs(t, err, errSnapshotState)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 0x40
		_, err := readSnapshot(bytes.NewReader(bad), state)
		require.Error(t, err, "byte %d of %d", i, len(good))
		_, err = readSnapshot(bytes.NewReader(good[:i]), state)
		require.ErrorIs(t, err, errSnapshot, "cut to %d bytes", i)
	}
}

// A snapshot has nothing of consumers that are gone, and no broadcast of a schedule
// whose message is.
func TestSnapshotLeavesOutWhatIsGone(t *testing.T) {
	x := newIndex()
	x.putConsumer("ch", broker.Consumer{Stakeholder: broker.Stakeholder{Number: 7}})
	x.putConsumer("ch", broker.Consumer{Stakeholder: broker.Stakeholder{Number: 8}})
	for _, seq := range []uint64{3, 4} {
		x.scheduleFired("ch", fmt.Sprint("broker.s.ch.", seq), scheduledEntry{seq: seq, id: fmt.Sprint(seq), dispatchedAt: 1, message: seq})
	}
	x.addScheduled("ch", "broker.s.ch.pending", scheduledEntry{seq: 5, id: "pending", at: 99})
	x.addMessage("ch", entry{seq: 4, at: 6}, "")
	x.removeConsumer(8)
	for _, number := range []uint32{7, 8} {
		x.putRecord(broker.Job{ID: broker.JobID{Seq: 4, Consumer: number}, Status: broker.Delivered, Revision: uint64(number)})
	}
	require.NotEmpty(t, x.orphans, "there is no late news of a deleted consumer to leave out")
	var b bytes.Buffer
	require.NoError(t, writeSnapshot(&b, storeState{}, x))
	s, err := readSnapshot(&b, storeState{})
	require.NoError(t, err)
	require.Len(t, s.records, 1)
	require.EqualValues(t, 7, s.records[0].ID.Consumer)
	require.Len(t, s.channels, 1)
	require.Equal(t, []scheduledEntry{
		{seq: 4, id: "4", subject: "broker.s.ch.4", dispatchedAt: 1, message: 4},
		{seq: 5, id: "pending", subject: "broker.s.ch.pending", at: 99},
	}, s.channels[0].scheduled)
}

func FuzzReadSnapshot(f *testing.F) {
	good, state := sampleSnapshot(f)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := readSnapshot(bytes.NewReader(b), state)
		if (s == nil) == (err == nil) {
			t.Fatalf("%v, %v", s, err)
		}
		if err == nil {
			s.into(newIndex())
		}
	})
}

// sampleSnapshot is a small one with something of everything.
func sampleSnapshot(t testing.TB) ([]byte, storeState) {
	t.Helper()
	x := newIndex()
	x.putConsumer("ch", broker.Consumer{Stakeholder: broker.Stakeholder{Number: 7}})
	x.addMessage("ch", entry{seq: 3, at: 5, priority: 2}, "")
	x.addMessage("ch", entry{seq: 4, at: 6}, "")
	x.addScheduled("ch", "broker.s.ch.x", scheduledEntry{seq: 5, id: "x", at: 99})
	x.putRecord(broker.Job{ID: broker.JobID{Seq: 3, Consumer: 7}, Status: broker.Inflight, Claim: "c", Revision: 1})
	x.putRecord(broker.Job{ID: broker.JobID{Seq: 3, Consumer: 8}, Status: broker.Delivered, Revision: 2})
	state := storeState{{created: 1, lastTime: 2, first: 3, last: 5, messages: 3}, {created: 4, last: 2, messages: 2}}
	var b bytes.Buffer
	require.NoError(t, writeSnapshot(&b, state, x))
	return b.Bytes(), state
}

// A prune that was cut short has deleted messages which the index still has. A
// snapshot would keep them for the next start.
func TestNoSnapshotOfMessagesThatAreGone(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{SnapshotDir: dir}
	s, stop := runOn(t, dir, cfg)
	gone := appendMessage(t, s, "ch", "gone", 0)
	appendMessage(t, s, "ch", "stays", 0)
	whole := s.messageStream
	s.messageStream = mute{whole}
	require.ErrorIs(t, s.Prune(t.Context(), []uint64{gone.Seq}), broker.ErrUnavailable)
	s.messageStream = whole
	require.Equal(t, 2, s.CountMessages("ch"))
	stop()
	require.NoFileExists(t, cfg.withDefaults().snapshotPath())
	s, stop = runOn(t, dir, cfg)
	defer stop()
	require.Equal(t, 1, s.CountMessages("ch"))
}
