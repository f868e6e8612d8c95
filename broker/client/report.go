package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// transitionAll moves different jobs to a state in one request. The error joins those of the jobs, each with its ID.
func (k *Consumer) transitionAll(ctx context.Context, state string, jobs []*Job) error {
	if len(jobs) == 0 {
		return nil
	}
	results, failed := k.sendAll(ctx, state, jobs)
	errs := make([]error, len(jobs))
	for i, j := range jobs {
		err := failed
		if err == nil {
			err = results[i].verdict(j.ID)
		}
		if err != nil {
			errs[i] = fmt.Errorf("job %s: %w", j.ID, err)
		}
	}
	return errors.Join(errs...)
}

// result is the result of one transition of a batch.
type result struct {
	ID     string
	Status int
	Error  string
}

// sendAll sends a batch of transitions and returns the results in the order of the jobs. An error concerns the request as a unit.
func (k *Consumer) sendAll(ctx context.Context, state string, jobs []*Job) ([]result, error) {
	type transition struct{ ID, NextState, ClaimToken string }
	var request struct{ Transitions []transition }
	for _, j := range jobs {
		request.Transitions = append(request.Transitions, transition{j.ID, state, j.claim})
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
	if len(answer.Result) != len(jobs) {
		return nil, fmt.Errorf("%w: %d results for %d transitions", ErrUnavailable, len(answer.Result), len(jobs))
	}
	return answer.Result, nil
}

// verdict returns the outcome of the job with this ID. If the result is not one of it, the error allows a repetition.
func (r result) verdict(id string) error {
	switch {
	case r.ID != id:
		return fmt.Errorf("%w: the broker's answer has a result of job %q in its place", ErrUnavailable, r.ID)
	case r.Status >= http.StatusMultipleChoices:
		return &Error{Status: r.Status, Text: r.Error, kind: kindOf(r.Status, ErrClaimLost)}
	case r.Status < http.StatusOK:
		return fmt.Errorf("%w: the broker's answer has status %d for this job", ErrUnavailable, r.Status)
	}
	return nil
}
