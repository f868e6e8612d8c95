package work

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
	"github.com/jetpull/jetpull/internal/bulk"
)

const (
	// replayPage is how many jobs are checked at a time.
	replayPage = 100
	// replayLost is how long after its last save a replay is taken over by another process.
	replayLost = 10 * time.Second
)

// Replayed stores replays and finds their jobs.
type Replayed interface {
	bulk.Records
	// LastRecord returns the revision of the last record of any job. All records up to it are on disk, and this node knows them and their messages.
	// Otherwise LastRecord returns ErrUnavailable.
	LastRecord(ctx context.Context) (uint64, error)
}

// Replays queues settled jobs again, removes queued jobs, and changes dead jobs of all consumers. A consumer has at most one running replay or purge.
type Replays struct {
	*core
	jobs       *Jobs
	Operations *bulk.Runner
}

func newReplays(c *core, jobs *Jobs) *Replays {
	p := &Replays{core: c, jobs: jobs}
	known := func(ctx context.Context) (uint64, error) { return c.Replays.LastRecord(ctx) }
	dead := func(decide func(domain.Job) (domain.Job, error)) bulk.Kind {
		return bulk.NewKind(replayPage, known, p.dead, func(ctx context.Context, o bulk.Operation, _ domain.DeadFilter, j domain.Job) (bool, error) {
			return p.changeJob(ctx, o, j.ID, decide)
		})
	}
	p.Operations = bulk.New(bulk.Config{
		Records: c.Replays,
		Kinds: map[string]bulk.Kind{
			domain.ReplayKind:      bulk.NewKind(replayPage, known, p.replayable, p.replay),
			domain.PurgeQueuedKind: bulk.NewKind(replayPage, known, p.purgeable, p.purge),
			domain.RequeueKind:     dead(jobs.requeue),
			domain.PurgeKind:       dead(jobs.remove),
		},
		Process:   domain.NewID(),
		Shared:    c.Rules.Shared,
		Lost:      replayLost,
		Exclusive: true,
		Now:       c.Now,
		Log:       c.Log,
	})
	return p
}

// NewOperation returns an operation on the items that spec selects.
func NewOperation(kind, group string, spec any, rate float64, by string) (bulk.Operation, error) {
	data, err := json.Marshal(spec)
	return bulk.Operation{Kind: kind, Group: group, Spec: data, Rate: rate, By: by}, err
}

// ReplayGroup returns the group of a consumer's replays.
func ReplayGroup(c domain.Consumer) string { return strconv.FormatUint(uint64(c.Number), 10) }

// Operation returns a stored operation, if is accepts it.
func (p *Replays) Operation(ctx context.Context, id string, is func(bulk.Operation) bool) (bulk.Operation, error) {
	o, err := p.Operations.Get(ctx, id)
	if err == nil && !is(o) {
		err = fmt.Errorf("%w: operation %q", domain.ErrNotFound, id)
	}
	return o, err
}

// TakesMessage reports whether the ID and headers of a message match a replay or a search.
func TakesMessage(s domain.ReplaySpec, m domain.Message) bool {
	if s.Message != "" && s.Message != m.ID {
		return false
	}
	has := make(map[string]string, len(m.Headers))
	for name, value := range m.Headers {
		has[http.CanonicalHeaderKey(name)] = value
	}
	for name, value := range s.Metadata {
		if got, ok := has[http.CanonicalHeaderKey(name)]; !ok || got != value {
			return false
		}
	}
	return true
}

// NewPurge returns an operation that removes the jobs of a consumer that are queued now.
func (p *Replays) NewPurge(ctx context.Context, c domain.Consumer, rate float64, by string) (bulk.Operation, error) {
	if _, err := p.Replays.LastRecord(ctx); err != nil { // the index then has all messages that are stored now
		return bulk.Operation{}, err
	}
	var purge domain.QueuedPurge
	for _, last := range p.Index.MessageSeqs(c.Channel, domain.Page{Limit: 1}) {
		purge.UpTo = last
	}
	return NewOperation(domain.PurgeQueuedKind, ReplayGroup(c), purge, rate, by)
}

// inParts calls part, which looks at a part of a consumer's jobs, until it has found limit jobs. Other callers are not blocked for long.
func inParts(o bulk.Operation, from uint64, limit int, part func(consumer uint32, from uint64, jobs []domain.Job) ([]domain.Job, uint64),
) (jobs []domain.Job, next uint64, err error) {
	consumer, err := strconv.ParseUint(o.Group, 10, 32)
	for next = from; err == nil && next > 0 && len(jobs) < limit; {
		jobs, next = part(uint32(consumer), next, jobs)
	}
	return jobs, next, err
}

// purgeable selects queued jobs, oldest messages first. It leaves out inflight jobs, and jobs whose callbacks this node makes. A node stores nothing
// when a callback begins, so a job whose callback another node makes can be removed. Its outcome does not count then.
func (p *Replays) purgeable(_ context.Context, o bulk.Operation, s domain.QueuedPurge, from uint64, limit int) ([]domain.Job, uint64, error) {
	return inParts(o, from, limit, func(consumer uint32, from uint64, jobs []domain.Job) ([]domain.Job, uint64) {
		return p.Index.Queue.QueuedFrom(consumer, s.UpTo, o.UpTo, from, jobs, limit)
	})
}

func (p *Replays) replayable(ctx context.Context, o bulk.Operation, s domain.ReplaySpec, from uint64, limit int) ([]domain.Job, uint64, error) {
	jobs, next, err := inParts(o, from, limit, func(consumer uint32, from uint64, jobs []domain.Job) ([]domain.Job, uint64) {
		return p.Index.SettledFrom(consumer, s, o.UpTo, from, jobs, limit)
	})
	if err != nil || len(jobs) == 0 || len(s.Metadata) == 0 && s.Message == "" {
		return jobs, next, err
	}
	work, err := p.jobs.WithMessages(ctx, jobs)
	return jobsOf(work, func(w Work) bool { return TakesMessage(s, w.Message) }), next, err
}

// dead selects dead jobs of all consumers, oldest first. The position is the time of death. Jobs that died again later are left out.
func (p *Replays) dead(ctx context.Context, o bulk.Operation, f domain.DeadFilter, from uint64, limit int) (_ []domain.Job, next uint64, err error) {
	jobs, last := p.Index.Dead(f.TakesConsumer, max(int64(from), nanos(f.Since, 0)), nanos(f.Until, math.MaxInt64), false, limit)
	if last > 0 {
		next = uint64(last) + 1
	}
	work, err := p.jobs.matchDead(ctx, f, jobs)
	return jobsOf(work, func(w Work) bool { return w.Job.Revision <= o.UpTo }), next, err
}

func jobsOf(work []Work, takes func(Work) bool) (jobs []domain.Job) {
	for _, w := range work {
		if takes(w) {
			jobs = append(jobs, w.Job)
		}
	}
	return jobs
}

// changeJob changes one job of an operation. It skips the job if its record has changed since the start of the operation, or if decide refuses its
// state.
func (p *Replays) changeJob(ctx context.Context, o bulk.Operation, id domain.JobID, decide func(domain.Job) (domain.Job, error)) (bool, error) {
	_, err := p.jobs.change(ctx, id, func(j domain.Job) (domain.Job, error) {
		if j.Revision > o.UpTo {
			return j, domain.ErrNotFound
		}
		return decide(j)
	})
	if notDead(err) {
		return false, nil
	}
	return err == nil, err
}

func (p *Replays) purge(ctx context.Context, o bulk.Operation, _ domain.QueuedPurge, j domain.Job) (bool, error) {
	return p.changeJob(ctx, o, j.ID, func(j domain.Job) (domain.Job, error) {
		if p.Index.Queue.Taken(j.ID) {
			return j, domain.ErrInvalidTransition
		}
		return domain.Drop(j, p.Now())
	})
}

// replay queues a settled job again. If the job's record contains its only attempt, replay first stores the attempt, because the next record will
// contain the next attempt.
func (p *Replays) replay(ctx context.Context, o bulk.Operation, s domain.ReplaySpec, j domain.Job) (bool, error) {
	return p.changeJob(ctx, o, j.ID, func(j domain.Job) (domain.Job, error) {
		if !s.Takes(j.Status) {
			return j, domain.ErrNotFound
		}
		if j.Status == domain.Delivered && j.Attempts == 1 {
			if err := p.Records.KeepAttempt(ctx, j.ID, lastAttempt(j)); err != nil {
				return j, err
			}
		}
		next := domain.Settle(j, domain.Queued, p.Now())
		next.Retries, next.Replay = 0, o.ID
		return next, nil
	})
}

// Dead returns dead jobs of all consumers that match a filter, newest first. next is the time before which to continue; zero means the end. Dead
// looks at limit jobs, so it may return fewer, even none, before the end.
func (x *Jobs) Dead(ctx context.Context, f domain.DeadFilter, limit int) (work []Work, next time.Time, err error) {
	jobs, last := x.Index.Dead(f.TakesConsumer, nanos(f.Since, 0), nanos(f.Until, math.MaxInt64), true, limit)
	work, err = x.matchDead(ctx, f, jobs)
	return work, jobindex.FromUnixNano(last), err
}

// nanos returns a time as the index stores it. A time out of the index's range is before or after all jobs. A zero time returns otherwise.
func nanos(at time.Time, otherwise int64) int64 {
	switch {
	case at.IsZero():
		return otherwise
	case at.Year() < 1970:
		return 0
	case at.Year() > 2200:
		return math.MaxInt64
	}
	return at.UnixNano()
}

// matchDead returns the dead jobs whose records and messages match a filter.
func (x *Jobs) matchDead(ctx context.Context, f domain.DeadFilter, jobs []domain.Job) (matched []Work, err error) {
	if err := x.Records.Complete(ctx, jobs); err != nil {
		return nil, err
	}
	all, err := x.WithMessages(ctx, jobs)
	for _, w := range all {
		if c, ok := x.Index.Consumer(w.Job.ID.Consumer); ok && w.Job.Status == domain.Dead && f.Takes(w.Job, c, w.Message) {
			matched = append(matched, w)
		}
	}
	return matched, err
}
