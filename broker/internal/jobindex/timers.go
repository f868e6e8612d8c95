package jobindex

import (
	"context"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// timer acts on a job at a time, if the job still has the timer's revision: its claim ends, it is queued, or it is given back. When a job
// changes, its timer is not removed: it is ignored when it fires.
type timer struct {
	at       time.Time // with the monotonic clock
	id       domain.JobID
	revision uint64
	taken    bool // the job is taken, and will be given back
}

// timerReach bounds how long the timer of a changed job is held. A timer that is further away first fires after timerReach and is
// then set again.
const timerReach = time.Minute

// await sets a timer. Index.mu is held.
func (q *Queue) await(t timer) {
	at := t.at
	if reach := time.Now().Add(timerReach); at.After(reach) {
		at = reach
	}
	q.sooner = q.timers.Add(at, t) || q.sooner
}

// GiveBackAfter calls [Queue.GiveBack] after a pause. It makes Expired return an ended claim again.
func (q *Queue) GiveBackAfter(j domain.Job, pause time.Duration) {
	q.x.change(func() { q.await(timer{at: time.Now().Add(pause), id: j.ID, revision: j.Revision, taken: true}) })
}

// Expired waits for a claim that has ended. Meanwhile it queues the jobs whose time has come. ok is false when ctx has ended.
// Only one goroutine at a time may call it.
func (q *Queue) Expired(ctx context.Context) (j domain.Job, ok bool) {
	clock := time.NewTimer(time.Hour)
	defer clock.Stop()
	for ctx.Err() == nil {
		wait := time.Duration(0)
		q.x.change(func() { j, ok, wait = q.tick() })
		if ok {
			return j, true
		}
		clock.Reset(wait)
		select {
		case <-clock.C:
		case <-q.rescheduled:
		case <-ctx.Done():
		}
	}
	return domain.Job{}, false
}

// tick runs one timer that is due, and returns how long to wait for the next. Index.mu is held.
func (q *Queue) tick() (over domain.Job, ok bool, wait time.Duration) {
	now := time.Now()
	t, come := q.timers.Pop(now)
	if !come {
		next, ok := q.timers.Next()
		if !ok {
			return over, false, time.Hour
		}
		return over, false, next.Sub(now)
	}
	k := q.x.consumers[t.id.Consumer]
	if k == nil {
		return over, false, 0
	}
	if t.taken {
		k.giveBack(t.id, t.revision)
	}
	j, known := k.job(t.id.Seq)
	switch {
	case !known || j.Revision != t.revision:
	case t.at.After(now):
		q.await(t)
	case j.Status == domain.Inflight:
		return j, true, 0
	default:
		k.enqueue(j)
	}
	return over, false, 0
}
