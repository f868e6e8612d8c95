package jsstore

import (
	"time"

	"github.com/jetpull/jetpull/broker"
)

// enter is for a job that is queued or in flight. One that waits for its time is
// enqueued when that has come. mu is held.
func (x *index) enter(k *consumerIndex, j broker.Job) {
	k.set(j.Status).insert(statusKey(j))
	k.reopened(j.ID.Seq)
	if j.Status == broker.Queued && !j.Due.After(time.Now()) {
		k.queue.insert(queueKey(j))
		x.wake(k)
	}
}

// requeue lets a consumer whose type has changed take all that is queued. mu is held.
func (x *index) requeue(k *consumerIndex) {
	for _, j := range k.records {
		k.enqueue(j)
	}
	x.wake(k)
}

// wake tells those who wait for a job. mu is held.
func (x *index) wake(k *consumerIndex) {
	if k.signal != nil {
		close(k.signal)
		k.signal = nil
	}
	if k.consumer.Type == broker.Push {
		x.ready(k.consumer.Number)
	}
}

func (x *index) queued(number uint32, limit int) []broker.Job {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.front(number, limit)
}

// take is queued, and takes the jobs out of the queue.
func (x *index) take(number uint32, limit int) []broker.Job {
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
func (x *index) front(number uint32, limit int) []broker.Job {
	k := x.consumers[number]
	if k == nil || limit < 1 || k.consumer.Paused() {
		return nil
	}
	jobs := make([]broker.Job, 0, min(limit, k.queue.len()))
	k.queue.ascend(nil, func(e key) bool {
		if j, ok := k.job(e.seq); ok {
			jobs = append(jobs, j)
		}
		return len(jobs) < limit
	})
	return jobs
}

// giveBack puts a job that was taken into the queue again, if it has not changed.
func (x *index) giveBack(j broker.Job) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.consumers[j.ID.Consumer]
	if k == nil {
		return
	}
	if now, ok := k.job(j.ID.Seq); ok && now.Revision == j.Revision {
		delete(k.taken, j.ID.Seq)
		x.enqueueLocked(k, j.ID.Seq)
	}
}

// enqueue puts a job that has waited for its time into the queue.
func (x *index) enqueue(id broker.JobID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k := x.consumers[id.Consumer]; k != nil {
		x.enqueueLocked(k, id.Seq)
	}
}

func (x *index) enqueueLocked(k *consumerIndex, seq uint64) {
	if j, ok := k.job(seq); ok && k.enqueue(j) {
		x.wake(k)
	}
}

// closed is returned to those who wait for a consumer that does not exist.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (x *index) queuedSignal(number uint32) <-chan struct{} {
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
