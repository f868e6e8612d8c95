package work

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
	"github.com/jetpull/jetpull/internal/bulk"
)

// Dead returns dead jobs of all consumers that a filter selects, newest first, and the time before which to continue, which is zero at the
// end. It looks at limit jobs, so there may be fewer that match, even none, before the end.
func (x *Jobs) Dead(ctx context.Context, f domain.DeadFilter, limit int) (work []Work, next time.Time, err error) {
	jobs, last := x.Index.Dead(f.TakesConsumer, nanos(f.Since, 0), nanos(f.Until, math.MaxInt64), true, limit)
	work, err = x.matchDead(ctx, f, jobs)
	return work, jobindex.FromUnixNano(last), err
}

// nanos returns a time in the form of the index. A time that has none is before or after all jobs.
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

// matchDead returns those of the dead jobs that a filter selects by their records and messages.
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

// deadKind is an operation that changes dead jobs, the oldest first. Its position is the time at which they became dead. Jobs that became
// dead again later are left out.
func (p *Replays) deadKind(known func(context.Context) (uint64, error), change func(domain.Job) (domain.Job, error)) bulk.Kind {
	return bulk.Kind{Known: known, Page: replayPage, Select: func(ctx context.Context, o bulk.Operation, from uint64, limit int) (items []bulk.Item,
		next uint64, err error,
	) {
		var f domain.DeadFilter
		if err = json.Unmarshal(o.Spec, &f); err != nil {
			return nil, from, fmt.Errorf("operation %s: %w", o.ID, err)
		}
		jobs, last := p.Index.Dead(f.TakesConsumer, max(int64(from), nanos(f.Since, 0)), nanos(f.Until, math.MaxInt64), false, limit)
		if last > 0 {
			next = uint64(last) + 1
		}
		work, err := p.jobs.matchDead(ctx, f, jobs)
		if err != nil {
			return nil, from, err
		}
		for _, w := range work {
			if w.Job.Revision <= o.UpTo {
				items = append(items, p.item(o, w.Job.ID, func(_ context.Context, j domain.Job) (domain.Job, error) { return change(j) }))
			}
		}
		return items, next, nil
	}}
}
