package jobindex

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// The oldest job is that of the oldest message which is not worked off, whatever has become of younger ones, and however
// often it was tried.
func TestBacklog(t *testing.T) {
	x := New()
	x.PutConsumer("ch", domain.Consumer{Stakeholder: domain.Stakeholder{Number: 1}, Since: 2})
	revision := uint64(0)
	put := func(seq uint64, status domain.JobStatus) {
		revision++
		x.PutRecord(domain.Job{ID: domain.JobID{Seq: seq, Consumer: 1}, Status: status, Revision: revision, ChangedAt: time.Unix(9000, 0)})
	}
	oldest := func() int64 {
		t.Helper()
		b := x.Backlogs()
		require.Len(t, b, 1)
		if b[0].Oldest.IsZero() {
			return 0
		}
		return b[0].Oldest.Unix()
	}
	require.Zero(t, oldest())
	const messages = 100
	for seq := uint64(1); seq <= messages; seq++ {
		x.AddMessage("ch", Entry{Seq: seq, At: time.Unix(int64(seq), 0).UnixNano()}, "")
	}
	require.EqualValues(t, 3, oldest())
	put(4, domain.Delivered)
	put(3, domain.Queued)
	require.EqualValues(t, 3, oldest(), "a retry is as old as its message")
	put(3, domain.Dead)
	require.EqualValues(t, 5, oldest())
	for seq := uint64(5); seq <= messages-2; seq++ {
		put(seq, domain.Delivered)
	}
	require.EqualValues(t, messages-1, oldest())
	put(messages, domain.Inflight)
	require.EqualValues(t, messages-1, oldest())
	put(3, domain.Queued)
	require.EqualValues(t, 3, oldest(), "queued again")
	b := x.Backlogs()[0]
	require.Equal(t, []int{2, 1, 0}, []int{b.Queued, b.Inflight, b.Dead})
}
