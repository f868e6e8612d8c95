package jobindex

import (
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// consumerIndex is what is known of the jobs of one consumer. Index.mu guards it.
type consumerIndex struct {
	consumer domain.Consumer
	channel  *channelIndex
	queue    orderedSet[key]     // those to take: by priority, highest first, then sequence
	taken    map[uint64]struct{} // sequences of those that were, and are queued still
	// queued and inflight are those jobs by the time of their change.
	queued   orderedSet[key]
	inflight orderedSet[key]
	records  map[uint64]domain.Job // of those that are not settled
	settled  settledJobs
	// settledTo is a sequence up to which the consumer has no job to do.
	settledTo uint64
	signal    chan struct{} // closed at the next queued job; nil if nobody waits
	woken     bool          // it is in Index.woken
	index     *Index
}

// recorded returns what the last record that is known said of a job.
func (k *consumerIndex) recorded(seq uint64) (domain.Job, bool) {
	if j, ok := k.records[seq]; ok {
		return j, true
	}
	if e, ok := k.settled.get(seq); ok {
		return e.job(k.consumer.Number), true
	}
	return domain.Job{}, false
}

// forget takes a job out, whatever is known of it.
func (k *consumerIndex) forget(seq uint64) {
	delete(k.taken, seq)
	if e, ok := k.settled.get(seq); ok {
		k.settled.remove(e)
		return
	}
	if j, ok := k.job(seq); ok {
		k.leave(j)
	}
	delete(k.records, seq)
}

// fresh is the job of a message that has no record.
func (k *consumerIndex) fresh(e Entry) domain.Job {
	return domain.Job{
		ID:     domain.JobID{Seq: e.Seq, Consumer: k.consumer.Number},
		Status: domain.Queued, Priority: int(e.Priority), ChangedAt: FromUnixNano(e.At),
	}
}

// job returns a job that is not removed.
func (k *consumerIndex) job(seq uint64) (domain.Job, bool) {
	if j, ok := k.recorded(seq); ok {
		return j, j.Status != domain.Removed
	}
	e, found := k.channel.find(seq)
	if !found || !k.wants(e) {
		return domain.Job{}, false
	}
	return k.fresh(e), true
}

// set is the list of the jobs in one state; those that are delivered have none.
func (k *consumerIndex) set(s domain.JobStatus) *orderedSet[key] {
	switch s {
	case domain.Queued:
		return &k.queued
	case domain.Inflight:
		return &k.inflight
	}
	return &k.settled.dead
}

// leave is for a job that is queued or in flight.
func (k *consumerIndex) leave(j domain.Job) {
	k.set(j.Status).remove(statusKey(j))
	if j.Status == domain.Queued {
		k.queue.remove(queueKey(j))
	}
}

// enqueue puts a job into the queue that belongs there, and reports whether it did.
func (k *consumerIndex) enqueue(j domain.Job) bool {
	_, taken := k.taken[j.ID.Seq]
	return j.Status == domain.Queued && !taken && k.queue.insert(queueKey(j))
}

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
	return x.consumers[number].front(limit)
}

// Take is Queued, and hides the jobs from other calls of Queued and Take on
// this node until they are put or given back.
func (x *Index) Take(number uint32, limit int) []domain.Job {
	x.mu.Lock()
	defer x.mu.Unlock()
	jobs := x.consumers[number].front(limit)
	for _, j := range jobs {
		k := x.consumers[number]
		k.queue.remove(queueKey(j))
		k.taken[j.ID.Seq] = struct{}{}
	}
	return jobs
}

// front is the head of the queue; nothing waits there while the consumer is paused.
func (k *consumerIndex) front(limit int) []domain.Job {
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
func (x *Index) GiveBack(j domain.Job) {
	x.change(func() {
		if k := x.consumers[j.ID.Consumer]; k != nil {
			k.giveBack(j)
		}
	})
}

func (k *consumerIndex) giveBack(j domain.Job) {
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
