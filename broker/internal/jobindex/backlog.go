package jobindex

import (
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

const (
	// backlogSteps bounds how many messages are looked at under one lock for the oldest job of a consumer, and allSteps for
	// those of all: behind many that were settled before this process began it takes several calls to find it.
	backlogSteps = 10_000
	allSteps     = 10 * backlogSteps
)

// Backlogs is what every consumer has to do.
func (x *Index) Backlogs() []domain.Backlog {
	x.mu.RLock()
	all := make([]*consumerIndex, 0, len(x.consumers))
	for _, k := range x.consumers {
		all = append(all, k)
	}
	x.mu.RUnlock()
	backlogs, steps := make([]domain.Backlog, 0, len(all)), allSteps
	for _, k := range all {
		x.mu.Lock() // how far the consumer is settled is remembered
		b, taken := k.backlog(min(steps, backlogSteps))
		x.mu.Unlock()
		backlogs = append(backlogs, b)
		steps -= taken
	}
	return backlogs
}

// backlog looks at so many messages at most and tells at how many.
func (k *consumerIndex) backlog(steps int) (b domain.Backlog, taken int) {
	b = domain.Backlog{Consumer: k.consumer, Queued: k.queued.len(), Inflight: k.inflight.len(), Dead: k.settled.dead.len()}
	if b.Queued+b.Inflight == 0 {
		return b, 0
	}
	k.channel.messages.ascend(&Entry{Seq: k.settledTo}, func(e Entry) bool {
		if j, ok := k.job(e.Seq); ok && !settled(j.Status) {
			b.Oldest = FromUnixNano(e.At)
			return false
		}
		if taken == steps {
			return false
		}
		k.settledTo = e.Seq
		taken++
		return true
	})
	if b.Oldest.IsZero() {
		b.Oldest = k.longestInState()
	}
	return b, taken
}

// longestInState is since when a job is queued or in flight: the oldest one is at least as old.
func (k *consumerIndex) longestInState() time.Time {
	first := func(s *orderedSet[key], at time.Time) time.Time {
		if s.len() == 0 {
			return at
		}
		if t := time.Unix(0, s.first().major).UTC(); at.IsZero() || t.Before(at) {
			return t
		}
		return at
	}
	return first(&k.inflight, first(&k.queued, time.Time{}))
}

// reopened is called with each job that is queued or in flight.
func (k *consumerIndex) reopened(seq uint64) { k.settledTo = min(k.settledTo, seq-1) }
