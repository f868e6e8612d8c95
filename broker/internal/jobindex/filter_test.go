package jobindex

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// News of a change of event types may come after messages that it is for: the jobs are as if it had come before.
func TestNewsOfAFilterComesLate(t *testing.T) {
	filter := domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}, Filters: []domain.EventFilter{{Since: 2, Types: "a"}}}
	queued := func(x *Index) (seqs []uint64) {
		for _, j := range x.Queue.Queued(1, 100) {
			seqs = append(seqs, j.ID.Seq)
		}
		return seqs
	}
	messages := func(x *Index) {
		for seq, eventType := range []string{"b", "a", "b", "a", "b", "b"} {
			x.AddMessage("ch", Entry{Seq: uint64(seq) + 1, At: 1}, eventType)
		}
		// A job that was tried before the news came stays a job.
		x.PutRecord(domain.Job{ID: domain.JobID{Seq: 5, Consumer: 1}, Status: domain.Queued, Revision: 9})
	}
	late, early := New(), New()
	late.PutConsumer("ch", domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}})
	messages(late)
	require.Len(t, queued(late), 6)
	late.PutConsumer("ch", filter)
	early.PutConsumer("ch", filter)
	messages(early)
	require.Equal(t, []uint64{1, 2, 4, 5}, queued(late))
	require.Equal(t, queued(early), queued(late))
	for _, x := range []*Index{late, early} {
		require.Equal(t, 4, x.CountJobs(1)[0].Count)
		require.Len(t, x.JobsOf("ch", 3), 0)
		require.Len(t, x.Finished(func(string) bool { return true }, Ages{Before: FromUnixNano(2)}, 10), 2, "nobody waits for what was filtered out")
		x.RemoveMessages("ch", []uint64{1, 2, 3, 4, 5, 6})
		require.Empty(t, queued(x))
	}
	widened := filter
	widened.Filters = append([]domain.EventFilter{}, filter.Filters[0], domain.EventFilter{Since: 3})
	messages(early)
	early.PutConsumer("ch", widened)
	require.Equal(t, []uint64{1, 2, 4, 5, 6}, queued(early))
}
