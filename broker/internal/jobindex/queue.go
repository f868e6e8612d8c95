package jobindex

import (
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// enter is for a job that is queued or in flight. One that waits for its time is
// enqueued when that has come. Index.mu is held.
func (k *consumerIndex) enter(j domain.Job) {
	k.set(j.Status).insert(statusKey(j))
	k.reopened(j.ID.Seq)
	if j.Status == domain.Queued && !j.Due.After(time.Now()) {
		k.queue.insert(queueKey(j))
		k.wake()
	}
}

// requeue lets a consumer whose type has changed take all that is queued. Index.mu is held.
func (k *consumerIndex) requeue() {
	for _, j := range k.records {
		k.enqueue(j)
	}
	k.wake()
}

// wake has those who wait for a job notified by change. Index.mu is held.
func (k *consumerIndex) wake() {
	if !k.woken && (k.signal != nil || k.consumer.Type == domain.Push) {
		k.woken = true
		k.index.woken = append(k.index.woken, k)
	}
}

// change makes a change of the queues under the lock, and then, without it, notifies those who wait for a job.
func (x *Index) change(f func()) {
	signals, ready := x.changed(f)
	for _, signal := range signals {
		close(signal)
	}
	for _, consumer := range ready {
		x.ready(consumer)
	}
}

// changed makes a change, and returns the signals of workers and the push consumers that it has a job for.
func (x *Index) changed(f func()) (signals []chan struct{}, ready []uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
	for _, k := range x.woken {
		k.woken = false
		if k.signal != nil {
			signals = append(signals, k.signal)
			k.signal = nil
		}
		if k.consumer.Type == domain.Push {
			ready = append(ready, k.consumer.Number)
		}
	}
	clear(x.woken)
	x.woken = x.woken[:0]
	return signals, ready
}

// Queued returns the first queued jobs of a consumer: the highest priority
// first, the oldest first within one. A job that waits for its time is not among
// them until Enqueue.
func (x *Index) Queued(number uint32, limit int) []domain.Job {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.front(number, limit)
}

// Take is Queued, and hides the jobs from other calls of Queued and Take on
// this node until they are put or given back.
func (x *Index) Take(number uint32, limit int) []domain.Job {
	x.mu.Lock()
	defer x.mu.Unlock()
	jobs := x.front(number, limit)
	for _, j := range jobs {
		k := x.consumers[number]
		k.queue.remove(queueKey(j))
		k.taken[j.ID.Seq] = struct{}{}
	}
	return jobs
}

// front is the head of the queue; nothing waits there while the consumer is paused.
func (x *Index) front(number uint32, limit int) []domain.Job {
	k := x.consumers[number]
	if k == nil || limit < 1 || k.consumer.Paused() {
		return nil
	}
	jobs := make([]domain.Job, 0, min(limit, k.queue.len()))
	k.queue.ascend(nil, func(e key) bool {
		if j, ok := k.job(e.seq); ok {
			jobs = append(jobs, j)
		}
		return len(jobs) < limit
	})
	return jobs
}

// GiveBack undoes Take for a job that was not put.
// : a job that has changed stays out.
func (x *Index) GiveBack(j domain.Job) { x.change(func() { x.giveBack(j) }) }

func (x *Index) giveBack(j domain.Job) {
	k := x.consumers[j.ID.Consumer]
	if k == nil {
		return
	}
	if now, ok := k.job(j.ID.Seq); ok && now.Revision == j.Revision {
		delete(k.taken, j.ID.Seq)
		k.enqueueSeq(j.ID.Seq)
	}
}

// Enqueue has a queued job taken that has waited for its time, unless it is.
func (x *Index) Enqueue(id domain.JobID) {
	x.change(func() {
		if k := x.consumers[id.Consumer]; k != nil {
			k.enqueueSeq(id.Seq)
		}
	})
}

func (k *consumerIndex) enqueueSeq(seq uint64) {
	if j, ok := k.job(seq); ok && k.enqueue(j) {
		k.wake()
	}
}

// closed is returned to those who wait for a consumer that does not exist.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// QueuedSignal returns a channel that is closed when the consumer gets
// another queued job.
func (x *Index) QueuedSignal(number uint32) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.consumers[number]
	if k == nil {
		return closed
	}
	if k.signal == nil {
		k.signal = make(chan struct{})
	}
	return k.signal
}
