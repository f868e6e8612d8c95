package jobindex

import (
	"slices"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// consumerIndex is what is known of the jobs of one consumer. Index.mu guards it.
type consumerIndex struct {
	consumer domain.Consumer
	channel  *channelIndex
	queue    orderedSet[key]       // those to take: by priority, highest first, then sequence
	taken    map[uint64]struct{}   // sequences of those that were, and are queued still
	open     orderedSet[seqKey]    // those that are queued or in flight
	inflight orderedSet[key]       // by the time of the claim
	records  map[uint64]domain.Job // of those that are queued or in flight, if they have one
	settled  settledJobs
	signal   chan struct{} // closed at the next queued job; nil if nobody waits
	woken    bool          // it is in Queue.woken
	index    *Index
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

// wants tells whether a message makes a job, if it has no record.
func (k *consumerIndex) wants(e Entry) bool { return k.consumer.Wants(e.Seq, e.eventType.Value()) }

// refilter takes over a consumer's new settings. News of a change of its event types may come after the first
// messages that it is for.
func (k *consumerIndex) refilter(consumer domain.Consumer) {
	old := k.consumer
	k.consumer = consumer
	if len(consumer.Filters) == 0 || slices.Equal(old.Filters, consumer.Filters) {
		return
	}
	k.channel.messages.ascend(&Entry{Seq: consumer.Filters[len(consumer.Filters)-1].Since}, func(e Entry) bool {
		if _, recorded := k.recorded(e.Seq); recorded {
			return true
		}
		before, now := old.Wants(e.Seq, e.eventType.Value()), k.wants(e)
		switch {
		case before && !now:
			k.leave(k.fresh(e))
			delete(k.taken, e.Seq)
		case !before && now:
			k.enter(k.fresh(e))
		}
		return true
	})
}

// enter is for a job that is queued or in flight. One that waits for its time is queued when that has come.
func (k *consumerIndex) enter(j domain.Job) {
	q := k.index.Queue
	k.open.insert(seqKey(j.ID.Seq))
	switch {
	case j.Status == domain.Inflight:
		k.inflight.insert(statusKey(j))
		q.await(timer{at: j.Due.Add(q.offset), id: j.ID, revision: j.Revision})
	case j.Due.After(time.Now()):
		q.await(timer{at: j.Due, id: j.ID, revision: j.Revision})
	default:
		k.enqueue(j)
	}
}

// leave is for a job that is queued or in flight.
func (k *consumerIndex) leave(j domain.Job) {
	k.open.remove(seqKey(j.ID.Seq))
	k.inflight.remove(statusKey(j))
	k.queue.remove(queueKey(j))
}

// enqueue has a job taken, if it is queued and nobody has taken it.
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

// wake has those who wait for a job notified.
func (k *consumerIndex) wake() {
	if !k.woken && (k.signal != nil || k.consumer.Type == domain.Push) {
		k.woken = true
		k.index.Queue.woken = append(k.index.Queue.woken, k)
	}
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

// Backlogs is what every consumer has to do, at a cost that the number of jobs does not matter for.
func (x *Index) Backlogs() []domain.Backlog {
	x.mu.RLock()
	defer x.mu.RUnlock()
	backlogs := make([]domain.Backlog, 0, len(x.consumers))
	for _, k := range x.consumers {
		b := domain.Backlog{Consumer: k.consumer, Queued: k.open.len() - k.inflight.len(), Inflight: k.inflight.len(), Dead: k.settled.dead.len()}
		if k.open.len() > 0 {
			if e, found := k.channel.find(uint64(k.open.first())); found {
				b.Oldest = FromUnixNano(e.At)
			}
		}
		backlogs = append(backlogs, b)
	}
	return backlogs
}

// CountJobs counts a consumer's jobs, in the order of domain.JobStatuses. The oldest and the newest of those that are queued or
// delivered go by their messages, and of the others by when they got into the state.
func (x *Index) CountJobs(number uint32) []domain.StatusCount {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers[number]
	if k == nil {
		return nil
	}
	counts := make([]domain.StatusCount, len(domain.JobStatuses))
	for i, status := range domain.JobStatuses {
		c := &counts[i]
		c.Status = status
		switch status {
		case domain.Queued:
			c.Count = k.open.len() - k.inflight.len()
			c.Oldest, c.Newest = k.openTimes()
		case domain.Inflight:
			c.Count = k.inflight.len()
			c.Oldest, c.Newest = timesOf(&k.inflight)
		case domain.Delivered:
			c.Count = k.settled.delivered
			c.Oldest, c.Newest = k.settled.deliveredTimes()
		case domain.Dead:
			c.Count = k.settled.dead.len()
			c.Oldest, c.Newest = timesOf(&k.settled.dead)
		}
	}
	return counts
}

// openTimes are since when the jobs of the oldest and the newest message are queued that are. Those in flight, which it passes by, are few.
func (k *consumerIndex) openTimes() (oldest, newest time.Time) {
	at := func(walk func(*seqKey, func(seqKey) bool)) (at time.Time) {
		walk(nil, func(seq seqKey) bool {
			j, ok := k.job(uint64(seq))
			if ok && j.Status == domain.Queued {
				at = j.ChangedAt
			}
			return at.IsZero()
		})
		return at
	}
	return at(k.open.ascend), at(k.open.descend)
}

// timesOf are the first and the last time in a set that is ordered by time.
func timesOf(s *orderedSet[key]) (oldest, newest time.Time) {
	if s.len() == 0 {
		return oldest, newest
	}
	return time.Unix(0, s.first().major).UTC(), time.Unix(0, s.last().major).UTC()
}
