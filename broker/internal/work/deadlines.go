package work

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/due"
)

// deadlines does what happens to jobs by itself: it ends claims that are over, and queues jobs whose time has come.
type deadlines struct {
	*core
	jobs     *Jobs
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
		core: c, jobs: d.jobs, due: d.due, lane: d.lane, expiring: make(chan struct{}, maxExpiring),
		offset: time.Duration(rand.Int64N(int64(50 * time.Millisecond))),
	}
}

// recall puts jobs that have a record and something to happen on the schedule.
func (d *deadlines) recall() {
	var jobs []domain.Job
	d.jobs.known.Recorded(func(j domain.Job) bool {
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
	if item.taken {
		d.jobs.queue.GiveBack(domain.Job{ID: item.id, Revision: item.revision})
		return
	}
	if item.id.Seq == 0 {
		if l := d.lane(item.id.Consumer); l != nil {
			l.resume()
		}
		return
	}
	j, err := d.jobs.records.Job(ctx, item.id)
	if errors.Is(err, domain.ErrUnavailable) {
		item.at = time.Now().Add(time.Second)
		d.due.add(item)
		return
	}
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
		d.jobs.queue.Enqueue(j.ID)
	}
}

// awaitStore waits while the store takes no records of jobs, so that an outage costs a line in
// the log and not one for each job that is due in it.
func (d *deadlines) awaitStore(ctx context.Context) {
	err := d.health.Recordable()
	if err == nil {
		return
	}
	d.log.Warn("what is due waits for the store", "error", err)
	for d.health.Recordable() != nil {
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
	switch _, err := d.jobs.records.PutJob(ctx, next); {
	case err == nil:
		d.metrics.expired(next.Status)
		if next.Status == domain.Dead {
			d.died(next, "its claim has ended, and its retries are used up")
		}
	case errors.Is(err, domain.ErrConflict):
	default:
		d.log.Log(ctx, d.troubleLevel(), "claim that is over could not be ended, trying again", "job", j.ID, "error", err)
		d.due.add(dueItem{at: time.Now().Add(time.Second), id: j.ID, revision: j.Revision})
	}
}

// dueItem is something that happens to a job at a time, if the job still has
// the revision then. With sequence 0 it is the consumer's lane that looks again.
type dueItem struct {
	at       time.Time
	id       domain.JobID
	revision uint64
	taken    bool // the job was taken, and is given back
}

// giveBack is for a job that is to be taken again after a pause.
func giveBack(j domain.Job, pause time.Duration) dueItem {
	return dueItem{at: time.Now().Add(pause), id: j.ID, revision: j.Revision, taken: true}
}

// dueQueue calls for items when their time comes. An item whose job changed
// meanwhile is not looked for but left to come up and be ignored.
type dueQueue struct {
	mu    sync.Mutex
	items due.Heap[dueItem]
	wake  chan struct{} // holds a token when the first item changed
}

func newDueQueue() *dueQueue { return &dueQueue{wake: make(chan struct{}, 1)} }

func (q *dueQueue) add(item dueItem) {
	q.mu.Lock()
	first := q.items.Add(item.at, item)
	q.mu.Unlock()
	if first {
		select {
		case q.wake <- struct{}{}:
		default:
		}
	}
}

// pop takes the first item if its time has come; otherwise it tells how long
// that takes.
func (q *dueQueue) pop(now time.Time) (item dueItem, ok bool, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if item, ok = q.items.Pop(now); ok {
		return item, true, 0
	}
	if at, ok := q.items.Next(); ok {
		return item, false, at.Sub(now)
	}
	return item, false, time.Hour
}

func (q *dueQueue) run(ctx context.Context, fire func(context.Context, dueItem)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for ctx.Err() == nil {
		item, ok, wait := q.pop(time.Now())
		if ok {
			fire(ctx, item)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-q.wake:
		case <-ctx.Done():
		}
	}
}
