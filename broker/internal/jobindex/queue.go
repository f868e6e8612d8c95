package jobindex

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/due"
)

// Queue has the available jobs of an index, and the timers of jobs.
type Queue struct {
	x *Index
	// Index.mu guards these fields.
	timers due.Heap[timer]
	sooner bool                // the first timer has changed
	woken  []*consumerIndex    // consumers whose signal is closed after the lock is released
	ready  map[uint32]struct{} // push consumers for the next Ready

	rescheduled, news chan struct{} // each has a token when Expired or Ready must check again
	offset            time.Duration // keeps the nodes of a cluster from ending claims at the same time
}

func newQueue(x *Index) *Queue {
	return &Queue{
		x: x, ready: map[uint32]struct{}{}, rescheduled: make(chan struct{}, 1), news: make(chan struct{}, 1),
		offset: rand.N(50 * time.Millisecond),
	}
}

// Queued returns the first queued jobs of a consumer, by priority, highest first, then by age, oldest first. It skips jobs whose time has not come.
func (q *Queue) Queued(number uint32, limit int) []domain.Job {
	q.x.mu.RLock()
	defer q.x.mu.RUnlock()
	return q.x.consumers.of(number).front(limit)
}

// Take is like Queued, but hides the jobs from Queued and Take on this node until they are put or given back.
func (q *Queue) Take(number uint32, limit int) []domain.Job {
	q.x.mu.Lock()
	defer q.x.mu.Unlock()
	k := q.x.consumers.of(number)
	jobs := k.front(limit)
	for _, j := range jobs {
		k.queue.remove(queueKey(j))
		k.taken[j.ID.Seq] = struct{}{}
	}
	return jobs
}

// QueuedFrom checks a part of a consumer's queued jobs, from the message from to last, and returns where to continue. It appends the jobs that are
// not taken and whose records are no later than upTo.
func (q *Queue) QueuedFrom(consumer uint32, last, upTo, from uint64, jobs []domain.Job, limit int) (_ []domain.Job, next uint64) {
	q.x.mu.RLock()
	defer q.x.mu.RUnlock()
	k := q.x.consumers.of(consumer)
	before, looked := seqKey(from-1), 0
	for seq := range k.open.ascend(&before) {
		if uint64(seq) > last {
			break
		}
		if looked++; looked > finishedPage || len(jobs) == limit {
			return jobs, uint64(seq)
		}
		_, taken := k.taken[uint64(seq)]
		if j, ok := k.job(uint64(seq)); ok && !taken && j.Status == domain.Queued && j.Revision <= upTo {
			jobs = append(jobs, j)
		}
	}
	return jobs, 0
}

// Taken reports whether a job was taken, and not put or given back since.
func (q *Queue) Taken(id domain.JobID) bool {
	q.x.mu.RLock()
	defer q.x.mu.RUnlock()
	_, taken := q.x.consumers.of(id.Consumer).taken[id.Seq]
	return taken
}

// GiveBack undoes Take for a job that was not put. It ignores a job that has changed since.
func (q *Queue) GiveBack(j domain.Job) {
	q.x.change(func() {
		if k := q.x.consumers[j.ID.Consumer]; k != nil {
			k.giveBack(j.ID, j.Revision)
		}
	})
}

// QueuedSignal returns a channel that is closed when another job of the consumer is queued.
func (q *Queue) QueuedSignal(number uint32) <-chan struct{} {
	q.x.mu.Lock()
	defer q.x.mu.Unlock()
	k := q.x.consumers[number]
	if k == nil {
		gone := make(chan struct{})
		close(gone)
		return gone
	}
	if k.signal == nil {
		k.signal = make(chan struct{})
	}
	return k.signal
}

// wait returns how long to wait until a job is due. The timer then uses the monotonic clock, which cannot be set. If the store's clock was set back,
// a job may have changed in the future; such a job has not waited at all yet.
func (q *Queue) wait(j domain.Job) time.Duration {
	if j.Due.IsZero() {
		return 0
	}
	return min(j.Due.Sub(q.x.Clock.Now()), j.Due.Sub(j.ChangedAt))
}

// enter adds a queued or inflight job. A job that is not due yet gets a timer instead of a place in the queue.
func (k *consumerIndex) enter(j domain.Job) {
	q := k.index.Queue
	k.open.insert(seqKey(j.ID.Seq))
	wait := q.wait(j)
	switch {
	case j.Status == domain.Inflight:
		k.inflight.insert(statusKey(j))
		q.await(timer{at: time.Now().Add(wait + q.offset), id: j.ID, revision: j.Revision})
	case wait > 0:
		q.await(timer{at: time.Now().Add(wait), id: j.ID, revision: j.Revision})
	default:
		k.enqueue(j)
	}
}

// leave removes a queued or inflight job.
func (k *consumerIndex) leave(j domain.Job) {
	k.open.remove(seqKey(j.ID.Seq))
	k.inflight.remove(statusKey(j))
	k.queue.remove(queueKey(j))
}

// enqueue makes a job available if it is queued and not taken.
func (k *consumerIndex) enqueue(j domain.Job) {
	if _, taken := k.taken[j.ID.Seq]; j.Status == domain.Queued && !taken && k.queue.insert(queueKey(j)) {
		k.wake()
	}
}

func (k *consumerIndex) giveBack(id domain.JobID, revision uint64) {
	if j, ok := k.job(id.Seq); ok && j.Revision == revision {
		delete(k.taken, id.Seq)
		k.enqueue(j)
	}
}

// wake schedules a notification for waiters for the consumer's jobs.
func (k *consumerIndex) wake() {
	if !k.woken && (k.signal != nil || k.consumer.Type == domain.Push) {
		k.woken = true
		k.index.Queue.woken = append(k.index.Queue.woken, k)
	}
}

// front returns the head of the queue, or nil while the consumer is paused.
func (k *consumerIndex) front(limit int) []domain.Job {
	if limit < 1 || k.consumer.Paused() {
		return nil
	}
	jobs := make([]domain.Job, 0, min(limit, k.queue.len()))
	for e := range k.queue.ascend(nil) {
		if len(jobs) == limit {
			break
		}
		if j, ok := k.job(e.seq); ok {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// Ready waits for push consumers that have another available job, have new settings, or were removed, and returns their numbers. It returns nil after
// ctx ends. Only one goroutine at a time may call it.
func (q *Queue) Ready(ctx context.Context) []uint32 {
	for ctx.Err() == nil {
		q.x.mu.Lock()
		ready := q.ready
		q.ready = map[uint32]struct{}{}
		q.x.mu.Unlock()
		if len(ready) > 0 {
			return slices.Collect(maps.Keys(ready))
		}
		select {
		case <-q.news:
		case <-ctx.Done():
		}
	}
	return nil
}

// change runs f under the lock. It notifies waiters after releasing the lock.
func (x *Index) change(f func()) {
	signals, ready, sooner := x.Queue.changed(f)
	for _, signal := range signals {
		close(signal)
	}
	if ready {
		notify(x.Queue.news)
	}
	if sooner {
		notify(x.Queue.rescheduled)
	}
}

// notify leaves a token for the current or next receiver.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// changed runs f under the lock. It returns the signals of waiting workers that have a job, and whether Ready and Expired must check again.
func (q *Queue) changed(f func()) (signals []chan struct{}, ready, sooner bool) {
	q.x.mu.Lock()
	defer q.x.mu.Unlock()
	f()
	for _, k := range q.woken {
		k.woken = false
		if k.signal != nil {
			signals = append(signals, k.signal)
			k.signal = nil
		}
		if k.consumer.Type == domain.Push {
			q.ready[k.consumer.Number] = struct{}{}
		}
	}
	clear(q.woken)
	q.woken = q.woken[:0]
	sooner, q.sooner = q.sooner, false
	return signals, len(q.ready) > 0, sooner
}

// timer acts on a job when it fires, if the job still has the timer's revision: the job's claim ends, or the job is queued or given back. The timer
// of a job that has changed is not removed. It does nothing when it fires.
type timer struct {
	at       time.Time // with the monotonic clock
	id       domain.JobID
	revision uint64
	taken    bool // the job is taken, and will be given back
}

// timerReach limits how long the timer of a changed job stays in memory. A timer that is further away fires after timerReach and is then set again.
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

// Expired waits for a claim to end, and returns its job. Meanwhile it queues the jobs that become due. ok is false after ctx ends. Only one goroutine
// at a time may call it.
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

// tick runs one timer that is due, or returns how long to wait for the next. Index.mu is held.
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
