package jobindex

import "github.com/jetpull/jetpull/broker/internal/domain"

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
