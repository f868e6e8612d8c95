package client

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A request holds one outcome of a job: an old one can still wait when the job was
// claimed and done again, and the broker refuses a request with both.
func TestAReportHasOneOutcomeOfAJob(t *testing.T) {
	r := newReporter(nil)
	for _, id := range []string{"a", "b", "a", "c", "a"} {
		r.waiting = append(r.waiting, newOutcome(&Job{ID: id}, "DELIVERED"))
	}
	ids := func() (ids []string) {
		for _, o := range r.take() {
			ids = append(ids, o.job.ID)
		}
		return ids
	}
	require.Equal(t, []string{"a", "b", "c"}, ids())
	require.Equal(t, []string{"a"}, ids())
	require.Equal(t, []string{"a"}, ids())
	require.Empty(t, ids())
}
