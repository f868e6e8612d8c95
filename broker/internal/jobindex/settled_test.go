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
	require.True(t, settle(domain.Job{
		ID:     domain.JobID{Seq: 1 << 40},
		Status: domain.Dead,
	}).less(settle(domain.Job{ID: domain.JobID{Seq: 1<<40 + 1}, Status: domain.Delivered})))
}

// Oldest and Newest of delivered jobs follow the remaining messages.
func TestDeliveredTimes(t *testing.T) {
	var s settledJobs
	at := func(seq uint64, ns int64) settledJob {
		return settle(domain.Job{ID: domain.JobID{Seq: seq}, Status: domain.Delivered, ChangedAt: FromUnixNano(ns)})
	}
	check := func(oldest, newest int64) {
		t.Helper()
		c := counted(domain.Delivered, s.delivered, &s.bySeq, settledJob.deliveredAt)
		require.Equal(t, []int64{oldest, newest}, []int64{UnixNano(c.Oldest), UnixNano(c.Newest)})
	}
	check(0, 0)
	s.add(settle(domain.Job{ID: domain.JobID{Seq: 1}, Status: domain.Dead, ChangedAt: FromUnixNano(10)}))
	check(0, 0)
	for seq, ns := range []int64{50, 20, 70, 30} {
		s.add(at(uint64(seq+2), ns))
	}
	s.add(settle(domain.Job{ID: domain.JobID{Seq: 9}, Status: domain.Removed, ChangedAt: FromUnixNano(90)}))
	check(50, 30)
	s.remove(at(2, 50))
	check(20, 30)
	s.remove(at(5, 30))
	check(20, 70)
	require.Equal(t, 2, s.delivered)
	require.Equal(t, 1, s.dead.len())
}

// A delivered job takes at most 24 bytes in the index, even if jobs are delivered out of order.
func TestDeliveredJobsAreSmall(t *testing.T) {
	const n = 40_000
	x := New()
	x.PutConsumer("ch", domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}})
	now := time.Now()
	for seq := range uint64(n) {
		x.AddMessage("ch", Entry{Seq: seq + 1, At: now.UnixNano()}, "")
	}
	deliver := func(seq uint64) {
		id := domain.JobID{Seq: seq, Consumer: 1}
		x.PutRecord(domain.Job{ID: id, Status: domain.Inflight, Claim: "token", Revision: 2 * seq, ChangedAt: now})
		x.PutRecord(domain.Job{ID: id, Status: domain.Delivered, Claim: "token", Revision: 2*seq + 1, ChangedAt: now.Add(time.Duration(seq))})
	}
	for seq := uint64(1); seq <= n; seq += 8 { // eight workers, out of step
		for _, ahead := range []uint64{3, 0, 1, 7, 5, 2, 6, 4} {
			deliver(seq + ahead)
		}
	}
	k := x.consumers[1]
	bytes := 0
	for _, chunk := range k.settled.bySeq.chunks {
		bytes += cap(chunk) * int(unsafe.Sizeof(settledJob{}))
	}
	require.LessOrEqual(t, float64(bytes)/n, 24.0)
	require.Empty(t, k.records)
	require.Zero(t, k.queue.len()+k.open.len()+k.inflight.len()+k.settled.dead.len())
	require.Equal(t, n, x.CountJobs(1)[2].Count)
	j, ok := x.Lookup(domain.JobID{Seq: n / 2, Consumer: 1})
	require.True(t, ok)
	require.Equal(t, domain.Delivered, j.Status)
	t.Logf("%.2f bytes for a delivered job", float64(bytes)/n)
}

// The retention of dead jobs counts from the death of the last one, not from the broadcast.
func TestDeadJobsCountFromTheirDeath(t *testing.T) {
	x := New()
	now := time.Now()
	x.PutConsumer("ch", domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}})
	x.AddMessage("ch", Entry{Seq: 1, At: now.Add(-30 * 24 * time.Hour).UnixNano()}, "")
	x.PutRecord(domain.Job{ID: domain.JobID{Seq: 1, Consumer: 1}, Status: domain.Dead, ChangedAt: now.Add(-time.Hour), Revision: 1})
	finished := func(dead time.Duration) []uint64 {
		return x.Finished(func(string) bool { return true }, Ages{Before: now.Add(-7 * 24 * time.Hour), DeadBefore: now.Add(-dead)}, 10)
	}
	require.Empty(t, finished(24*time.Hour))
	require.Equal(t, []uint64{1}, finished(30*time.Minute))
}

// A message stored while the clock was a year ahead delays the pruning of those behind it no longer than any other message.
func TestFinishedBehindAClockThatWasAhead(t *testing.T) {
	x := New()
	now := time.Now()
	x.AddMessage("ch", Entry{Seq: 1, At: now.Add(-3 * time.Hour).UnixNano()}, "")
	x.AddMessage("ch", Entry{Seq: 2, At: now.AddDate(1, 0, 0).UnixNano()}, "")
	x.AddMessage("ch", Entry{Seq: 3, At: now.Add(-2 * time.Hour).UnixNano()}, "")
	x.AddMessage("ch", Entry{Seq: 4, At: now.UnixNano()}, "")
	require.Equal(t, []uint64{1, 3}, x.Finished(func(string) bool { return true }, Ages{Before: now.Add(-time.Hour)}, 10))
}
