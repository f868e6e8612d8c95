package work

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// TransitionJob makes the transition that a worker requests, if the state machine allows it.
func (x *Jobs) TransitionJob(ctx context.Context, id domain.JobID, req domain.Request) (domain.Job, error) {
	var made bool // by this request, not an earlier one
	j, err := x.change(ctx, id, func(j domain.Job) (domain.Job, error) {
		next, err := domain.Transition(j, req, x.Now(), x.Rules.ClaimLimit())
		made = next != j
		return next, err
	})
	if err != nil {
		return j, err
	}
	x.Metrics.transitions.WithLabelValues(req.Next.String()).Inc()
	if made && j.Status == domain.Dead {
		x.died(j, "its worker says so")
	}
	return j, nil
}

// ExtendJob renews a claim for its full limit from now, plus timeout.
func (x *Jobs) ExtendJob(ctx context.Context, id domain.JobID, claim string, timeout time.Duration) (domain.Job, error) {
	return x.change(ctx, id, func(j domain.Job) (domain.Job, error) {
		return domain.Extend(j, claim, timeout, x.Now(), x.Rules.ClaimLimit())
	})
}

// RequeueJob queues a dead job again, with all its retries.
func (x *Jobs) RequeueJob(ctx context.Context, id domain.JobID) error {
	_, err := x.change(ctx, id, x.requeue)
	return err
}

// RemoveJob removes a dead job without retries left from the dead letters.
func (x *Jobs) RemoveJob(ctx context.Context, id domain.JobID) error {
	_, err := x.change(ctx, id, x.remove)
	return err
}

func (x *Jobs) requeue(j domain.Job) (domain.Job, error) { return domain.Requeue(j, x.Now()) }
func (x *Jobs) remove(j domain.Job) (domain.Job, error) {
	return domain.Remove(j, x.Now(), x.Rules.MaxRetry)
}

// deadPage is how many dead jobs are changed at a time.
const deadPage = 500

// ChangeDead calls change for the dead jobs of a consumer, page by page, and returns how many it changed. It skips jobs whose state has changed by
// then.
func (x *Jobs) ChangeDead(ctx context.Context, c domain.Consumer, change func(context.Context, domain.JobID) error) (int, error) {
	count := 0
	page := domain.Page{Limit: deadPage}
	for {
		jobs := x.Index.ListDead(c.Number, page)
		if len(jobs) == 0 {
			return count, nil
		}
		errs := make([]error, len(jobs))
		var wg sync.WaitGroup
		for i, j := range jobs {
			wg.Go(func() { errs[i] = change(ctx, j.ID) })
		}
		wg.Wait()
		var failed error
		for i, err := range errs {
			switch {
			case err == nil:
				count++
			case notDead(err):
			case errors.Is(err, domain.ErrUnavailable) || ctx.Err() != nil:
				failed = err
			default: // its record cannot be decoded
				x.Log.Warn("a dead job cannot be changed, and is passed over", "job", jobs[i].ID, "error", err)
			}
		}
		if failed != nil {
			return count, failed
		}
		last := jobs[len(jobs)-1]
		page.After = &domain.Position{At: last.ChangedAt.UnixNano(), Seq: last.ID.Seq}
	}
}

// notDead reports whether a job was not changed because it is in another state, or has retries left.
func notDead(err error) bool {
	return errors.Is(err, domain.ErrNotFound) || errors.Is(err, domain.ErrRetriesLeft) || errors.Is(err, domain.ErrInvalidTransition)
}

// maxTries is the maximum number of attempts at a change that conflicts with others.
const maxTries = 100

// change calls decide with the current state of a job. If the decision differs from the state, change writes it, unless the state has changed.
func (x *Jobs) change(ctx context.Context, id domain.JobID, decide func(domain.Job) (domain.Job, error)) (domain.Job, error) {
	for range maxTries {
		j, err := x.Records.Job(ctx, id)
		if err == nil && j.Status.Settled() {
			j, err = x.Records.Refresh(ctx, id)
		}
		if err != nil {
			return j, err
		}
		next, err := decide(j)
		if err != nil || next == j {
			// Read the store before refusing a request, because another node may have just changed the job.
			now, refreshErr := x.Records.Refresh(ctx, id)
			if refreshErr != nil {
				return j, refreshErr
			}
			if now.Revision != j.Revision {
				continue
			}
			return j, err
		}
		next, err = x.Records.PutJob(ctx, next)
		if !errors.Is(err, domain.ErrConflict) {
			return next, err
		}
	}
	return domain.Job{}, fmt.Errorf("%w: job %s changed %d times in a row", domain.ErrConflict, id, maxTries)
}

const (
	// maxExpiring is the maximum number of claims that are ended in parallel.
	maxExpiring = 256
	// expirePause is how long to wait before the next attempt to end a claim.
	expirePause = time.Second
)

func (x *Jobs) expireClaims(ctx context.Context) {
	expiring := make(chan struct{}, maxExpiring)
	for {
		j, ok := x.Index.Queue.Expired(ctx)
		if !ok {
			return
		}
		if !x.Rules.Recovery {
			continue
		}
		if x.Health.Recordable() != nil {
			x.Index.Queue.GiveBackAfter(j, expirePause)
			continue
		}
		select {
		case expiring <- struct{}{}:
		case <-ctx.Done():
			return
		}
		x.running.Go(func() {
			defer func() { <-expiring }()
			x.expire(ctx, j)
		})
	}
}

// expire ends an expired claim. If the store does not accept the record, it is tried again later.
func (x *Jobs) expire(ctx context.Context, j domain.Job) {
	next := domain.Expire(j, x.Now(), x.Rules.MaxRetry)
	if next == j {
		return
	}
	switch _, err := x.Records.PutJob(ctx, next); {
	case err == nil:
		x.Metrics.expiries.WithLabelValues(next.Status.String()).Inc()
		if next.Status == domain.Dead {
			x.died(next, "its claim has ended, and its retries are used up")
		}
	case errors.Is(err, domain.ErrConflict):
	default:
		x.Log.Log(ctx, x.troubleLevel(), "claim that is over could not be ended, trying again", "job", j.ID, "error", err)
		x.Index.Queue.GiveBackAfter(j, expirePause)
	}
}
