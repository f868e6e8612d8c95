package httpapi

import (
	"context"
	"net/http"
	"runtime/debug"
	"sync"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// batchTransition is one transition of several in a request.
type batchTransition struct {
	ID string
	transitionRequest
}

// batchResult is what the transition would have been answered with alone.
type batchResult struct {
	ID     string
	Status int
	Error  string `json:",omitempty"`
}

// transitionJobs moves several jobs at a time, each as a request of its own
// would. They wait for the disk together, which is what a worker's pace depends
// on that completes one job after the other.
func (a workers) transitionJobs(r *http.Request, k domain.Consumer) (any, error) {
	var req struct{ Transitions []batchTransition }
	if err := httpserve.ReadJSON(r, &req); err != nil {
		return nil, err
	}
	if err := checkBatch(req.Transitions); err != nil {
		return nil, err
	}
	results := make([]batchResult, len(req.Transitions))
	var wg sync.WaitGroup
	for i, t := range req.Transitions {
		wg.Go(func() { results[i] = a.transitionOne(r.Context(), k, t) })
	}
	wg.Wait()
	return map[string][]batchResult{"Result": results}, nil
}

// checkBatch refuses none, too many, and two of a job, which would have no
// order: the transitions are made side by side.
func checkBatch(transitions []batchTransition) error {
	if len(transitions) == 0 {
		return httpserve.BadRequest("Transitions is empty: give 1 to %d of them", maxPageSize)
	}
	if n := len(transitions); n > maxPageSize {
		return httpserve.BadRequest("%d transitions: at most %d are taken at a time", n, maxPageSize)
	}
	seen := make(map[string]bool, len(transitions))
	for _, t := range transitions {
		if seen[t.ID] {
			return httpserve.BadRequest("job %q has two transitions: send one after the other", t.ID)
		}
		seen[t.ID] = true
	}
	return nil
}

// transitionOne runs in a goroutine of its own, so that nobody but itself can
// recover a panic, which would end the process.
func (a workers) transitionOne(ctx context.Context, k domain.Consumer, t batchTransition) (result batchResult) {
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("transition panicked", "job", t.ID, "panic", p, "stack", string(debug.Stack()))
			result = batchResult{ID: t.ID, Status: http.StatusInternalServerError, Error: "internal error"}
		}
	}()
	j, err := a.jobOf(ctx, k, t.ID)
	if err == nil {
		err = a.transition(ctx, j, t.transitionRequest)
	}
	if err == nil {
		return batchResult{ID: t.ID, Status: http.StatusAccepted}
	}
	e := describe(err)
	if e.Status >= http.StatusInternalServerError && ctx.Err() == nil {
		a.log.Warn("transition failed", "job", t.ID, "error", err)
	}
	return batchResult{ID: t.ID, Status: e.Status, Error: e.Message}
}
