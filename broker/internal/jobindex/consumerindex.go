package jobindex

import "github.com/jetpull/jetpull/broker"

// consumerIndex is what is known of the jobs of one consumer. Index.mu guards it.
type consumerIndex struct {
	consumer broker.Consumer
	channel  *channelIndex
	queue    orderedSet[key]     // those to take: by priority, highest first, then sequence
	taken    map[uint64]struct{} // sequences of those that were, and are queued still
	// queued and inflight are those jobs by the time of their change.
	queued   orderedSet[key]
	inflight orderedSet[key]
	records  map[uint64]broker.Job // of those that are not settled
	settled  settledJobs
	// settledTo is a sequence up to which the consumer has no job to do.
	settledTo uint64
	signal    chan struct{} // closed at the next queued job; nil if nobody waits
	ready     func(consumer uint32)
}

// recorded returns what the last record that is known said of a job.
func (k *consumerIndex) recorded(seq uint64) (broker.Job, bool) {
	if j, ok := k.records[seq]; ok {
		return j, true
	}
	if e, ok := k.settled.get(seq); ok {
		return e.job(k.consumer.Number), true
	}
	return broker.Job{}, false
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
func (k *consumerIndex) fresh(e Entry) broker.Job {
	return broker.Job{
		ID:     broker.JobID{Seq: e.Seq, Consumer: k.consumer.Number},
		Status: broker.Queued, Priority: int(e.Priority), ChangedAt: FromUnixNano(e.At),
	}
}

// job returns a job that is not removed.
func (k *consumerIndex) job(seq uint64) (broker.Job, bool) {
	if j, ok := k.recorded(seq); ok {
		return j, j.Status != broker.Removed
	}
	e, found := k.channel.find(seq)
	if !found || !k.wants(e) {
		return broker.Job{}, false
	}
	return k.fresh(e), true
}

func (k *consumerIndex) set(s broker.JobStatus) *orderedSet[key] {
	switch s {
	case broker.Queued:
		return &k.queued
	case broker.Inflight:
		return &k.inflight
	}
	return k.settled.ofStatus(s)
}

// leave is for a job that is queued or in flight.
func (k *consumerIndex) leave(j broker.Job) {
	k.set(j.Status).remove(statusKey(j))
	if j.Status == broker.Queued {
		k.queue.remove(queueKey(j))
	}
}

// enqueue puts a job into the queue that belongs there, and reports whether it did.
func (k *consumerIndex) enqueue(j broker.Job) bool {
	_, taken := k.taken[j.ID.Seq]
	return j.Status == broker.Queued && !taken && k.queue.insert(queueKey(j))
}
