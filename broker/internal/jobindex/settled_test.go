package jobindex

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

func TestSettledJobKeepsWhatItIsGiven(t *testing.T) {
	for _, seq := range []uint64{0, 1, 1 << 16, 1<<32 + 5, 1<<48 - 1} {
		for _, revision := range []uint64{1, 1 << 20, 1<<40 + 3, 1<<48 - 1} {
			for _, at := range []int64{0, 1, time.Now().UnixNano(), 1<<62 - 1} {
				for _, status := range []domain.JobStatus{domain.Delivered, domain.Dead, domain.Removed} {
					j := domain.Job{ID: domain.JobID{Seq: seq, Consumer: 9}, Status: status, Revision: revision, ChangedAt: FromUnixNano(at)}
					require.Equal(t, j, settle(j).job(9))
				}
			}
		}
	}
	require.Zero(t, settle(domain.Job{Status: domain.Delivered}).at(), "no time is the zero time")
	require.True(t, settle(domain.Job{ID: domain.JobID{Seq: 1 << 40}, Status: domain.Dead}).less(settle(domain.Job{ID: domain.JobID{Seq: 1<<40 + 1}, Status: domain.Delivered})))
}

// The first and the last time of what was delivered are those of what is left.
func TestDeliveredTimes(t *testing.T) {
	var s settledJobs
	at := func(seq uint64, ns int64) settledJob {
		return settle(domain.Job{ID: domain.JobID{Seq: seq}, Status: domain.Delivered, ChangedAt: FromUnixNano(ns)})
	}
	check := func(oldest, newest int64) {
		t.Helper()
		o, n, whole := s.deliveredTimes()
		require.True(t, whole)
		require.Equal(t, []int64{oldest, newest}, []int64{o.UnixNano(), n.UnixNano()})
	}
	for seq, ns := range []int64{50, 20, 70, 30} {
		s.add(at(uint64(seq+1), ns))
	}
	s.add(settle(domain.Job{ID: domain.JobID{Seq: 9}, Status: domain.Dead, ChangedAt: FromUnixNano(10)}))
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
	x := New(func(uint32) {})
	x.PutConsumer("ch", domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}})
	now := time.Now()
	for seq := range uint64(n) {
		x.AddMessage("ch", Entry{Seq: seq + 1, At: now.UnixNano()}, "")
	}
	deliver := func(seq uint64) {
		id := domain.JobID{Seq: seq, Consumer: 1}
		require.True(t, x.PutRecord(domain.Job{ID: id, Status: domain.Inflight, Claim: "token", Revision: 2 * seq, ChangedAt: now}))
		require.True(t, x.PutRecord(domain.Job{ID: id, Status: domain.Delivered, Claim: "token", Revision: 2*seq + 1, ChangedAt: now.Add(time.Duration(seq))}))
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
	require.LessOrEqual(t, len(x.recent.jobs), RecentJobs)
	require.Equal(t, n, x.CountJobs(1)[2].Count)
	j, whole, ok := x.Lookup(domain.JobID{Seq: n / 2, Consumer: 1})
	require.True(t, ok)
	require.False(t, whole)
	require.Equal(t, domain.Delivered, j.Status)
	t.Logf("%.2f bytes for a delivered job", float64(bytes)/n)
}

// Counts are of all jobs, also where there are more than are looked at under one lock.
func TestCountsOfManyJobs(t *testing.T) {
	const n = 2*lookAtOnce*chunkSize + 1
	x := New(func(uint32) {})
	x.PutConsumer("c", domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}, Channel: "c", Type: domain.Pull})
	for seq := uint64(1); seq <= n; seq++ {
		x.AddMessage("c", Entry{Seq: seq, At: int64(seq)}, "")
		x.PutRecord(domain.Job{ID: domain.JobID{Seq: seq, Consumer: 1}, Status: domain.Delivered, ChangedAt: FromUnixNano(int64(n - seq + 1)), Revision: seq})
	}
	_, whole := x.consumers[1].counts()
	require.False(t, whole)
	for _, c := range x.CountJobs(1) {
		if c.Status == domain.Delivered {
			require.Equal(t, n, c.Count)
			require.Equal(t, []int64{1, n}, []int64{c.Oldest.UnixNano(), c.Newest.UnixNano()})
		}
	}
}

// A message that was stored while the clock was a year ahead keeps those behind it from being pruned for no longer than any other.
func TestFinishedBehindAClockThatWasAhead(t *testing.T) {
	x := New(func(uint32) {})
	now := time.Now()
	x.AddMessage("ch", Entry{Seq: 1, At: now.Add(-3 * time.Hour).UnixNano()}, "")
	x.AddMessage("ch", Entry{Seq: 2, At: now.AddDate(1, 0, 0).UnixNano()}, "")
	x.AddMessage("ch", Entry{Seq: 3, At: now.Add(-2 * time.Hour).UnixNano()}, "")
	x.AddMessage("ch", Entry{Seq: 4, At: now.UnixNano()}, "")
	require.Equal(t, []uint64{1, 3}, x.Finished(now.Add(-time.Hour), 10))
}
