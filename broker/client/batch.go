package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
)

// singleSenders is how many transitions are under way at a time with a broker
// that takes one in a request.
const singleSenders = 8

type transitionJSON struct{ ID, NextState, ClaimToken string }

// resultJSON is what became of one transition of several.
type resultJSON struct {
	ID     string
	Status int
	Error  string
}

// sendAll reports outcomes of different jobs in one request, or in one each to a
// broker that has no route for more. An error is of all of them.
func (k *Consumer) sendAll(ctx context.Context, batch []*outcome) error {
	if k.client.oneByOne.Load() {
		k.sendEach(ctx, batch)
		return nil
	}
	results, err := k.postAll(ctx, batch)
	refused, ok := errors.AsType[*Error](err)
	switch {
	case err == nil:
		return assign(batch, results)
	case ok && (refused.Status == http.StatusNotFound || refused.Status == http.StatusMethodNotAllowed):
		k.sendEach(ctx, batch)
		// A channel that does not exist is answered with 404 as well, by the other
		// route too.
		if refused.Status == http.StatusMethodNotAllowed || known(batch) {
			k.client.oneByOne.Store(true)
		}
		return nil
	}
	return err
}

// postAll makes the request for several transitions.
func (k *Consumer) postAll(ctx context.Context, batch []*outcome) ([]resultJSON, error) {
	var request struct{ Transitions []transitionJSON }
	for _, o := range batch {
		request.Transitions = append(request.Transitions, transitionJSON{o.job.ID, o.state, o.job.claim})
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	header := k.header.Clone()
	header.Set("Content-Type", "application/json")
	var answer struct{ Result []resultJSON }
	_, err = k.client.do(ctx, http.MethodPost, k.path+"/jobs", header, body, nil, &answer)
	return answer.Result, err
}

// assign gives each outcome what the broker says of its job. What it does not
// say is not known, and may be sent again.
func assign(batch []*outcome, results []resultJSON) error {
	if len(results) != len(batch) {
		return fmt.Errorf("%w: %d results for %d transitions", ErrUnavailable, len(results), len(batch))
	}
	byID := make(map[string][]resultJSON, len(results))
	for _, r := range results {
		byID[r.ID] = append(byID[r.ID], r)
	}
	for _, o := range batch {
		if err := verdict(byID[o.job.ID]); err != nil {
			o.err = fmt.Errorf("job %s: %w", o.job.ID, err)
		}
	}
	return nil
}

// verdict reads the results of one job, of which there is to be one.
func verdict(results []resultJSON) error {
	if len(results) != 1 {
		return fmt.Errorf("%w: the broker's answer has %d results for this job", ErrUnavailable, len(results))
	}
	switch r := results[0]; {
	case r.Status >= http.StatusMultipleChoices:
		return &Error{Status: r.Status, Text: r.Error, kind: kindOf(r.Status, ErrClaimLost)}
	case r.Status < http.StatusOK:
		return fmt.Errorf("%w: the broker's answer has status %d for this job", ErrUnavailable, r.Status)
	}
	return nil
}

// sendEach reports each outcome in a request of its own.
func (k *Consumer) sendEach(ctx context.Context, batch []*outcome) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, singleSenders)
	for _, o := range batch {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			o.err = o.job.transition(ctx, o.state)
		})
	}
	wg.Wait()
}

// known tells whether the broker has shown, by an answer to one of the outcomes,
// that it knows of their consumer.
func known(batch []*outcome) bool {
	for _, o := range batch {
		if o.err == nil {
			return true
		}
		if refused, ok := errors.AsType[*Error](o.err); ok && refused.Status != http.StatusNotFound && refused.Status < http.StatusInternalServerError {
			return true
		}
	}
	return false
}
