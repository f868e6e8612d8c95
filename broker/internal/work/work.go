package work

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Work is a job together with its message, as a worker gets it.
type Work struct {
	Job     domain.Job
	Message domain.Message
}

// QueuedJobs returns the first queued jobs of a consumer without claiming them.
// If there is none, it waits for one up to the given time.
func (b *Broker) QueuedJobs(ctx context.Context, c domain.Consumer, limit int, wait time.Duration) ([]Work, error) {
	var work []Work
	err := b.poll(ctx, c, wait, func() (bool, error) {
		var err error
		work, err = b.queuedNow(ctx, c, limit)
		return len(work) > 0 || limit == 0, err
	})
	if err != nil {
		return nil, err
	}
	return work, nil
}

func (b *Broker) queuedNow(ctx context.Context, c domain.Consumer, limit int) ([]Work, error) {
	for {
		all, err := b.withMessages(ctx, b.store.Queued(c.Number, limit))
		if err != nil {
			return nil, err
		}
		work, err := b.bury(context.WithoutCancel(ctx), c, all)
		if len(work) > 0 || len(all) == 0 || err != nil {
			return work, err
		}
	}
}

// ClaimJobs gives up to limit queued jobs to one worker and to nobody else. If
// there is none, it waits for one up to the given time. The claims end after
// the limit plus the timeout, if they are not extended.
func (b *Broker) ClaimJobs(ctx context.Context, c domain.Consumer, limit int, timeout, wait time.Duration) ([]Work, error) {
	var work []Work
	err := b.poll(ctx, c, wait, func() (bool, error) {
		var err error
		work, err = b.claimNow(context.WithoutCancel(ctx), c, limit, timeout)
		return len(work) > 0 || limit == 0, err
	})
	if ctx.Err() != nil {
		b.release(context.WithoutCancel(ctx), work)
		return nil, context.Cause(ctx)
	}
	b.metrics.claimed(len(work))
	return work, err
}

// release gives claims back that no worker got.
func (b *Broker) release(ctx context.Context, work []Work) {
	var wg sync.WaitGroup
	for _, w := range work {
		wg.Go(func() {
			_, err := b.change(ctx, w.Job.ID, func(j domain.Job) (domain.Job, bool, error) {
				next, changed := domain.Release(j, w.Job.Claim, time.Now())
				return next, changed, nil
			})
			if err != nil {
				b.log.Info("claim that no worker got is left to expire", "job", w.Job.ID, "error", err)
			}
		})
	}
	wg.Wait()
}

// poll calls look at once and then whenever the consumer gets a job, until it
// is done or the time is over.
func (b *Broker) poll(ctx context.Context, c domain.Consumer, wait time.Duration, look func() (done bool, err error)) error {
	timeout := time.After(wait)
	for {
		// Taken first, so that a job that comes during the look is noticed.
		signal := b.store.QueuedSignal(c.Number)
		if done, err := look(); done || err != nil || wait <= 0 {
			return err
		}
		select {
		case <-signal:
			if current, ok := b.store.ConsumerByNumber(c.Number); !ok || current.Type != domain.Pull {
				return nil
			}
		case <-timeout:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (b *Broker) claimNow(ctx context.Context, c domain.Consumer, limit int, timeout time.Duration) ([]Work, error) {
	for {
		jobs, err := b.claim(ctx, c, limit, timeout)
		if len(jobs) == 0 {
			return nil, err
		}
		if work, err := b.fill(ctx, c, jobs); len(work) > 0 || err != nil {
			return work, err
		}
	}
}

// claim claims the first jobs of a consumer. An error means that there were some, and none could be claimed.
func (b *Broker) claim(ctx context.Context, c domain.Consumer, limit int, timeout time.Duration) ([]domain.Job, error) {
	taken := b.store.Take(c.Number, limit)
	if len(taken) == 0 {
		return nil, nil
	}
	claimed := make([]*domain.Job, len(taken))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for i, j := range taken {
		wg.Go(func() {
			put, err := b.claimOne(ctx, j, timeout)
			if err == nil {
				claimed[i] = &put
				return
			}
			b.store.GiveBack(j)
			if !errors.Is(err, domain.ErrConflict) {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	jobs := make([]domain.Job, 0, len(taken))
	for _, j := range claimed {
		if j != nil {
			jobs = append(jobs, *j)
		}
	}
	if len(jobs) == 0 {
		return nil, failed
	}
	return jobs, nil
}

// fill gives claimed jobs their messages. A job whose message cannot be read at
// the moment is released, since nobody gets it; the others are work, if there are
// any.
func (b *Broker) fill(ctx context.Context, c domain.Consumer, jobs []domain.Job) ([]Work, error) {
	all, err := b.withMessages(ctx, jobs)
	if err != nil {
		b.release(ctx, withoutMessage(jobs, all))
	}
	work, buryErr := b.bury(ctx, c, all)
	if err = errors.Join(err, buryErr); err == nil {
		return work, nil
	}
	if len(work) == 0 {
		return nil, err
	}
	b.log.Warn("some claimed jobs had to be left out", "claimed", len(jobs), "given", len(work), "error", err)
	return work, nil
}

// bury ends the jobs whose messages can never be read, and returns the others. Left alone, they would be first for ever.
func (b *Broker) bury(ctx context.Context, c domain.Consumer, all []Work) (work []Work, err error) {
	for _, w := range all {
		if w.Message.Unreadable == nil {
			work = append(work, w)
		} else {
			err = errors.Join(err, b.buryJob(ctx, c, w))
		}
	}
	return work, err
}

// buryJob ends one. Why is in the history of its attempts.
func (b *Broker) buryJob(ctx context.Context, c domain.Consumer, w Work) error {
	_, err := b.change(ctx, w.Job.ID, func(j domain.Job) (domain.Job, bool, error) {
		now := time.Now()
		next, changed := domain.Bury(j, now, b.rules.MaxRetry)
		if changed {
			b.log.Error("a job is dead: its message can never be read", "channel", c.Channel, "consumer", c.ID, "job", j.ID, "error", w.Message.Unreadable)
			next = b.attempted(ctx, c, next, ended{Attempt: domain.Attempt{StartedAt: now.UTC(), Error: w.Message.Unreadable.Error()}})
		}
		return next, changed, nil
	})
	if errors.Is(err, domain.ErrNotFound) {
		return nil // pruned meanwhile
	}
	return err
}

// withoutMessage are the jobs that did not become work.
func withoutMessage(jobs []domain.Job, work []Work) (rest []Work) {
	filled := make(map[domain.JobID]bool, len(work))
	for _, w := range work {
		filled[w.Job.ID] = true
	}
	for _, j := range jobs {
		if !filled[j.ID] {
			rest = append(rest, Work{Job: j})
		}
	}
	return rest
}

func (b *Broker) claimOne(ctx context.Context, j domain.Job, timeout time.Duration) (domain.Job, error) {
	next, err := domain.Claim(j, domain.NewToken(), timeout, time.Now(), b.rules.ClaimLimit)
	if err != nil {
		return j, err
	}
	return b.store.PutJob(ctx, next)
}

// withMessages adds the messages. A job whose message was pruned meanwhile is
// left out, and with an error those whose messages could not be read now.
func (b *Broker) withMessages(ctx context.Context, jobs []domain.Job) ([]Work, error) {
	seqs := make([]uint64, len(jobs))
	for i, j := range jobs {
		seqs[i] = j.ID.Seq
	}
	messages, err := b.store.MessagesAt(ctx, seqs)
	work := make([]Work, 0, len(jobs))
	for _, j := range jobs {
		if m, ok := messages[j.ID.Seq]; ok {
			work = append(work, Work{Job: j, Message: m})
		}
	}
	return work, err
}

// Job returns a job that was not removed, as it is known on this node.
func (b *Broker) Job(ctx context.Context, id domain.JobID) (domain.Job, error) {
	j, err := b.store.Job(ctx, id)
	return notRemoved(j, err)
}

// RefreshJob is Job, after a look at what is stored: another node may have
// changed the job a moment ago.
func (b *Broker) RefreshJob(ctx context.Context, id domain.JobID) (domain.Job, error) {
	j, err := b.store.Refresh(ctx, id)
	return notRemoved(j, err)
}

func notRemoved(j domain.Job, err error) (domain.Job, error) {
	if err == nil && j.Status == domain.Removed {
		return j, fmt.Errorf("%w: job %s", domain.ErrNotFound, j.ID)
	}
	return j, err
}

// TransitionJob does what a worker asks for, if the state machine has it.
func (b *Broker) TransitionJob(ctx context.Context, id domain.JobID, req domain.Request) (domain.Job, error) {
	j, err := b.change(ctx, id, func(j domain.Job) (domain.Job, bool, error) {
		return domain.Transition(j, req, time.Now(), b.rules.ClaimLimit)
	})
	if err == nil {
		b.metrics.transitioned(req.Next)
	}
	return j, err
}

// ExtendJob lets a claim run for its whole limit again, from now.
func (b *Broker) ExtendJob(ctx context.Context, id domain.JobID, claim string, timeout time.Duration) (domain.Job, error) {
	return b.change(ctx, id, func(j domain.Job) (domain.Job, bool, error) {
		next, err := domain.Extend(j, claim, timeout, time.Now(), b.rules.ClaimLimit)
		return next, true, err
	})
}

// RequeueJob gives a dead job all its retries again.
func (b *Broker) RequeueJob(ctx context.Context, id domain.JobID) error {
	_, err := b.change(ctx, id, func(j domain.Job) (domain.Job, bool, error) {
		next, err := domain.Requeue(j, time.Now())
		return next, true, err
	})
	return err
}

// RemoveJob takes a dead job that has used up its retries out of the dead
// letters.
func (b *Broker) RemoveJob(ctx context.Context, id domain.JobID) error {
	_, err := b.change(ctx, id, func(j domain.Job) (domain.Job, bool, error) {
		next, err := domain.Remove(j, time.Now(), b.rules.MaxRetry)
		return next, true, err
	})
	return err
}

// deadPage is how many dead jobs are changed at a time.
const deadPage = 500

// RequeueDead gives all dead jobs of a consumer their retries again.
func (b *Broker) RequeueDead(ctx context.Context, c domain.Consumer) (int, error) {
	return b.eachDead(ctx, c, b.RequeueJob)
}

// PurgeDead removes the dead jobs of a consumer that have used up their retries.
func (b *Broker) PurgeDead(ctx context.Context, c domain.Consumer) (int, error) {
	return b.eachDead(ctx, c, b.RemoveJob)
}

// eachDead goes through the dead jobs page by page and counts those that do
// changed. Jobs that are not what do changes, or not any more, are passed by.
func (b *Broker) eachDead(ctx context.Context, c domain.Consumer, do func(context.Context, domain.JobID) error) (int, error) {
	var mu sync.Mutex
	var failed error
	count := 0
	page := domain.Page{Limit: deadPage}
	for {
		jobs := b.store.ListJobs(c.Number, domain.Dead, page)
		if len(jobs) == 0 {
			return count, nil
		}
		var wg sync.WaitGroup
		for _, j := range jobs {
			wg.Go(func() {
				err := do(ctx, j.ID)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					count++
				case errors.Is(err, domain.ErrNotFound), errors.Is(err, domain.ErrRetriesLeft), errors.Is(err, domain.ErrInvalidTransition):
				default:
					failed = err
				}
			})
		}
		wg.Wait()
		if failed != nil {
			return count, failed
		}
		last := jobs[len(jobs)-1]
		page.After = &domain.Position{At: last.ChangedAt.UnixNano(), Seq: last.ID.Seq}
	}
}
