package feed

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
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
	// panics, the attempt has failed for all. Its context outlives Run's for DrainTimeout. It does not end when a lease is
	// lost, as the other items' may be held: nothing that is returned for the items of the lost one is saved.
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
	resp, err = p.Process(ctx, it)
	return resp, usable(err)
}

// usable is a handler's error, or one in its place where its methods panic: a nil pointer of an error's type.
func usable(err error) (e error) {
	defer func() {
		if r := recover(); r != nil {
			e = fmt.Errorf("panic in the methods of an error of type %T: %v", err, r)
		}
	}()
	if err != nil {
		_ = err.Error()
		_, _ = errors.AsType[*permanentError](err) // goes through what it wraps
	}
	return err
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
	errs = slices.Clone(errs) // the handler's
	for i, err := range errs {
		errs[i] = usable(err)
	}
	return resps, errs
}

func allFailed(n int, err error) ([]Response, []error) {
	return make([]Response, n), slices.Repeat([]error{err}, n)
}

// outcomeOf is what an attempt makes of an item.
func (c *config) outcomeOf(l sqlstore.Lease, it Item, resp Response, err error) sqlstore.Result {
	r := sqlstore.Result{Lease: l, Item: it.ID, Version: it.Version, Gate: it.Gate, Attempt: it.Attempt, Errors: it.Errors}
	if err == nil && resp.Gate != nil && *resp.Gate < it.Gate {
		err = Permanent(fmt.Errorf("%w: %d, item %d", errRegression, *resp.Gate, it.Gate))
	}
	if err != nil {
		c.failed(it, &r, err)
		return r
	}
	r.Data, r.Stepped = resp.Data, true
	if resp.Gate != nil {
		r.Gate = *resp.Gate
	}
	if resp.Done {
		r.Status = sqlstore.Complete
		return r
	}
	r.Status, r.Attempt, r.Errors = sqlstore.Available, 0, nil
	if r.Gate == it.Gate {
		r.Delay = c.requeue
	}
	return r
}

func (c *config) failed(it Item, r *sqlstore.Result, err error) {
	c.onError(it, err)
	r.Errors, r.Status, r.History = addError(r.Errors, err.Error()), sqlstore.Available, new(addAttempt(it, err.Error()))
	_, permanent := errors.AsType[*permanentError](err)
	if permanent || (c.maxRetries >= 0 && r.Attempt > c.maxRetries) {
		r.Status = sqlstore.Failed
		return
	}
	if after, ok := errors.AsType[*retryAfterError](err); ok {
		r.Delay = after.after
	} else {
		r.Delay = c.safeBackoff(r)
	}
	r.Delay = min(max(r.Delay, 0), maxDelay)
}

func (c *config) safeBackoff(r *sqlstore.Result) (d time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			r.Status, r.Errors = sqlstore.Failed, addError(r.Errors, fmt.Sprintf("Backoff panicked: %v", v))
		}
	}()
	return c.backoff(r.Attempt)
}
