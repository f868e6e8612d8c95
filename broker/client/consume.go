package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jetpull/jetpull/internal/watch"
)

const (
	// pollWait is how long the broker waits for a job before it returns none.
	pollWait = 20 * time.Second
	// claimMargin is how long a response may take beyond pollWait and Options.Timeout. By then its claims have expired, unless the broker's limit is
	// above its default.
	claimMargin = 40 * time.Second
	// maxClaim is the maximum number of jobs in one claim request.
	maxClaim = 100
	// The pause after an error grows from minPause to maxPause.
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
	// settleTries and settleTime limit the attempts to report an outcome.
	settleTries = 5
	settleTime  = 15 * time.Second
)

// Handler does the work of one job. If it returns nil, the job is completed. If it returns an error from [Fatal], the job is dead. After any other
// error, the job is queued again when its claim ends. ctx ends when the claim is lost, or [Options].Drain after Consume's context.
type Handler func(ctx context.Context, j *Job) error

// Options configure Consume. The zero value is usable.
type Options struct {
	// Concurrency is the maximum number of concurrent handlers. 0 means 1.
	Concurrency int
	// Timeout, in whole seconds, is added to the broker's claim time, which is 32.25 s by default. Consume extends claims while a handler runs, so
	// Timeout may be shorter than the longest work. The default is 0.
	Timeout time.Duration
	// Drain is how long handlers may continue after Consume's context has ended. 0 means 30 s.
	Drain time.Duration
	// OnError is called with each problem, possibly concurrently. If it is nil, problems are discarded.
	OnError func(error)
}

type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// Fatal marks a handler's error as permanent: the job becomes dead without a retry.
func Fatal(err error) error { return fatal{err} }

// Consume claims jobs and calls h for each until ctx ends. Then it waits for the running handlers, and returns nil. It returns [ErrDenied] if the
// broker refuses the tokens, and [ErrNotFound] if it does not know the consumer. After any other error it calls OnError and retries. A request
// without a response after a minute plus Timeout counts as such an error.
func (k *Consumer) Consume(ctx context.Context, h Handler, o Options) error {
	if h == nil {
		return errors.New("consume: the handler is nil")
	}
	o.Concurrency = max(o.Concurrency, 1)
	o.Drain = cmp.Or(o.Drain, 30*time.Second)
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	r := &run{consumer: k, handler: h, options: o, work: work, slots: make(chan struct{}, o.Concurrency)}
	err := r.claimLoop(ctx)
	drain := time.AfterFunc(o.Drain, cut)
	defer drain.Stop()
	r.workers.Wait()
	return err
}

// run is the state of one call to Consume.
type run struct {
	consumer *Consumer
	handler  Handler
	options  Options
	work     context.Context // context of the handlers
	slots    chan struct{}
	workers  sync.WaitGroup
}

// claimLoop claims as many jobs as there are free workers, and never more. A job that waited here would be unavailable to other processes.
func (r *run) claimLoop(ctx context.Context) error {
	pause := minPause
	for ctx.Err() == nil {
		select {
		case r.slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		free := min(1+cap(r.slots)-len(r.slots), maxClaim)
		for range free - 1 {
			r.slots <- struct{}{} // does not block, because only this goroutine takes slots
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
		_ = watch.Sleep(ctx, pause)
		pause = min(2*pause, maxPause)
	}
	return nil
}

// claim limits the time of one request. A broker behind a firewall that drops packets never answers.
func (r *run) claim(ctx context.Context, limit int) ([]*Job, error) {
	bound := pollWait + claimMargin + max(r.options.Timeout, 0)
	ctx, cancel := context.WithTimeoutCause(ctx, bound, fmt.Errorf("%w: no answer within %v", ErrUnavailable, bound))
	defer cancel()
	return r.consumer.Claim(ctx, limit, r.options.Timeout, pollWait)
}

// handle runs the handler for one job, extends its claim, and reports the outcome.
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

// call calls the handler. It returns a panic as an error.
func (r *run) call(ctx context.Context, j *Job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v", p)
		}
	}()
	return r.handler(ctx, j)
}

// keep extends the claim whenever half of its remaining time has passed.
func (r *run) keep(ctx context.Context, cancel context.CancelCauseFunc, j *Job) {
	expires := j.ClaimExpires
	for {
		left := time.Until(expires)
		if left <= 0 {
			cancel(ErrClaimLost)
			return
		}
		if watch.Sleep(ctx, left/2) != nil {
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

// settle reports an outcome, even after Consume's context has ended. It retries if the broker cannot be reached.
func (r *run) settle(j *Job, state string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.work), settleTime)
	defer cancel()
	for try := range settleTries {
		err := j.transition(ctx, state)
		if err == nil {
			return
		}
		r.options.OnError(err)
		if !errors.Is(err, ErrUnavailable) || watch.Sleep(ctx, minPause<<try) != nil {
			return
		}
	}
}
