package jobindex

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Index is what this node knows: the messages of each channel, and the jobs of
// each consumer that follow from them and from the records. The same news may
// come twice and in any order, from this node's own writes and from the
// streams; a record is only taken if its revision is newer.
type Index struct {
	mu        sync.RWMutex
	channels  map[string]*channelIndex  // by token
	consumers map[uint32]*consumerIndex // by number
	orphans   map[uint32][]domain.Job   // records that came before their consumer
	recent    recent                    // settled jobs
	woken     []*consumerIndex          // those with news for who waits, until the lock is released
	ready     func(consumer uint32)
}

// maxOrphans bounds what is kept for one consumer that is not known yet.
const maxOrphans = 100_000

type channelIndex struct {
	kinds     eventKinds
	messages  orderedSet[Entry] // by sequence
	consumers []*consumerIndex
	scheduled orderedSet[scheduled] // by sequence
	waiting   map[string]uint64     // sequences of the schedules that wait for their time, by subject
}

// Entry is a message as far as lists and jobs need it.
type Entry struct {
	Seq      uint64
	At       int64 // time of receipt, ns
	Priority int32
	kind     uint32 // its event type, in channelIndex.kinds
}

func (e Entry) less(o Entry) bool { return e.Seq < o.Seq }

// New makes an index that calls ready, without a lock, when a push consumer has another job to take.
func New(ready func(consumer uint32)) *Index {
	return &Index{
		channels:  map[string]*channelIndex{},
		consumers: map[uint32]*consumerIndex{},
		orphans:   map[uint32][]domain.Job{},
		ready:     ready,
	}
}

// channel returns the index of a channel, made if need be. mu is held.
func (x *Index) channel(token string) *channelIndex {
	c := x.channels[token]
	if c == nil {
		c = &channelIndex{}
		x.channels[token] = c
	}
	return c
}

func (c *channelIndex) find(seq uint64) (Entry, bool) { return c.messages.get(Entry{Seq: seq}) }

// AddMessage takes a stored message into the index and queues its jobs.
func (x *Index) AddMessage(token string, e Entry, eventType string) {
	x.change(func() { x.channel(token).add(e, eventType) })
}

func (c *channelIndex) add(e Entry, eventType string) {
	if _, known := c.find(e.Seq); known {
		return
	}
	e.kind = c.kinds.enter(eventType)
	c.messages.insert(e)
	for _, k := range c.consumers {
		if k.wants(e) {
			if _, recorded := k.recorded(e.Seq); !recorded {
				k.enter(k.fresh(e))
			}
		}
	}
}

// RemoveMessages forgets messages and their jobs, and schedules. Requests get their turn between any two
// of them.
func (x *Index) RemoveMessages(token string, seqs []uint64) {
	for _, seq := range seqs {
		x.change(func() { x.channel(token).remove(seq) })
	}
}

func (c *channelIndex) remove(seq uint64) {
	if known, ok := c.find(seq); ok {
		c.messages.remove(known)
		c.kinds.leave(known.kind)
	}
	c.unschedule(seq)
	for _, k := range c.consumers {
		k.forget(seq)
	}
}

// Strays are the messages up to a sequence that are gone, and of which there are records still, with the tokens of their channels.
func (x *Index) Strays(upTo uint64) map[uint64]string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	strays := map[uint64]string{}
	for token, c := range x.channels {
		look := func(seq uint64) bool {
			if _, kept := c.find(seq); !kept && seq <= upTo {
				strays[seq] = token
			}
			return true
		}
		for _, k := range c.consumers {
			for seq := range k.records {
				look(seq)
			}
			k.settled.bySeq.ascend(nil, func(e settledJob) bool { return look(e.seq()) })
		}
	}
	return strays
}

// PutConsumer adds a consumer, or takes over its new settings. It returns the records
// that had come before it.
func (x *Index) PutConsumer(token string, consumer domain.Consumer) (orphans []domain.Job) {
	x.change(func() { orphans = x.putConsumer(token, consumer) })
	return orphans
}

func (x *Index) putConsumer(token string, consumer domain.Consumer) (orphans []domain.Job) {
	if k := x.consumers[consumer.Number]; k != nil {
		became, resumed := consumer.Type != k.consumer.Type, k.consumer.Paused() && !consumer.Paused()
		k.refilter(consumer)
		if resumed {
			k.wake()
		}
		if became {
			k.requeue()
		}
		return nil
	}
	c := x.channel(token)
	k := &consumerIndex{consumer: consumer, channel: c, index: x, records: map[uint64]domain.Job{}, taken: map[uint64]struct{}{}, settledTo: consumer.Since}
	x.consumers[consumer.Number] = k
	c.consumers = append(c.consumers, k)
	c.messages.ascend(&Entry{Seq: consumer.Since}, func(e Entry) bool {
		if k.wants(e) {
			k.enter(k.fresh(e))
		}
		return true
	})
	orphans = x.orphans[consumer.Number]
	for _, j := range orphans {
		x.apply(k, j)
	}
	delete(x.orphans, consumer.Number)
	return orphans
}

// RemoveConsumer forgets a consumer, its jobs and their records.
func (x *Index) RemoveConsumer(number uint32) {
	x.change(func() {
		delete(x.orphans, number)
		k := x.consumers[number]
		if k == nil {
			return
		}
		delete(x.consumers, number)
		k.channel.consumers = slices.DeleteFunc(k.channel.consumers, func(o *consumerIndex) bool { return o == k })
		k.wake()
	})
}

// PutRecord takes a record into the index and reports whether it was news.
func (x *Index) PutRecord(j domain.Job) (news bool) {
	x.change(func() { news = x.putRecord(j) })
	return news
}

func (x *Index) putRecord(j domain.Job) bool {
	k := x.consumers[j.ID.Consumer]
	if k == nil {
		if held := x.orphans[j.ID.Consumer]; len(held) < maxOrphans {
			x.orphans[j.ID.Consumer] = append(held, j)
		}
		return false
	}
	return x.apply(k, j)
}

// apply replaces what is known of a job, if the record is news. mu is held.
func (x *Index) apply(k *consumerIndex, j domain.Job) bool {
	old, ok := k.recorded(j.ID.Seq)
	if ok && old.Revision >= j.Revision {
		return false
	}
	k.forget(j.ID.Seq)
	if settled(j.Status) {
		k.settled.add(settle(j))
		x.recent.put(j)
		return true
	}
	k.records[j.ID.Seq] = j
	k.enter(j)
	return true
}

// settled tells whether nothing happens to a job by itself any more.
func settled(s domain.JobStatus) bool { return s >= domain.Delivered }

func queueKey(j domain.Job) key  { return key{-int64(j.Priority), j.ID.Seq} }
func statusKey(j domain.Job) key { return key{j.ChangedAt.UnixNano(), j.ID.Seq} }

// Lookup returns a job, removed ones too. Of one that was settled some time ago it
// has only the state, the revision and the time; whole says that it has all.
func (x *Index) Lookup(id domain.JobID) (j domain.Job, whole, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers[id.Consumer]
	if k == nil {
		return domain.Job{}, false, false
	}
	j, ok = k.recorded(id.Seq)
	if !ok {
		j, ok = k.job(id.Seq)
	}
	if !settled(j.Status) {
		return j, true, ok
	}
	if kept, found := x.recent.jobs[id]; found && kept.Revision == j.Revision {
		return kept, true, true
	}
	return j, false, true
}

// Remember keeps a job whole for a while that was read for somebody.
func (x *Index) Remember(j domain.Job) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if settled(j.Status) {
		x.recent.put(j)
	}
}

// JobsOf returns the jobs of a message.
func (x *Index) JobsOf(token string, seq uint64) []domain.Job {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c := x.channels[token]
	if c == nil {
		return nil
	}
	var jobs []domain.Job
	for _, k := range c.consumers {
		if j, ok := k.job(seq); ok {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// ListJobs returns a page of a consumer's jobs in one state. Of the delivered there is no list.
func (x *Index) ListJobs(number uint32, status domain.JobStatus, page domain.Page) []domain.Job {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers[number]
	if k == nil || status != domain.Queued && status != domain.Inflight && status != domain.Dead {
		return nil
	}
	keys := pageOf(k.set(status), page, func(p domain.Position) key { return key{p.At, p.Seq} }, nil)
	jobs := make([]domain.Job, 0, len(keys))
	for _, e := range keys {
		if j, ok := k.job(e.seq); ok {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// pageOf reads a page of a set, newest first, of those that take accepts; nil: of all.
func pageOf[K ordered[K]](s *orderedSet[K], page domain.Page, at func(domain.Position) K, take func(K) bool) []K {
	keys := make([]K, 0, min(page.Limit, s.len()))
	collect := func(e K) bool {
		if take == nil || take(e) {
			keys = append(keys, e)
		}
		return len(keys) < page.Limit
	}
	switch {
	case page.Before != nil:
		from := at(*page.Before)
		s.ascend(&from, collect)
		slices.Reverse(keys)
	case page.After != nil:
		from := at(*page.After)
		s.descend(&from, collect)
	default:
		s.descend(nil, collect)
	}
	return keys
}

// CountJobs counts a consumer's jobs, in the order of domain.JobStatuses.
func (x *Index) CountJobs(number uint32) (counts []domain.StatusCount) {
	for whole := false; !whole; {
		x.change(func() {
			if k := x.consumers[number]; k != nil {
				counts, whole = k.counts()
			} else {
				counts, whole = nil, true
			}
		})
	}
	return counts
}

// counts remembers the times of the delivered. Index.mu is held.
func (k *consumerIndex) counts() (counts []domain.StatusCount, whole bool) {
	counts, whole = make([]domain.StatusCount, len(domain.JobStatuses)), true
	for i, status := range domain.JobStatuses {
		counts[i].Status = status
		if status == domain.Delivered {
			if counts[i].Count = k.settled.delivered; counts[i].Count > 0 {
				counts[i].Oldest, counts[i].Newest, whole = k.settled.deliveredTimes()
			}
		} else if s := k.set(status); s.len() > 0 {
			counts[i].Count = s.len()
			counts[i].Oldest = time.Unix(0, s.first().major).UTC()
			counts[i].Newest = time.Unix(0, s.last().major).UTC()
		}
	}
	return counts, whole
}

// MessageSeqs returns the sequences of a page of a channel's messages.
func (x *Index) MessageSeqs(token string, page domain.Page) []uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c := x.channels[token]
	if c == nil {
		return nil
	}
	entries := pageOf(&c.messages, page, func(p domain.Position) Entry { return Entry{Seq: p.Seq} }, nil)
	seqs := make([]uint64, len(entries))
	for i, e := range entries {
		seqs[i] = e.Seq
	}
	return seqs
}

// CountMessages counts the messages of a channel.
func (x *Index) CountMessages(token string) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if c := x.channels[token]; c != nil {
		return c.messages.len()
	}
	return 0
}

// finishedPage bounds how many messages are looked at under one lock.
const finishedPage = 1000

// Finished finds messages older than the given time with no job to do.
func (x *Index) Finished(before time.Time, limit int) []uint64 {
	x.mu.RLock()
	tokens := slices.Collect(maps.Keys(x.channels))
	x.mu.RUnlock()
	var seqs []uint64
	for _, token := range tokens {
		from, more := Entry{}, true
		for more && len(seqs) < limit {
			seqs, from, more = x.finishedIn(token, from, before.UnixNano(), seqs, limit)
		}
	}
	return seqs
}

// finishedIn adds those of the next messages of a channel, and tells where to go on.
func (x *Index) finishedIn(token string, from Entry, before int64, seqs []uint64, limit int) (_ []uint64, next Entry, more bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c := x.channels[token]
	looked, now := 0, time.Now().UnixNano()
	c.messages.ascend(&from, func(e Entry) bool {
		// A message of the future is one of a clock that was wrong. It keeps those behind it from nothing.
		if e.At >= before && e.At <= now || len(seqs) >= limit {
			return false
		}
		if e.At < before && c.settled(e.Seq) {
			seqs = append(seqs, e.Seq)
		}
		looked++
		next, more = e, looked >= finishedPage
		return !more
	})
	return seqs, next, more
}

func (c *channelIndex) settled(seq uint64) bool {
	for _, k := range c.consumers {
		if j, ok := k.job(seq); ok && (j.Status == domain.Queued || j.Status == domain.Inflight) {
			return false
		}
	}
	return true
}

// ChannelOf finds the channel of a message or schedule, and tells whether all its jobs are settled.
func (x *Index) ChannelOf(seq uint64) (token string, settled bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for token, c := range x.channels {
		_, found := c.find(seq)
		_, waits := c.scheduled.get(scheduled{seq: seq})
		if found || waits {
			return token, c.settled(seq)
		}
	}
	return "", false
}

// Recorded calls f for each job that has a record and is not settled.
func (x *Index) Recorded(f func(domain.Job) bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, k := range x.consumers {
		for _, j := range k.records {
			if !f(j) {
				return
			}
		}
	}
}
