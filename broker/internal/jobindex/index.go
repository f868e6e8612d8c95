// Package jobindex is a node's index of messages, schedules and jobs in memory. It does not use NATS: the store passes the contents of the
// streams to it.
//
// An [Index] has the messages of each channel, the scheduled ones (schedules.go), and the states of each consumer's jobs (index.go,
// settled.go). Its [Queue] has the jobs that can be taken, and the timers of jobs.
package jobindex

import (
	"cmp"
	"slices"
	"sync"
	"unique"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/clock"
)

// Index is what this node knows: the messages of each channel, and the jobs of
// each consumer that follow from them and from the records. The same news may
// come twice and in any order, from this node's own writes and from the
// streams; a record is only taken if its revision is newer.
type Index struct {
	// Clock is the store's. Times of jobs and messages are by it.
	Clock     *clock.Clock
	mu        sync.RWMutex
	channels  map[string]*channelIndex // by token
	consumers consumerIndexes
	orphans   map[uint32][]domain.Job // records that came before their consumer
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
	x := &Index{Clock: &clock.Clock{}, channels: map[string]*channelIndex{}, consumers: consumerIndexes{}, orphans: map[uint32][]domain.Job{}}
	x.Queue = newQueue(x)
	return x
}

// channel returns the index of a channel, made if need be. mu is held.
func (x *Index) channel(token string) *channelIndex {
	c := x.channels[token]
	if c == nil {
		c = &channelIndex{waiting: map[string]uint64{}}
		x.channels[token] = c
	}
	return c
}

// noChannel and noConsumer stand for those that are not known. They are empty.
var (
	noChannel  = &channelIndex{}
	noConsumer = &consumerIndex{channel: noChannel}
)

// at returns the index of a channel to read, given by its token. mu is held.
func (x *Index) at(token string) *channelIndex { return cmp.Or(x.channels[token], noChannel) }

type consumerIndexes map[uint32]*consumerIndex // by number

// of returns the index of a consumer to read.
func (c consumerIndexes) of(number uint32) *consumerIndex { return cmp.Or(c[number], noConsumer) }

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

// Consumer returns a consumer.
func (x *Index) Consumer(number uint32) (domain.Consumer, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers.of(number)
	return k.consumer, k != noConsumer
}

// PutConsumer adds a consumer, or takes over its new settings.
func (x *Index) PutConsumer(token string, consumer domain.Consumer) {
	x.change(func() {
		if consumer.Type == domain.Push {
			x.Queue.ready[consumer.Number] = struct{}{}
		}
		if k := x.consumers[consumer.Number]; k != nil {
			k.reconfigure(consumer)
			return
		}
		c := x.channel(token)
		k := &consumerIndex{consumer: consumer, channel: c, index: x, records: map[uint64]domain.Job{}, taken: map[uint64]struct{}{}}
		x.consumers[consumer.Number] = k
		c.consumers = append(c.consumers, k)
		for e := range c.messages.ascend(&Entry{Seq: consumer.Since}) {
			if k.wants(e) {
				k.enter(k.fresh(e))
			}
		}
		for _, j := range x.orphans[consumer.Number] {
			k.apply(j)
		}
		delete(x.orphans, consumer.Number)
	})
}

// reconfigure takes over new settings. Index.mu is held.
func (k *consumerIndex) reconfigure(consumer domain.Consumer) {
	became, resumed := consumer.Type != k.consumer.Type, k.consumer.Paused() && !consumer.Paused()
	k.refilter(consumer)
	if resumed {
		k.wake()
	}
	if became {
		k.index.Queue.ready[consumer.Number] = struct{}{}
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
func (x *Index) PutRecord(j domain.Job) { x.SeeRecord(j, 0) }

// SeeRecord is like PutRecord when all messages up to a sequence are known. It ignores a record whose message is one of them and not
// in the index: the message was deleted.
func (x *Index) SeeRecord(j domain.Job, known uint64) {
	x.change(func() {
		if k := x.consumers[j.ID.Consumer]; k != nil {
			if j.ID.Seq <= known {
				if _, there := k.channel.find(j.ID.Seq); !there {
					return
				}
			}
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

// fresh is the job of a message that has no record.
func (k *consumerIndex) fresh(e Entry) domain.Job {
	return domain.Job{
		ID:     domain.JobID{Seq: e.Seq, Consumer: k.consumer.Number},
		Status: domain.Queued, Priority: int(e.Priority), ChangedAt: FromUnixNano(e.At),
	}
}

// wants reports whether a message makes a job, if the job has no record.
func (k *consumerIndex) wants(e Entry) bool { return k.consumer.Wants(e.Seq, e.eventType.Value()) }

func queueKey(j domain.Job) key  { return key{-int64(j.Priority), j.ID.Seq} }
func statusKey(j domain.Job) key { return key{j.ChangedAt.UnixNano(), j.ID.Seq} }

// Lookup returns a job, removed ones too. Of one that is settled it has only the state, the revision and the time.
func (x *Index) Lookup(id domain.JobID) (j domain.Job, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers.of(id.Consumer)
	if j, ok = k.recorded(id.Seq); ok {
		return j, true
	}
	return k.job(id.Seq)
}

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

// refilter takes over a consumer's new settings. News of a change of its event types may come after the first
// messages that it is for.
func (k *consumerIndex) refilter(consumer domain.Consumer) {
	old := k.consumer
	k.consumer = consumer
	if len(consumer.Filters) == 0 || slices.Equal(old.Filters, consumer.Filters) {
		return
	}
	for e := range k.channel.messages.ascend(&Entry{Seq: consumer.Filters[len(consumer.Filters)-1].Since}) {
		if _, recorded := k.recorded(e.Seq); recorded {
			continue
		}
		before, now := old.Wants(e.Seq, e.eventType.Value()), k.wants(e)
		switch {
		case before && !now:
			k.leave(k.fresh(e))
			delete(k.taken, e.Seq)
		case !before && now:
			k.enter(k.fresh(e))
		}
	}
}
