package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// pollWait is how long the broker is asked to wait for a job.
	pollWait = 20 * time.Second
	// claimMargin is how long an answer may take beyond that and Options.Timeout. By
	// then, unless the broker's limit is longer than its default, the claims in it
	// would be over.
	claimMargin = 40 * time.Second
	// maxClaim is how many jobs are claimed at a time.
	maxClaim = 100
	// Pauses after an error grow from one to the other.
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
	// settleTries and settleTime bound the reports of an outcome.
	settleTries = 5
	settleTime  = 15 * time.Second
)

// Handler does the work of one job. nil completes the job; an error that comes
// from Fatal makes it dead; any other leaves it to be queued again when its
// claim ends. Its context ends when the claim is lost, or Drain after Consume's.
type Handler func(ctx context.Context, j *Job) error

// Options change how Consume works. The zero value is usable.
type Options struct {
	// Concurrency is the number of jobs in work at a time. Default 1.
	Concurrency int
	// Timeout is added to the broker's limit for each claim. Claims are
	// extended while a handler runs, so that it need not be the time of the
	// longest work. Whole seconds. Default 0.
	Timeout time.Duration
	// Drain is how long handlers may go on when Consume is to end. Default 30 s.
	Drain time.Duration
	// OnError is told of each problem. It is called from several goroutines.
	// Default: nothing.
	OnError func(error)
}

type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// Fatal marks an error of a handler: the job is dead, nothing will mend it.
func Fatal(err error) error { return fatal{err} }

// Consume claims jobs and runs h for each until ctx ends; then it waits for the
// handlers that run, and returns nil. It returns early when the broker denies
// the tokens or does not know the consumer. Any other error goes to OnError, and
// the broker is asked again: also if it does not answer within a minute, plus
// Timeout.
func (k *Consumer) Consume(ctx context.Context, h Handler, o Options) error {
	if h == nil {
		return errors.New("consume: the handler is nil")
	}
	o.Concurrency = max(o.Concurrency, 1)
	if o.Drain == 0 {
		o.Drain = 30 * time.Second
	}
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	r := &run{consumer: k, handler: h, options: o, work: work, slots: make(chan struct{}, o.Concurrency)}
	err := r.claimLoop(ctx)
	done := make(chan struct{})
	go func() {
		r.workers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(o.Drain):
		cut()
		<-done
	}
	return err
}

// run is one call of Consume.
type run struct {
	consumer *Consumer
	handler  Handler
	options  Options
	work     context.Context // of the handlers
	slots    chan struct{}
	workers  sync.WaitGroup
}

// claimLoop claims as many jobs as there are free workers, never more: a job
// that waits here would wait for nobody else.
func (r *run) claimLoop(ctx context.Context) error {
	pause := minPause
	for {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		free := 1
		for free < maxClaim && r.trySlot() {
			free++
		}
		jobs, err := r.claim(ctx, free)
		for range free - len(jobs) {
			<-r.slots
		}
		for _, j := range jobs {
			r.workers.Go(func() {
				defer func() { <-r.slots }()
				r.handle(j)
			})
		}
		if err == nil {
			pause = minPause
			continue
		}
		if errors.Is(err, ErrDenied) || errors.Is(err, ErrNotFound) {
			return err
		}
		if ctx.Err() == nil {
			r.options.OnError(fmt.Errorf("claim: %w", err))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, maxPause)
	}
}

// claim bounds one request: a broker that a firewall cuts off says nothing, for ever.
func (r *run) claim(ctx context.Context, limit int) ([]*Job, error) {
	bound := pollWait + claimMargin + max(r.options.Timeout, 0)
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("%w: no answer within %v", ErrUnavailable, bound))
	defer cancel()
	return r.consumer.Claim(ctx, limit, r.options.Timeout, pollWait)
}

func (r *run) trySlot() bool {
	select {
	case r.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// handle runs the handler for one job, keeps its claim, and reports the outcome.
func (r *run) handle(j *Job) {
	ctx, cancel := context.WithCancelCause(r.work)
	defer cancel(nil)
	var keeping sync.WaitGroup
	keeping.Go(func() { r.keep(ctx, cancel, j) })
	err := r.call(ctx, j)
	lost := errors.Is(context.Cause(ctx), ErrClaimLost)
	cancel(nil)
	keeping.Wait()
	var dead fatal
	switch {
	case lost:
		r.options.OnError(fmt.Errorf("job %s: %w", j.ID, errors.Join(ErrClaimLost, err)))
	case err == nil:
		r.settle(j, "DELIVERED")
	case errors.As(err, &dead):
		r.options.OnError(fmt.Errorf("job %s is dead: %w", j.ID, err))
		r.settle(j, "DEAD")
	default:
		r.options.OnError(fmt.Errorf("job %s is left to be queued again: %w", j.ID, err))
	}
}

// call makes a panic of the handler an error.
func (r *run) call(ctx context.Context, j *Job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v", p)
		}
	}()
	return r.handler(ctx, j)
}

// keep extends the claim each time half of what is left of it is over.
func (r *run) keep(ctx context.Context, cancel context.CancelCauseFunc, j *Job) {
	expires := j.ClaimExpires
	for {
		left := time.Until(expires)
		if left <= 0 {
			cancel(ErrClaimLost)
			return
		}
		select {
		case <-time.After(left / 2):
		case <-ctx.Done():
			return
		}
		trying, stop := context.WithDeadline(ctx, expires)
		extended, err := j.Extend(trying, r.options.Timeout)
		stop()
		switch {
		case err == nil:
			expires = extended
		case errors.Is(err, ErrClaimLost), errors.Is(err, ErrNotFound):
			cancel(ErrClaimLost)
			return
		case ctx.Err() != nil:
			return
		default:
			r.options.OnError(fmt.Errorf("extend: %w", err))
		}
	}
}

// settle reports an outcome, again if the broker cannot be reached. It is
// reported even when Consume is ending.
func (r *run) settle(j *Job, state string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.work), settleTime)
	defer cancel()
	for try := range settleTries {
		err := j.transition(ctx, state)
		if err == nil {
			return
		}
		r.options.OnError(err)
		if !errors.Is(err, ErrUnavailable) {
			return
		}
		select {
		case <-time.After(minPause << try):
		case <-ctx.Done():
			return
		}
	}
}
