package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// playedBroker answers transitions as a test wants, and counts the requests.
type playedBroker struct {
	t *testing.T
	// several answers a request with several transitions; nil has no such route.
	several func(w http.ResponseWriter, ids []string)
	// one returns the status of a single transition, 202 if it is nil.
	one func(id string) int

	mu      sync.Mutex
	batches int
	singles []string
}

func (p *playedBroker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/jobs") {
		p.batches++
		var request struct{ Transitions []transitionJSON }
		assert.NoError(p.t, json.NewDecoder(r.Body).Decode(&request))
		var ids []string
		for _, transition := range request.Transitions {
			ids = append(ids, transition.ID)
		}
		p.several(w, ids)
		return
	}
	id := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	p.singles = append(p.singles, id)
	status := http.StatusAccepted
	if p.one != nil {
		status = p.one(id)
	}
	w.WriteHeader(status)
}

func (p *playedBroker) counts() (batches, singles int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.batches, len(p.singles)
}

func (p *playedBroker) consumer() *Consumer {
	srv := httptest.NewServer(p)
	p.t.Cleanup(srv.Close)
	return New(srv.URL, nil).Consumer("ch", "ct", "k", "kt")
}

func jobsOf(k *Consumer, ids ...string) []*Job {
	jobs := make([]*Job, len(ids))
	for i, id := range ids {
		jobs[i] = &Job{ID: id, consumer: k, claim: "of " + id}
	}
	return jobs
}

// results writes what the broker has to say of several transitions.
func results(w http.ResponseWriter, results ...string) {
	_, _ = fmt.Fprintf(w, `{"Result":[%s]}`, strings.Join(results, ","))
}

// An outcome is taken if the broker says so of that very job, and not before.
func TestResultsBelongToJobs(t *testing.T) {
	for name, tt := range map[string]struct {
		results []string
		want    map[string]error // nil: taken
	}{
		"in order":        {[]string{`{"ID":"a","Status":202}`, `{"ID":"b","Status":202}`}, nil},
		"another order":   {[]string{`{"ID":"b","Status":409,"Error":"lost"}`, `{"ID":"a","Status":202}`}, map[string]error{"b": ErrClaimLost}},
		"without a state": {[]string{`{"ID":"a"}`, `{"ID":"b","Status":202}`}, map[string]error{"a": ErrUnavailable}},
		"without an ID":   {[]string{`{"Status":202}`, `{"ID":"b","Status":202}`}, map[string]error{"a": ErrUnavailable}},
		"of another job":  {[]string{`{"ID":"c","Status":202}`, `{"ID":"b","Status":202}`}, map[string]error{"a": ErrUnavailable}},
		"one of two":      {[]string{`{"ID":"a","Status":202}`}, map[string]error{"a": ErrUnavailable, "b": ErrUnavailable}},
		"three of two":    {[]string{`{"ID":"a","Status":202}`, `{"ID":"b","Status":202}`, `{"ID":"c","Status":202}`}, map[string]error{"a": ErrUnavailable, "b": ErrUnavailable}},
		"one twice":       {[]string{`{"ID":"a","Status":202}`, `{"ID":"a","Status":503}`}, map[string]error{"a": ErrUnavailable, "b": ErrUnavailable}},
		"no success":      {[]string{`{"ID":"a","Status":202}`, `{"ID":"b","Status":100}`}, map[string]error{"b": ErrUnavailable}},
		"none":            {nil, map[string]error{"a": ErrUnavailable, "b": ErrUnavailable}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &playedBroker{t: t, several: func(w http.ResponseWriter, _ []string) { results(w, tt.results...) }}
			k := p.consumer()
			batch := []*outcome{newOutcome(jobsOf(k, "a")[0], "DELIVERED"), newOutcome(jobsOf(k, "b")[0], "DELIVERED")}
			k.send(t.Context(), batch)
			for _, o := range batch {
				<-o.done
				if want := tt.want[o.job.ID]; want != nil {
					require.ErrorIs(t, o.err, want, o.job.ID)
					require.ErrorContains(t, o.err, "job "+o.job.ID)
				} else {
					require.NoError(t, o.err, o.job.ID)
				}
			}
		})
	}
}

// A broker that takes one transition at a time gets them so, and is not asked
// for more again.
func TestABrokerWithoutBatchesGetsSingleTransitions(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusMethodNotAllowed} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			p := &playedBroker{t: t, several: func(w http.ResponseWriter, _ []string) { w.WriteHeader(status) }}
			p.one = func(id string) int {
				if id == "b" {
					return http.StatusConflict
				}
				return http.StatusAccepted
			}
			k := p.consumer()
			err := k.Delivered(t.Context(), jobsOf(k, "a", "b", "c")...)
			require.ErrorIs(t, err, ErrClaimLost)
			require.ErrorContains(t, err, "job b")
			require.NotContains(t, err.Error(), "job a")
			require.ElementsMatch(t, []string{"a", "b", "c"}, p.singles)
			// Another consumer of the same broker knows it too.
			require.NoError(t, k.client.Consumer("ch", "ct", "k2", "kt").Dead(t.Context(), jobsOf(k, "d", "e")...))
			batches, singles := p.counts()
			require.Equal(t, 1, batches)
			require.Equal(t, 5, singles)
		})
	}
}

// 404 is also what a channel is answered with that does not exist: that says
// nothing of the route.
func TestAChannelThatIsGoneSaysNothingOfTheBroker(t *testing.T) {
	p := &playedBroker{t: t, several: func(w http.ResponseWriter, _ []string) { w.WriteHeader(http.StatusNotFound) }}
	p.one = func(string) int { return http.StatusNotFound }
	k := p.consumer()
	require.ErrorIs(t, k.Delivered(t.Context(), jobsOf(k, "a", "b")...), ErrNotFound)
	p.several = func(w http.ResponseWriter, _ []string) {
		results(w, `{"ID":"a","Status":202}`, `{"ID":"b","Status":202}`)
	}
	require.NoError(t, k.Delivered(t.Context(), jobsOf(k, "a", "b")...))
	batches, singles := p.counts()
	require.Equal(t, 2, batches)
	require.Equal(t, 2, singles)
}

// Any other refusal of a request is one of all its outcomes.
func TestARefusedBatchIsNotSentOneByOne(t *testing.T) {
	p := &playedBroker{t: t, several: func(w http.ResponseWriter, _ []string) { w.WriteHeader(http.StatusServiceUnavailable) }}
	k := p.consumer()
	require.ErrorIs(t, k.Delivered(t.Context(), jobsOf(k, "a", "b")...), ErrUnavailable)
	_, singles := p.counts()
	require.Zero(t, singles)
}
