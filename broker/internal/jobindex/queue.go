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

// timer is what happens to a job at a time by itself, if the job has its revision then: its claim ends, it is queued, or it is given
// back. Of sequence 0 it is that the consumer looks for a job again. A timer whose job has changed is not looked for but left to come up.
type timer struct {
	at       time.Time
	id       domain.JobID
	revision uint64
	taken    bool // the job was taken, and is given back
}

// timerReach bounds how long a timer is kept whose job has changed. Those of later jobs are looked at then, and set again.
const timerReach = time.Minute

// Queue has the jobs of an index that can be taken, and what happens to jobs by itself.
type Queue struct {
	x *Index
	// Index.mu guards these:
	timers due.Heap[timer]
	sooner bool                // the first timer is another
	woken  []*consumerIndex    // those with news for who waits, until the lock is released
	ready  map[uint32]struct{} // push consumers that Ready is to return

	rescheduled, news chan struct{} // each has a token when Expired or Ready is to look
	offset            time.Duration // keeps the nodes of a cluster from ending claims at the same time
}

func newQueue(x *Index) *Queue {
	return &Queue{
		x: x, ready: map[uint32]struct{}{}, rescheduled: make(chan struct{}, 1), news: make(chan struct{}, 1),
		offset: rand.N(50 * time.Millisecond),
	}
}

// await sets a timer. Index.mu is held.
func (q *Queue) await(t timer) {
	at := t.at
	if reach := time.Now().Add(timerReach); at.After(reach) {
		at = reach
	}
	if q.timers.Add(at, t) {
		q.sooner = true
	}
}

// Queued returns the first queued jobs of a consumer: the highest priority
// first, the oldest first within one. A job that waits for its time is not among
// them.
func (q *Queue) Queued(number uint32, limit int) []domain.Job {
	q.x.mu.RLock()
	defer q.x.mu.RUnlock()
	return q.x.consumers[number].front(limit)
}

// Take is Queued, and hides the jobs from other calls of Queued and Take on
// this node until they are put or given back.
func (q *Queue) Take(number uint32, limit int) []domain.Job {
	q.x.mu.Lock()
	defer q.x.mu.Unlock()
	jobs := q.x.consumers[number].front(limit)
	for _, j := range jobs {
		k := q.x.consumers[number]
		k.queue.remove(queueKey(j))
		k.taken[j.ID.Seq] = struct{}{}
	}
	return jobs
}

// GiveBack undoes Take for a job that was not put. A job that has changed stays out.
func (q *Queue) GiveBack(j domain.Job) {
	q.x.change(func() {
		if k := q.x.consumers[j.ID.Consumer]; k != nil {
			k.giveBack(j.ID, j.Revision)
		}
	})
}

// GiveBackAfter is [Queue.GiveBack] after a pause.
func (q *Queue) GiveBackAfter(j domain.Job, pause time.Duration) {
	q.x.change(func() { q.await(timer{at: time.Now().Add(pause), id: j.ID, revision: j.Revision, taken: true}) })
}

// WakeAfter has a consumer look for a job again after a pause.
func (q *Queue) WakeAfter(consumer uint32, pause time.Duration) {
	q.x.change(func() { q.await(timer{at: time.Now().Add(pause), id: domain.JobID{Consumer: consumer}}) })
}

// ExpireAfter has a claim that is over returned by Expired again, after a pause.
func (q *Queue) ExpireAfter(j domain.Job, pause time.Duration) {
	q.x.change(func() { q.await(timer{at: time.Now().Add(pause), id: j.ID, revision: j.Revision}) })
}

// Expired waits for a claim that is over, and queues the jobs meanwhile whose time has come. ok is false when ctx has ended. One
// goroutine at a time may call it.
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

// tick does what one timer says whose time has come, and tells how long the next one takes. Index.mu is held.
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
	if t.id.Seq == 0 {
		k.wake()
		return over, false, 0
	}
	if t.taken {
		k.giveBack(t.id, t.revision)
		return over, false, 0
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

// closed is returned to those who wait for a consumer that does not exist.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// QueuedSignal returns a channel that is closed when the consumer gets
// another queued job.
func (q *Queue) QueuedSignal(number uint32) <-chan struct{} {
	q.x.mu.Lock()
	defer q.x.mu.Unlock()
	k := q.x.consumers[number]
	if k == nil {
		return closed
	}
	if k.signal == nil {
		k.signal = make(chan struct{})
	}
	return k.signal
}

// Ready waits for push consumers that have another job to take, other settings, or were removed, and returns their numbers; none
// when ctx has ended. One goroutine at a time may call it.
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

// change makes a change of the queues under the lock, and then, without it, notifies those who wait for it.
func (x *Index) change(f func()) {
	signals, ready, sooner := x.changed(f)
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

// notify leaves a token for whoever waits, now or next.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// changed makes a change, and returns the signals of the workers that it has a job for, and whether Ready and Expired have to look.
func (x *Index) changed(f func()) (signals []chan struct{}, ready, sooner bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
	q := x.Queue
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
