package client

import (
	"context"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
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

// Whoever sends the outcomes of others does it in their time: they are not to
// fail because its own is over.
func TestAReportOutlivesItsSender(t *testing.T) {
	arrived, answer := make(chan []string), make(chan struct{})
	p := &playedBroker{t: t, several: func(w http.ResponseWriter, ids []string) {
		arrived <- ids
		<-answer
		results(w, `{"ID":"others","Status":202}`, `{"ID":"senders","Status":202}`)
	}}
	k := p.consumer()
	r := newReporter(k)
	jobs := jobsOf(k, "others", "senders")
	others := newOutcome(jobs[0], "DELIVERED")
	r.waiting = append(r.waiting, others)
	ctx, cancel := context.WithCancel(t.Context())
	reported := make(chan error, 1)
	go func() { reported <- r.report(ctx, jobs[1], "DELIVERED") }()
	require.Equal(t, []string{"others", "senders"}, <-arrived)
	cancel()
	close(answer)
	<-others.done
	require.NoError(t, others.err)
	require.NoError(t, <-reported)
}

// A reporter whose time is over while another sends leaves its outcome to be
// taken along.
func TestAReportThatIsGivenUpIsSent(t *testing.T) {
	p := &playedBroker{t: t, several: func(w http.ResponseWriter, ids []string) {
		assert.Equal(t, []string{"late", "next"}, ids)
		results(w, `{"ID":"late","Status":202}`, `{"ID":"next","Status":202}`)
	}}
	r := newReporter(p.consumer())
	jobs := jobsOf(r.consumer, "late", "next")
	r.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.report(ctx, jobs[0], "DELIVERED"), context.Canceled)
	<-r.turn
	require.NoError(t, r.report(t.Context(), jobs[1], "DELIVERED"))
	batches, singles := p.counts()
	require.Equal(t, 1, batches)
	require.Zero(t, singles)
}
