// Package jobindex is what a node knows in memory of messages, schedules and jobs. It knows no NATS: the store tells it what the streams
// have.
//
// An [Index] has the messages of each channel, which of them were scheduled (schedules.go), and what is known of the jobs of each consumer
// (consumer.go, settled.go). Its [Queue] has the jobs that can be taken, and what happens to jobs by itself at a time.
package jobindex

import (
	"maps"
	"slices"
	"sync"
	"time"
	"unique"

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
	Queue     *Queue
}

// maxOrphans bounds what is kept for one consumer that is not known yet.
const maxOrphans = 100_000

type channelIndex struct {
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
	// eventType is shared by the messages that have it.
	eventType unique.Handle[string]
}

func (e Entry) less(o Entry) bool { return e.Seq < o.Seq }

// New makes an index of nothing.
func New() *Index {
	x := &Index{channels: map[string]*channelIndex{}, consumers: map[uint32]*consumerIndex{}, orphans: map[uint32][]domain.Job{}}
	x.Queue = newQueue(x)
	return x
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
	e.eventType = unique.Make(eventType)
	x.change(func() { x.channel(token).add(e) })
}

func (c *channelIndex) add(e Entry) {
	if _, known := c.find(e.Seq); known {
		return
	}
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
	c.messages.remove(Entry{Seq: seq})
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

// PutConsumer adds a consumer, or takes over its new settings.
func (x *Index) PutConsumer(token string, consumer domain.Consumer) {
	x.change(func() {
		if consumer.Type == domain.Push {
			x.Queue.ready[consumer.Number] = struct{}{}
		}
		if k := x.consumers[consumer.Number]; k != nil {
			x.changeConsumer(k, consumer)
			return
		}
		c := x.channel(token)
		k := &consumerIndex{consumer: consumer, channel: c, index: x, records: map[uint64]domain.Job{}, taken: map[uint64]struct{}{}}
		x.consumers[consumer.Number] = k
		c.consumers = append(c.consumers, k)
		c.messages.ascend(&Entry{Seq: consumer.Since}, func(e Entry) bool {
			if k.wants(e) {
				k.enter(k.fresh(e))
			}
			return true
		})
		for _, j := range x.orphans[consumer.Number] {
			k.apply(j)
		}
		delete(x.orphans, consumer.Number)
	})
}

// changeConsumer takes over new settings. mu is held.
func (x *Index) changeConsumer(k *consumerIndex, consumer domain.Consumer) {
	became, resumed := consumer.Type != k.consumer.Type, k.consumer.Paused() && !consumer.Paused()
	k.refilter(consumer)
	if resumed {
		k.wake()
	}
	if became {
		x.Queue.ready[consumer.Number] = struct{}{}
		for _, j := range k.records { // workers do not wait for the time of a callback
			k.enqueue(j)
		}
		k.wake()
	}
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

// PutRecord takes a record into the index, if it is news.
func (x *Index) PutRecord(j domain.Job) {
	x.change(func() {
		if k := x.consumers[j.ID.Consumer]; k != nil {
			k.apply(j)
		} else if held := x.orphans[j.ID.Consumer]; len(held) < maxOrphans {
			x.orphans[j.ID.Consumer] = append(held, j)
		}
	})
}

// apply replaces what is known of a job, if the record is news. Index.mu is held.
func (k *consumerIndex) apply(j domain.Job) {
	if old, ok := k.recorded(j.ID.Seq); ok && old.Revision >= j.Revision {
		return
	}
	k.forget(j.ID.Seq)
	if j.Status.Settled() {
		k.settled.add(settle(j))
		return
	}
	k.records[j.ID.Seq] = j
	k.enter(j)
}

func queueKey(j domain.Job) key  { return key{-int64(j.Priority), j.ID.Seq} }
func statusKey(j domain.Job) key { return key{j.ChangedAt.UnixNano(), j.ID.Seq} }

// Lookup returns a job, removed ones too. Of one that is settled it has only the state, the revision and the time.
func (x *Index) Lookup(id domain.JobID) (j domain.Job, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers[id.Consumer]
	if k == nil {
		return domain.Job{}, false
	}
	if j, ok = k.recorded(id.Seq); ok {
		return j, true
	}
	return k.job(id.Seq)
}

// JobsOf returns the jobs of a message, one for each consumer that has it.
func (x *Index) JobsOf(channel string, seq uint64) []domain.Job {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c := x.channels[domain.SubjectToken(channel)]
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

// ListDead returns a page of a consumer's dead jobs, newest first.
func (x *Index) ListDead(number uint32, page domain.Page) []domain.Job {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers[number]
	if k == nil {
		return nil
	}
	keys := pageOf(&k.settled.dead, page, func(p domain.Position) key { return key{p.At, p.Seq} }, nil)
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

// MessageSeqs returns the sequences of a page of a channel's messages.
func (x *Index) MessageSeqs(channel string, page domain.Page) []uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c := x.channels[domain.SubjectToken(channel)]
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
func (x *Index) CountMessages(channel string) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if c := x.channels[domain.SubjectToken(channel)]; c != nil {
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
