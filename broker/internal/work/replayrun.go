package work

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

const (
	// replaySave is how often a replay that runs is saved, and looked at.
	replaySave = time.Second
	// replayLost is how long one is not saved before another process takes it over.
	replayLost = 10 * time.Second
)

// replayRuns are the replays that this process runs.
type replayRuns struct {
	mu   sync.Mutex
	here map[string]context.CancelFunc // nil after the last has begun
}

// sighting is when a replay was first seen at a revision, by this process's clock.
type sighting struct {
	revision uint64
	at       time.Time
}

// watchReplays takes replays over until ctx ends.
func (p *Replays) watchReplays(ctx context.Context) {
	ticker := time.NewTicker(replaySave)
	defer ticker.Stop()
	seen := map[string]sighting{}
	for {
		before := seen
		seen = map[string]sighting{}
		for _, r := range p.store.RunningReplays() {
			last := before[r.ID()]
			if last.revision != r.Revision {
				last = sighting{r.Revision, time.Now()}
			}
			seen[r.ID()] = last
			p.watchReplay(ctx, r, last)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			p.runs.mu.Lock()
			for _, cancel := range p.runs.here {
				cancel()
			}
			p.runs.here = nil
			p.runs.mu.Unlock()
			return
		}
	}
}

func (p *Replays) watchReplay(ctx context.Context, r domain.Replay, last sighting) {
	if _, ok := p.consumers.ConsumerByNumber(r.Consumer); !ok {
		return // it was deleted a moment ago
	}
	p.runs.mu.Lock()
	_, here := p.runs.here[r.ID()]
	p.runs.mu.Unlock()
	// With a server of its own there is no other process whose replay it could be.
	if here || p.rules.Shared && time.Since(last.at) < replayLost {
		return
	}
	r.Owner, r.ChangedAt = p.id, time.Now().UTC()
	if r, err := p.store.SaveReplay(ctx, r); err == nil {
		p.log.Info("a replay goes on here", "replay", r.ID(), "replayed", r.Replayed)
		p.runReplay(r)
	}
}

// runReplay runs a replay that this process owns, until it has ended, in any way, or this process stops.
func (p *Replays) runReplay(r domain.Replay) {
	p.runs.mu.Lock()
	defer p.runs.mu.Unlock()
	if p.runs.here == nil {
		return
	}
	if _, runs := p.runs.here[r.ID()]; runs {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.runs.here[r.ID()] = cancel
	p.running.Go(func() {
		err := p.replay(ctx, r)
		cancel()
		if err != nil && ctx.Err() == nil {
			p.log.Warn("a replay stopped, trying again", "replay", r.ID(), "error", err)
		}
		p.runs.mu.Lock()
		delete(p.runs.here, r.ID())
		p.runs.mu.Unlock()
	})
}

// replay queues job after job, no faster than asked for, and saves how far it is.
func (p *Replays) replay(ctx context.Context, r domain.Replay) error {
	limit := rate.NewLimiter(rate.Limit(r.Spec.Rate), max(1, int(r.Spec.Rate/10)))
	saved := time.Now()
	for r.Next > 0 {
		jobs, next, err := p.replayable(ctx, r, r.Next, min(replayPage, int(r.Spec.Rate)))
		if err != nil {
			return err
		}
		var replayed, failed atomic.Int64
		var wg sync.WaitGroup
		for i, j := range jobs {
			if err = limit.Wait(ctx); err != nil || !p.stillRuns(r) {
				next, jobs = j.ID.Seq, jobs[:i]
				break
			}
			wg.Go(func() {
				switch again, err := p.replayJob(ctx, r, j.ID); {
				case err != nil && !errors.Is(err, domain.ErrNotFound):
					failed.Add(1)
				case again:
					replayed.Add(1)
				}
			})
		}
		wg.Wait()
		r.Replayed += int(replayed.Load())
		if failed.Load() > 0 {
			err = cmp.Or(err, domain.ErrUnavailable) // the page is gone through again
			next = r.Next
		} else {
			r.Skipped += len(jobs) - int(replayed.Load())
		}
		r.Next = next
		if r.Next > 0 && err == nil && p.stillRuns(r) && time.Since(saved) < replaySave {
			continue
		}
		saved = time.Now()
		if r.Next == 0 {
			r.State = domain.ReplayDone
		}
		if r, err = p.saveProgress(context.WithoutCancel(ctx), r, err); err != nil || r.State != domain.ReplayRunning {
			return err
		}
	}
	return nil
}

// stillRuns tells whether a replay that runs here was neither cancelled nor taken over, as far as is known here.
func (p *Replays) stillRuns(r domain.Replay) bool {
	now, ok := p.store.Replay(r.Consumer, r.Number)
	return ok && now.State == domain.ReplayRunning && now.Owner == p.id
}

// saveProgress saves how far a replay is, also of one that was cancelled meanwhile, and returns it as it is then, or why
// it does not go on here.
func (p *Replays) saveProgress(ctx context.Context, r domain.Replay, failed error) (domain.Replay, error) {
	r.ChangedAt = time.Now().UTC()
	saved, err := p.store.SaveReplay(ctx, r)
	if errors.Is(err, domain.ErrConflict) {
		var now domain.Replay
		if now, err = p.store.RefreshReplay(ctx, r.Consumer, r.Number); err == nil && now.Owner == p.id {
			r.Revision = now.Revision
			if now.State == domain.ReplayCancelled {
				r.State = domain.ReplayCancelled
			}
			saved, err = p.store.SaveReplay(ctx, r)
		}
	}
	return saved, errors.Join(failed, err)
}

// replayJob queues a job again, if it is settled still as it was when the replay was asked for. What the record has of its
// only attempt is stored first: the next record has the next attempt.
func (p *Replays) replayJob(ctx context.Context, r domain.Replay, id domain.JobID) (again bool, err error) {
	ctx = context.WithoutCancel(ctx)
	_, err = p.jobs.change(ctx, id, func(j domain.Job) (domain.Job, bool, error) {
		if again = j.Revision <= r.UpTo && r.Spec.Takes(j.Status); !again {
			return j, false, nil
		}
		if j.Status == domain.Delivered && j.Attempts == 1 {
			if err := p.jobs.records.KeepAttempt(ctx, id, lastAttempt(j)); err != nil {
				return j, false, err
			}
		}
		next := domain.Settle(j, domain.Queued, time.Now())
		next.Retries, next.Replay = 0, r.ID()
		return next, true, nil
	})
	return again && err == nil, err
}
