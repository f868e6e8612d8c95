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

// playedBroker answers transitions as scripted by a test, and counts the requests.
type playedBroker struct {
	t *testing.T
	// several answers a request with several transitions.
	several func(w http.ResponseWriter, ids []string)

	mu      sync.Mutex
	batches int
	singles []string
}

func (p *playedBroker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/jobs") {
		p.batches++
		var request struct {
			Transitions []struct{ ID, NextState, ClaimToken string }
		}
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
	w.WriteHeader(http.StatusAccepted)
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

// results writes the broker's answer to several transitions.
func results(w http.ResponseWriter, results ...string) {
	_, _ = fmt.Fprintf(w, `{"Result":[%s]}`, strings.Join(results, ","))
}

// An outcome counts as accepted only if the broker's answer names that job in its place.
func TestResultsBelongToJobs(t *testing.T) {
	for name, tt := range map[string]struct {
		results []string
		want    map[string]error // nil: accepted
	}{
		"in order":        {[]string{`{"ID":"a","Status":202}`, `{"ID":"b","Status":202}`}, nil},
		"a claim is lost": {[]string{`{"ID":"a","Status":202}`, `{"ID":"b","Status":409,"Error":"lost"}`}, map[string]error{"b": ErrClaimLost}},
		"another order":   {[]string{`{"ID":"b","Status":202}`, `{"ID":"a","Status":202}`}, map[string]error{"a": ErrUnavailable, "b": ErrUnavailable}},
		"without a state": {[]string{`{"ID":"a"}`, `{"ID":"b","Status":202}`}, map[string]error{"a": ErrUnavailable}},
		"without an ID":   {[]string{`{"Status":202}`, `{"ID":"b","Status":202}`}, map[string]error{"a": ErrUnavailable}},
		"of another job":  {[]string{`{"ID":"c","Status":202}`, `{"ID":"b","Status":202}`}, map[string]error{"a": ErrUnavailable}},
		"one of two":      {[]string{`{"ID":"a","Status":202}`}, map[string]error{"a": ErrUnavailable, "b": ErrUnavailable}},
		"three of two":    {[]string{`{"ID":"a","Status":202}`, `{"ID":"b","Status":202}`, `{"ID":"c","Status":202}`}, map[string]error{"a": ErrUnavailable, "b": ErrUnavailable}},
		"one twice":       {[]string{`{"ID":"a","Status":202}`, `{"ID":"a","Status":503}`}, map[string]error{"b": ErrUnavailable}},
		"no success":      {[]string{`{"ID":"a","Status":202}`, `{"ID":"b","Status":100}`}, map[string]error{"b": ErrUnavailable}},
		"none":            {nil, map[string]error{"a": ErrUnavailable, "b": ErrUnavailable}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &playedBroker{t: t, several: func(w http.ResponseWriter, _ []string) { results(w, tt.results...) }}
			k := p.consumer()
			err := k.Delivered(t.Context(), jobsOf(k, "a", "b")...)
			for _, id := range []string{"a", "b"} {
				if want := tt.want[id]; want != nil {
					require.ErrorIs(t, err, want, id)
					require.ErrorContains(t, err, "job "+id)
				} else if err != nil {
					require.NotContains(t, err.Error(), "job "+id)
				}
			}
			require.Equal(t, len(tt.want) == 0, err == nil)
		})
	}
}

// If the broker refuses a batch, each of its outcomes is refused, and none is sent again alone.
func TestARefusedBatchIsNotSentOneByOne(t *testing.T) {
	p := &playedBroker{t: t, several: func(w http.ResponseWriter, _ []string) { w.WriteHeader(http.StatusServiceUnavailable) }}
	k := p.consumer()
	require.ErrorIs(t, k.Delivered(t.Context(), jobsOf(k, "a", "b")...), ErrUnavailable)
	_, singles := p.counts()
	require.Zero(t, singles)
}
