package jsstore

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/test/servertest"
)

func TestSettledJobKeepsWhatItIsGiven(t *testing.T) {
	for _, seq := range []uint64{0, 1, 1 << 16, 1<<32 + 5, 1<<48 - 1} {
		for _, revision := range []uint64{1, 1 << 20, 1<<40 + 3, 1<<48 - 1} {
			for _, at := range []int64{0, 1, time.Now().UnixNano(), 1<<62 - 1} {
				for _, status := range []broker.JobStatus{broker.Delivered, broker.Dead, broker.Removed} {
					j := broker.Job{ID: broker.JobID{Seq: seq, Consumer: 9}, Status: status, Revision: revision, ChangedAt: fromUnixNano(at)}
					require.Equal(t, j, settle(j).job(9))
				}
			}
		}
	}
	require.Zero(t, settle(broker.Job{Status: broker.Delivered}).at(), "no time is the zero time")
	require.True(t, settle(broker.Job{ID: broker.JobID{Seq: 1 << 40}, Status: broker.Dead}).less(settle(broker.Job{ID: broker.JobID{Seq: 1<<40 + 1}, Status: broker.Delivered})))
}

// The first and the last time of what was delivered are those of what is left.
func TestDeliveredTimes(t *testing.T) {
	var s settledJobs
	at := func(seq uint64, ns int64) settledJob {
		return settle(broker.Job{ID: broker.JobID{Seq: seq}, Status: broker.Delivered, ChangedAt: fromUnixNano(ns)})
	}
	check := func(oldest, newest int64) {
		t.Helper()
		o, n := s.deliveredTimes()
		require.Equal(t, []int64{oldest, newest}, []int64{o.UnixNano(), n.UnixNano()})
	}
	for seq, ns := range []int64{50, 20, 70, 30} {
		s.add(at(uint64(seq+1), ns))
	}
	s.add(settle(broker.Job{ID: broker.JobID{Seq: 9}, Status: broker.Dead, ChangedAt: fromUnixNano(10)}))
	check(20, 70)
	s.remove(at(2, 20))
	check(30, 70)
	s.remove(at(3, 70))
	check(30, 50)
	s.add(at(5, 5))
	check(5, 50)
	require.Equal(t, 3, s.delivered)
	require.Equal(t, 1, s.dead.len())
	for _, e := range []settledJob{at(1, 50), at(4, 30), at(5, 5)} {
		s.remove(e)
	}
	s.add(at(6, 40))
	check(40, 40)
}

// What the index keeps of a delivered job is at most 24 bytes, also of jobs that
// overtake each other.
func TestDeliveredJobsAreSmall(t *testing.T) {
	const n = 40_000
	x := newIndex()
	x.putConsumer("ch", broker.Consumer{Stakeholder: broker.Stakeholder{Number: 1}})
	now := time.Now()
	for seq := range uint64(n) {
		x.addMessage("ch", entry{seq: seq + 1, at: now.UnixNano()}, "")
	}
	deliver := func(seq uint64) {
		id := broker.JobID{Seq: seq, Consumer: 1}
		require.True(t, x.putRecord(broker.Job{ID: id, Status: broker.Inflight, Claim: "token", Revision: 2 * seq, ChangedAt: now}))
		require.True(t, x.putRecord(broker.Job{ID: id, Status: broker.Delivered, Claim: "token", Revision: 2*seq + 1, ChangedAt: now.Add(time.Duration(seq))}))
	}
	for seq := uint64(1); seq <= n; seq += 8 { // eight workers, out of step
		for _, ahead := range []uint64{3, 0, 1, 7, 5, 2, 6, 4} {
			deliver(seq + ahead)
		}
	}
	k := x.consumers[1]
	bytes := 0
	for _, chunk := range k.settled.bySeq.chunks {
		bytes += cap(chunk.keys) * int(unsafe.Sizeof(settledJob{}))
	}
	require.LessOrEqual(t, float64(bytes)/n, 24.0)
	require.Empty(t, k.records)
	require.Zero(t, k.queue.len()+k.queued.len()+k.inflight.len()+k.settled.dead.len())
	require.LessOrEqual(t, len(x.recent.jobs), recentJobs)
	require.Equal(t, n, x.counts(1)[2].Count)
	j, whole, ok := x.lookup(broker.JobID{Seq: n / 2, Consumer: 1})
	require.True(t, ok)
	require.False(t, whole)
	require.Equal(t, broker.Delivered, j.Status)
	t.Logf("%.2f bytes for a delivered job", float64(bytes)/n)
}

// A job that was settled long ago is read from its record when somebody needs all of
// it, and a worker that repeats itself is recognized.
func TestSettledJobsAreReadWhole(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	k := makeConsumer(t, s, "ch", "k", broker.Pull)
	m := appendMessage(t, s, "ch", "m", 3)
	put, err := s.PutJob(t.Context(), broker.Job{
		ID: broker.JobID{Seq: m.Seq, Consumer: k.Number}, Status: broker.Dead, Priority: 3, Retries: 4, ChangedAt: time.Now().UTC(), Claim: "token", IncrementalTimeout: time.Minute,
	})
	require.NoError(t, err)
	s.index.recent = recent{}
	known, err := s.Job(t.Context(), put.ID)
	require.NoError(t, err)
	require.Equal(t, broker.Job{ID: put.ID, Status: broker.Dead, ChangedAt: put.ChangedAt, Revision: put.Revision}, known)
	for range 2 {
		got, err := s.Refresh(t.Context(), put.ID)
		require.NoError(t, err)
		require.Equal(t, put, got)
	}
	require.NoError(t, s.Prune(t.Context(), []uint64{m.Seq}))
	_, err = s.Refresh(t.Context(), put.ID)
	require.ErrorIs(t, err, broker.ErrNotFound)
}

// What is shown of a pull consumer's job is in the index: among a thousand consumers a record each would be read for nothing.
func TestWholeReadsWhatIsShownOnly(t *testing.T) {
	s := openStore(t, servertest.RunServer(t))
	push, pull := makeConsumer(t, s, "ch", "push", broker.Push), makeConsumer(t, s, "ch", "pull", broker.Pull)
	m := appendMessage(t, s, "ch", "m", 0)
	for _, k := range []broker.Consumer{push, pull} {
		_, err := s.PutJob(t.Context(), broker.Job{ID: broker.JobID{Seq: m.Seq, Consumer: k.Number}, Status: broker.Delivered, Attempts: 3, ChangedAt: time.Now()})
		require.NoError(t, err)
	}
	s.index.recent = recent{}
	jobs := s.JobsOf("ch", m.Seq)
	require.Len(t, jobs, 2)
	require.NoError(t, s.Whole(t.Context(), jobs))
	for _, j := range jobs {
		require.Equal(t, j.ID.Consumer == push.Number, j.Attempts == 3)
	}
	require.Len(t, s.index.recent.jobs, 1)
}
