package feed

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"
)

// Processor processes items. Its methods are called by several goroutines.
type Processor interface {
	// Process makes one attempt at a step of an item. An error or a panic is a failed attempt; see [Permanent] and
	// [RetryAfter]. Its context carries the values of Run's and outlives it for DrainTimeout; it ends early when
	// the lease is lost, after which nothing that Process returns is saved.
	Process(ctx context.Context, it Item) (Response, error)
}

// BatchProcessor is a [Processor] that takes several items in one call, of one or more partitions, each at its gate.
type BatchProcessor interface {
	Processor
	// BatchSize is the most items of a call, asked for once; under 2: Process is called instead.
	BatchSize() int
	// ProcessBatch returns a Response and an error for each item. Where it returns another number of either, or
	// panics, the attempt has failed for all.
	ProcessBatch(ctx context.Context, items []Item) ([]Response, []error)
}

// ProcessorFunc is a function as a [Processor].
type ProcessorFunc func(context.Context, Item) (Response, error)

// Process calls the function.
func (f ProcessorFunc) Process(ctx context.Context, it Item) (Response, error) { return f(ctx, it) }

// errRegression is the error of a Response with a gate below the item's.
var errRegression = errors.New("the response's gate is below the item's")

// errExited is the outcome of a handler that called runtime.Goexit, as FailNow of a test does.
var errExited = errors.New("the handler's goroutine exited")

// processOne makes an attempt, in which a panic is an error.
func processOne(ctx context.Context, p Processor, it Item) (resp Response, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return p.Process(ctx, it)
}

func processBatch(ctx context.Context, p BatchProcessor, items []Item) (resps []Response, errs []error) {
	defer func() {
		if r := recover(); r != nil {
			resps, errs = allFailed(len(items), fmt.Errorf("panic: %v\n%s", r, debug.Stack()))
		}
	}()
	resps, errs = p.ProcessBatch(ctx, items)
	if len(resps) != len(items) || len(errs) != len(items) {
		resps, errs = allFailed(len(items), fmt.Errorf("ProcessBatch returned %d responses and %d errors for %d items", len(resps), len(errs), len(items)))
	}
	return resps, errs
}

func allFailed(n int, err error) ([]Response, []error) {
	return make([]Response, n), slices.Repeat([]error{err}, n)
}

// outcomeOf is what an attempt makes of an item.
func (c *config) outcomeOf(l lease, it Item, resp Response, err error) result {
	r := result{lease: l, item: it, gate: it.Gate, attempt: it.Attempt, errors: it.Errors}
	if err == nil && resp.Gate != nil && *resp.Gate < it.Gate {
		err = Permanent(fmt.Errorf("%w: %d, item %d", errRegression, *resp.Gate, it.Gate))
	}
	if err != nil {
		c.failed(&r, err)
		return r
	}
	r.data, r.stepped = resp.Data, true
	if resp.Gate != nil {
		r.gate = *resp.Gate
	}
	if resp.Done {
		r.status = Complete
		return r
	}
	r.status, r.attempt, r.errors = Available, 0, nil
	if r.gate == it.Gate {
		r.delay = c.requeue
	}
	return r
}

func (c *config) failed(r *result, err error) {
	c.onError(r.item, err)
	r.errors, r.status = addError(r.errors, err.Error()), Available
	_, permanent := errors.AsType[*permanentError](err)
	if permanent || (c.maxRetries >= 0 && r.attempt > c.maxRetries) {
		r.status = Failed
		return
	}
	if after, ok := errors.AsType[*retryAfterError](err); ok {
		r.delay = after.after
	} else {
		r.delay = c.safeBackoff(r)
	}
	r.delay = min(max(r.delay, 0), maxDelay)
}

func (c *config) safeBackoff(r *result) (d time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			r.status, r.errors = Failed, addError(r.errors, fmt.Sprintf("Backoff panicked: %v", v))
		}
	}()
	return c.backoff(r.attempt)
}
