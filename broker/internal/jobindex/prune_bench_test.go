package jobindex

import (
	"testing"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// BenchmarkPruneAtAMillion prunes messages from a million, with two consumers each. It reports for how long one step blocks other
// calls at most.
func BenchmarkPruneAtAMillion(b *testing.B) {
	const depth, page = 1_000_000, 200
	x := New()
	for number := uint32(1); number <= 2; number++ {
		x.PutConsumer("c", domain.Consumer{Stakeholder: domain.Stakeholder{Number: number}, Channel: "c", Type: domain.Pull})
	}
	next := uint64(0)
	add := func() {
		next++
		x.AddMessage("c", Entry{Seq: next, At: int64(next)}, "")
		for number := uint32(1); number <= 2; number++ {
			x.PutRecord(domain.Job{
				ID: domain.JobID{Seq: next, Consumer: number}, Status: domain.Delivered, ChangedAt: FromUnixNano(int64(next)),
				Revision: 2*next + uint64(number),
			})
		}
	}
	for range depth {
		add()
	}
	var longest time.Duration
	step := func(f func()) {
		begin := time.Now()
		f()
		longest = max(longest, time.Since(begin))
	}
	pruned := 0
	for b.Loop() {
		var seqs []uint64
		step(func() { seqs = x.Finished(func(string) bool { return true }, Ages{Before: FromUnixNano(depth)}, page) })
		for _, seq := range seqs {
			step(func() { x.RemoveMessages("c", []uint64{seq}) })
			step(func() { x.CountJobs(1) })
		}
		pruned += len(seqs)
		b.StopTimer()
		for range seqs {
			add()
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(max(1, pruned)), "ns/msg")
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest")
}
