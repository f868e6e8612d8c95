package work

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// replayPage is how many jobs are looked at at a time, at most.
const replayPage = 100

// Replays queues jobs again that are settled.
type Replays struct {
	*core
	store domain.Replays
	jobs  *Jobs
	id    string // of this process, among those on the same store
	runs  replayRuns
}

// takesMessage tells whether a replay is for a message with such headers.
func takesMessage(s domain.ReplaySpec, m domain.Message) bool {
	has := make(map[string]string, len(m.Headers))
	for name, value := range m.Headers {
		has[canonical(strings.ToLower(name))] = value
	}
	for name, value := range s.Metadata {
		if got, ok := has[canonical(strings.ToLower(name))]; !ok || got != value {
			return false
		}
	}
	return true
}

// newReplay is a replay as it is asked for now.
func (p *Replays) newReplay(ctx context.Context, c domain.Consumer, spec domain.ReplaySpec) (domain.Replay, error) {
	upTo, err := p.store.LastRecord(ctx)
	now := time.Now().UTC()
	return domain.Replay{
		Channel: c.Channel, Consumer: c.Number, Spec: spec, State: domain.ReplayRunning, UpTo: upTo, Next: 1,
		Owner: p.id, CreatedAt: now, ChangedAt: now,
	}, err
}

// CountReplay tells how many jobs a replay would be for.
func (p *Replays) CountReplay(ctx context.Context, c domain.Consumer, spec domain.ReplaySpec) (int, error) {
	r, err := p.newReplay(ctx, c, spec)
	if err != nil {
		return 0, err
	}
	return p.countReplay(ctx, r)
}

func (p *Replays) countReplay(ctx context.Context, r domain.Replay) (count int, err error) {
	for from := r.Next; from > 0 && err == nil; {
		var jobs []domain.Job
		jobs, from, err = p.replayable(ctx, r, from, replayPage)
		count += len(jobs)
	}
	return count, err
}

// replayable is a page of the jobs that a replay is for.
func (p *Replays) replayable(ctx context.Context, r domain.Replay, from uint64, limit int) (jobs []domain.Job, next uint64, err error) {
	if ctx.Err() != nil {
		return nil, from, context.Cause(ctx)
	}
	jobs, next = p.store.Settled(r, from, limit)
	if len(r.Spec.Metadata) == 0 || len(jobs) == 0 {
		return jobs, next, nil
	}
	work, err := p.jobs.withMessages(ctx, jobs)
	if err != nil {
		return nil, from, err
	}
	jobs = jobs[:0]
	for _, w := range work {
		if takesMessage(r.Spec, w.Message) {
			jobs = append(jobs, w.Job)
		}
	}
	return jobs, next, nil
}

// StartReplay begins to queue jobs again.
func (p *Replays) StartReplay(ctx context.Context, c domain.Consumer, spec domain.ReplaySpec) (domain.Replay, error) {
	r, err := p.newReplay(ctx, c, spec)
	if err == nil {
		r.Number, err = p.nextReplay(ctx, c)
	}
	if err != nil {
		return r, err
	}
	if r.Count, err = p.countReplay(ctx, r); err != nil {
		return r, err
	}
	// Of those who ask at the same time, wherever, one makes the number its own. The others find that one running, or ended.
	for range maxTries {
		saved, err := p.store.SaveReplay(ctx, r)
		if err == nil {
			p.runReplay(saved)
			return saved, nil
		}
		if !errors.Is(err, domain.ErrConflict) {
			return r, err
		}
		if _, err = p.store.RefreshReplay(ctx, c.Number, r.Number); err != nil && !errors.Is(err, domain.ErrNotFound) {
			return r, err
		}
		if r.Number, err = p.nextReplay(ctx, c); err != nil {
			return r, err
		}
	}
	return r, fmt.Errorf("%w: %d replays in a row", domain.ErrConflict, maxTries)
}

// nextReplay is the number of a consumer's next replay, as far as is known here, if none runs.
func (p *Replays) nextReplay(ctx context.Context, c domain.Consumer) (uint64, error) {
	last := p.store.LastReplay(c.Number)
	if last.State == domain.ReplayRunning {
		now, err := p.store.RefreshReplay(ctx, c.Number, last.Number)
		switch {
		case err == nil && now.State == domain.ReplayRunning:
			return 0, &domain.ReplayRunningError{ID: now.ID()}
		case err != nil && !errors.Is(err, domain.ErrNotFound):
			return 0, err
		}
	}
	return last.Number + 1, nil
}

// ReplayOf returns a replay as it is stored.
func (p *Replays) ReplayOf(ctx context.Context, c domain.Consumer, id string) (domain.Replay, error) {
	number, ok := domain.ParseReplayID(c.Number, id)
	if !ok {
		return domain.Replay{}, fmt.Errorf("%w: replay %q", domain.ErrNotFound, id)
	}
	return p.store.RefreshReplay(ctx, c.Number, number)
}

// CancelReplay ends a replay. One that has ended stays as it is.
func (p *Replays) CancelReplay(ctx context.Context, c domain.Consumer, id string) error {
	for range maxTries {
		r, err := p.ReplayOf(ctx, c, id)
		if err != nil || r.State != domain.ReplayRunning {
			return err
		}
		r.State, r.ChangedAt = domain.ReplayCancelled, time.Now().UTC()
		if _, err = p.store.SaveReplay(ctx, r); !errors.Is(err, domain.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("%w: replay %s changed %d times in a row", domain.ErrConflict, id, maxTries)
}
