package jobindex

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// JobsOf returns the jobs of a message, at most one per consumer.
func (x *Index) JobsOf(channel string, seq uint64) []domain.Job {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var jobs []domain.Job
	for _, k := range x.at(domain.SubjectToken(channel)).consumers {
		if j, ok := k.job(seq); ok {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// ListDead returns a page of a consumer's dead jobs, newest first.
func (x *Index) ListDead(number uint32, page domain.Page) []domain.Job {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers.of(number)
	keys := pageOf(&k.settled.dead, page, func(p domain.Position) key { return key{p.At, p.Seq} }, nil)
	jobs := make([]domain.Job, 0, len(keys))
	for _, e := range keys {
		if j, ok := k.job(e.seq); ok {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// ListJobs returns up to limit jobs of a consumer in a status, newest message first, for messages before the sequence before. Status 0 means any. It
// looks at no more than finishedPage messages. next is where to continue; 0 means the end.
func (x *Index) ListJobs(number uint32, status domain.JobStatus, before uint64, limit int) (jobs []domain.Job, next uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers.of(number)
	next = k.channel.walk(before, limit, func(e Entry) bool {
		j, ok := k.job(e.Seq)
		takes := ok && (status == 0 || j.Status == status)
		if takes {
			jobs = append(jobs, j)
		}
		return takes
	})
	return jobs, next
}

// walk calls take for the messages before a sequence, newest first, until take has accepted limit messages or was called finishedPage times. next is
// where to continue; 0 means the end.
func (c *channelIndex) walk(before uint64, limit int, take func(Entry) bool) (next uint64) {
	looked, taken := 0, 0
	for e := range c.messages.descend(&Entry{Seq: before}) {
		if take(e) {
			taken++
		}
		if looked++; looked == finishedPage || taken == limit {
			return e.Seq
		}
	}
	return 0
}

// pageOf returns a page of the elements of a set that take accepts, newest first. A nil take accepts all.
func pageOf[K ordered[K]](s *orderedSet[K], page domain.Page, at func(domain.Position) K, take func(K) bool) []K {
	keys, all := make([]K, 0, min(page.Limit, s.len())), s.descend(nil)
	switch {
	case page.Before != nil:
		from := at(*page.Before)
		all = s.ascend(&from)
	case page.After != nil:
		from := at(*page.After)
		all = s.descend(&from)
	}
	for e := range all {
		if take == nil || take(e) {
			keys = append(keys, e)
		}
		if len(keys) >= page.Limit {
			break
		}
	}
	if page.Before != nil {
		slices.Reverse(keys)
	}
	return keys
}

// MessageSeqs returns the sequences on a page of a channel's messages.
func (x *Index) MessageSeqs(channel string, page domain.Page) []uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	entries := pageOf(&x.at(domain.SubjectToken(channel)).messages, page, func(p domain.Position) Entry { return Entry{Seq: p.Seq} }, nil)
	seqs := make([]uint64, len(entries))
	for i, e := range entries {
		seqs[i] = e.Seq
	}
	return seqs
}

// SearchMessages returns the sequences of up to limit messages before a sequence, newest first, that match eventTypes and the times of s. It looks at
// no more than finishedPage messages. next is where to continue; 0 means the end.
func (x *Index) SearchMessages(channel string, s domain.ReplaySpec, eventTypes string, before uint64, limit int) (seqs []uint64, next uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	next = x.at(domain.SubjectToken(channel)).walk(before, limit, func(e Entry) bool {
		takes := s.TakesTime(FromUnixNano(e.At)) && domain.MatchesEventType(eventTypes, e.eventType.Value())
		if takes {
			seqs = append(seqs, e.Seq)
		}
		return takes
	})
	return seqs, next
}

// CountMessages counts the messages of a channel.
func (x *Index) CountMessages(channel string) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.at(domain.SubjectToken(channel)).messages.len()
}

// finishedPage is the maximum number of messages to check while holding the lock.
const finishedPage = 1000

// Ages defines which messages are old enough to be finished.
type Ages struct {
	// Before is the time before which the message must have been received.
	Before time.Time
	// DeadBefore is the time before which its dead jobs must have died. Zero means that a message with a dead job is not finished.
	DeadBefore time.Time
}

// Finished returns up to limit messages that are old enough and whose jobs are all settled, in the channels that take accepts.
func (x *Index) Finished(take func(token string) bool, ages Ages, limit int) []uint64 {
	x.mu.RLock()
	tokens := slices.Collect(maps.Keys(x.channels))
	x.mu.RUnlock()
	var seqs []uint64
	for _, token := range tokens {
		from, more := Entry{}, take(token)
		for more && len(seqs) < limit {
			seqs, from, more = x.finishedIn(token, from, ages, seqs, limit)
		}
	}
	return seqs
}

// finishedIn appends finished messages of a channel to seqs, starting at from. It checks a part, and returns where to continue.
func (x *Index) finishedIn(token string, from Entry, ages Ages, seqs []uint64, limit int) (_ []uint64, next Entry, more bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c, old := x.channels[token], func(dead domain.Job) bool { return dead.ChangedAt.Before(ages.DeadBefore) }
	looked, now, before := 0, x.Clock.Now().UnixNano(), ages.Before.UnixNano()
	for e := range c.messages.ascend(&from) {
		// A message from the future was stored under a wrong clock. It must not prevent the pruning of later messages.
		if e.At >= before && e.At <= now || len(seqs) >= limit {
			break
		}
		if e.At < before && c.finished(e.Seq, old) {
			seqs = append(seqs, e.Seq)
		}
		if looked++; looked >= finishedPage {
			return seqs, e, true
		}
	}
	return seqs, next, false
}

// finished reports whether all jobs of a message are settled, and takes accepts its dead jobs.
func (c *channelIndex) finished(seq uint64, takes func(dead domain.Job) bool) bool {
	for _, k := range c.consumers {
		if j, ok := k.job(seq); ok && (!j.Status.Settled() || j.Status == domain.Dead && !takes(j)) {
			return false
		}
	}
	return true
}

// has reports whether a message or schedule belongs to the channel.
func (c *channelIndex) has(seq uint64) bool {
	_, found := c.find(seq)
	_, waits := c.scheduled.get(scheduled{seq: seq})
	return found || waits
}

// ChannelOf returns the channel of a message or schedule, and whether all of its jobs are settled.
func (x *Index) ChannelOf(seq uint64) (token string, settled bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for token, c := range x.channels {
		if c.has(seq) {
			return token, c.finished(seq, func(domain.Job) bool { return true })
		}
	}
	return "", false
}

// Listed returns the sequences that belong to messages or schedules of a channel.
func (x *Index) Listed(token string, seqs []uint64) (listed []uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c := x.at(token)
	for _, seq := range seqs {
		if c.has(seq) {
			listed = append(listed, seq)
		}
	}
	return listed
}

// Backlogs returns the outstanding work of every consumer, at a cost that does not depend on the number of jobs.
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

// CountJobs counts a consumer's jobs, in the order of domain.JobStatuses. Oldest and Newest of queued and delivered jobs are the times of the oldest
// and newest messages. In the other states, they are times at which jobs entered the state.
func (x *Index) CountJobs(number uint32) [4]domain.StatusCount {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers.of(number)
	return [...]domain.StatusCount{
		counted(domain.Queued, k.open.len()-k.inflight.len(), &k.open, k.queuedAt),
		counted(domain.Inflight, k.inflight.len(), &k.inflight, key.time),
		counted(domain.Delivered, k.settled.delivered, &k.settled.bySeq, settledJob.deliveredAt),
		counted(domain.Dead, k.settled.dead.len(), &k.settled.dead, key.time),
	}
}

// counted returns a count, with the times of the first and last elements of s for which at returns a time that is not zero.
func counted[K ordered[K]](status domain.JobStatus, count int, s *orderedSet[K], at func(K) time.Time) domain.StatusCount {
	c := domain.StatusCount{Status: status, Count: count}
	if count == 0 {
		return c
	}
	for e := range s.ascend(nil) {
		if c.Oldest = at(e); !c.Oldest.IsZero() {
			break
		}
	}
	for e := range s.descend(nil) {
		if c.Newest = at(e); !c.Newest.IsZero() {
			break
		}
	}
	return c
}

// queuedAt returns when a job was queued. It returns zero for inflight jobs, of which there are few.
func (k *consumerIndex) queuedAt(seq seqKey) time.Time {
	if j, ok := k.job(uint64(seq)); ok && j.Status == domain.Queued {
		return j.ChangedAt
	}
	return time.Time{}
}

// Dead returns up to limit dead jobs of the consumers that take accepts, in the order of the times at which they died, from from to before to. It
// exceeds limit for jobs that died in the same nanosecond, so that the caller can continue at last, the time of the last job. last is 0 if there are
// no more jobs.
func (x *Index) Dead(take func(domain.Consumer) bool, from, to int64, newest bool, limit int) (jobs []domain.Job, last int64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	type dead struct {
		key
		of *consumerIndex
	}
	order := func(a, b dead) int {
		if newest {
			a, b = b, a
		}
		return cmp.Or(cmp.Compare(a.major, b.major), cmp.Compare(a.seq, b.seq), cmp.Compare(a.of.consumer.Number, b.of.consumer.Number))
	}
	var found []dead // sorted; elements behind a full page are removed
	more := false
	for _, k := range x.consumers {
		if !take(k.consumer) {
			continue
		}
		all := k.settled.dead.ascend(&key{from - 1, math.MaxUint64})
		if newest {
			all = k.settled.dead.descend(&key{to, 0})
		}
		for e := range all {
			if e.major < from || e.major >= to {
				break
			}
			i, _ := slices.BinarySearchFunc(found, dead{e, k}, order)
			found = slices.Insert(found, i, dead{e, k})
			for len(found) > limit && found[len(found)-1].major != found[limit-1].major {
				found, more = found[:len(found)-1], true
			}
			switch end := found[len(found)-1].major; {
			case more && newest:
				from = end
			case more:
				to = end + 1
			}
		}
	}
	if more {
		last = found[len(found)-1].major
	}
	for _, d := range found {
		if j, ok := d.of.job(d.seq); ok {
			jobs = append(jobs, j)
		}
	}
	return jobs, last
}
