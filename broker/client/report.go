package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
)

// outcome is what became of a job, on its way to the broker.
type outcome struct {
	job   *Job
	state string
	done  chan struct{}
	err   error // before done is closed
}

func newOutcome(j *Job, state string) *outcome {
	return &outcome{job: j, state: state, done: make(chan struct{})}
}

// reporter sends outcomes. Those that come while a request is under way go
// together with the next: a lone one waits for nothing, and however many
// handlers end at a time, the broker has one request to answer.
type reporter struct {
	consumer *Consumer
	turn     chan struct{} // full while somebody sends

	mu      sync.Mutex
	waiting []*outcome
}

func newReporter(k *Consumer) *reporter { return &reporter{consumer: k, turn: make(chan struct{}, 1)} }

// report returns when the broker has taken an outcome or refused it.
func (r *reporter) report(ctx context.Context, j *Job, state string) error {
	o := newOutcome(j, state)
	r.mu.Lock()
	r.waiting = append(r.waiting, o)
	r.mu.Unlock()
	for {
		select {
		case <-o.done:
			return o.err
		case r.turn <- struct{}{}:
			// The outcomes are of others too, whose time is not over with this one's.
			sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
			r.consumer.send(sending, r.take())
			cancel()
			<-r.turn
			select {
			case <-o.done:
				// What became of it is known, however late it is.
				return o.err
			default:
			}
		case <-ctx.Done():
			// Whoever sends next takes it along; the broker knows the job then.
			return context.Cause(ctx)
		}
	}
}

// take takes the first outcomes that wait, as many as a request may have, and one
// of each job: an old one can still wait when its job was claimed and done again.
func (r *reporter) take() (batch []*outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string]bool{}
	left := r.waiting[:0]
	for _, o := range r.waiting {
		if len(batch) == maxClaim || seen[o.job.ID] {
			left = append(left, o)
			continue
		}
		seen[o.job.ID] = true
		batch = append(batch, o)
	}
	clear(r.waiting[len(left):])
	r.waiting = left
	return batch
}

// send reports outcomes of different jobs in one request.
func (k *Consumer) send(ctx context.Context, batch []*outcome) {
	switch len(batch) {
	case 0:
		return
	case 1:
		batch[0].err = batch[0].job.transition(ctx, batch[0].state)
	default:
		results, failed := k.sendAll(ctx, batch)
		for _, o := range batch {
			err := failed
			if err == nil {
				err = verdict(results[o.job.ID])
			}
			if err != nil {
				o.err = fmt.Errorf("job %s: %w", o.job.ID, err)
			}
		}
	}
	for _, o := range batch {
		close(o.done)
	}
}

// result is what became of one transition of several.
type result struct {
	ID     string
	Status int
	Error  string
}

// sendAll makes the request for several transitions, and returns the results by job. An error is of all of them.
func (k *Consumer) sendAll(ctx context.Context, batch []*outcome) (map[string][]result, error) {
	type transition struct{ ID, NextState, ClaimToken string }
	var request struct{ Transitions []transition }
	for _, o := range batch {
		request.Transitions = append(request.Transitions, transition{o.job.ID, o.state, o.job.claim})
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	header := k.header.Clone()
	header.Set("Content-Type", "application/json")
	var answer struct{ Result []result }
	if _, err = k.client.do(ctx, http.MethodPost, k.path+"/jobs", header, body, nil, &answer); err != nil {
		return nil, err
	}
	if len(answer.Result) != len(batch) {
		return nil, fmt.Errorf("%w: %d results for %d transitions", ErrUnavailable, len(answer.Result), len(batch))
	}
	byJob := map[string][]result{}
	for _, r := range answer.Result {
		byJob[r.ID] = append(byJob[r.ID], r)
	}
	return byJob, nil
}

// verdict is what the results of one job say, of which there is to be one. If they do not say it, the outcome may be sent again.
func verdict(results []result) error {
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
