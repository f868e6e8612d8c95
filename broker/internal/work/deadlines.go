package work

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// deadlines does what happens to jobs by itself: it ends claims that are over, and queues jobs whose time has come.
type deadlines struct {
	*core
	due      *dueQueue
	lane     func(consumer uint32) *lane
	expiring chan struct{} // holds a token for each claim that is being ended
	// offset keeps the nodes of a cluster from doing the same at the same time.
	offset time.Duration
}

// maxExpiring is how many claims are ended at a time.
const maxExpiring = 256

// timerReach bounds how long the timer of a claim is kept that has ended meanwhile.
const timerReach = time.Minute

func newDeadlines(c *core, d *Dispatch) *deadlines {
	return &deadlines{
		core: c, due: d.due, lane: d.lane, expiring: make(chan struct{}, maxExpiring),
		offset: time.Duration(rand.Int64N(int64(50 * time.Millisecond))),
	}
}

// recall puts jobs that have a record and something to happen on the schedule.
func (d *deadlines) recall() {
	var jobs []domain.Job
	d.store.Recorded(func(j domain.Job) bool {
		jobs = append(jobs, j)
		return true
	})
	for _, j := range jobs {
		d.jobChanged(j)
	}
}

// jobChanged puts on the schedule what has to happen to a job by itself.
func (d *deadlines) jobChanged(j domain.Job) {
	switch {
	case j.Status == domain.Inflight && d.rules.Recovery:
		at := j.Due.Add(d.offset)
		if reach := time.Now().Add(timerReach); at.After(reach) {
			at = reach // it is looked at then, and comes back
		}
		d.due.add(dueItem{at: at, id: j.ID, revision: j.Revision})
	case j.Status == domain.Queued && !j.Due.IsZero():
		d.due.add(dueItem{at: j.Due, id: j.ID, revision: j.Revision})
	}
}

// fire does what was due, unless the job has changed since.
func (d *deadlines) fire(ctx context.Context, item dueItem) {
	d.awaitStore(ctx)
	if item.id.Seq == 0 {
		if l := d.lane(item.id.Consumer); l != nil {
			l.resume()
		}
		return
	}
	j, err := d.store.Job(ctx, item.id)
	if err != nil || j.Revision != item.revision {
		return
	}
	switch j.Status {
	case domain.Inflight:
		select {
		case d.expiring <- struct{}{}:
		case <-ctx.Done():
			return
		}
		d.running.Go(func() {
			defer func() { <-d.expiring }()
			d.expire(ctx, j)
		})
	case domain.Queued:
		d.store.Enqueue(j.ID)
	}
}

// awaitStore waits while the store takes no records of jobs, so that an outage costs a line in
// the log and not one for each job that is due in it.
func (d *deadlines) awaitStore(ctx context.Context) {
	err := d.store.Recordable()
	if err == nil {
		return
	}
	d.log.Warn("what is due waits for the store", "error", err)
	for d.store.Recordable() != nil {
		select {
		case <-time.After(storePause):
		case <-ctx.Done():
			return
		}
	}
	d.log.Info("the store is ready again, what is due goes on")
}

// expire ends a claim that is over. If the store does not take it, it is tried
// again later.
func (d *deadlines) expire(ctx context.Context, j domain.Job) {
	next, changed := domain.Expire(j, time.Now(), d.rules.MaxRetry)
	if !changed {
		d.jobChanged(j)
		return
	}
	switch _, err := d.store.PutJob(ctx, next); {
	case err == nil:
		d.metrics.expired(next.Status)
	case errors.Is(err, domain.ErrConflict):
	default:
		d.log.Log(ctx, d.troubleLevel(), "claim that is over could not be ended, trying again", "job", j.ID, "error", err)
		d.due.add(dueItem{at: time.Now().Add(time.Second), id: j.ID, revision: j.Revision})
	}
}
