// Package jobindex is a node's in-memory index of messages, schedules and jobs. It does not use NATS: the store passes the contents of the streams to
// it.
//
// An [Index] has the messages of each channel, its scheduled messages (schedules.go), and the states of each consumer's jobs (index.go, settled.go).
// Its [Queue] has the available jobs, and the timers of jobs.
package jobindex

import (
	"cmp"
	"slices"
	"sync"
	"unique"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/clock"
)

// Index holds what this node knows: the messages of each channel, and the jobs of each consumer, which follow from the messages and the records. The
// same update may arrive twice and in any order, from this node's own writes and from the streams. Index applies a record only if its revision is
// newer than that of the known one.
type Index struct {
	// Clock is the store's clock. The times of jobs and messages are times of this clock.
	Clock     *clock.Clock
	mu        sync.RWMutex
	channels  map[string]*channelIndex // by token
	consumers consumerIndexes
	orphans   map[uint32][]domain.Job // records that arrived before their consumer
	Queue     *Queue
}

// maxOrphans is the maximum number of records to hold for one consumer that is not known yet.
const maxOrphans = 100_000

type channelIndex struct {
	messages  orderedSet[Entry] // by sequence
	consumers []*consumerIndex
	scheduled orderedSet[scheduled] // by sequence
	waiting   map[string]uint64     // sequences of pending schedules, by subject
}

// Entry has the properties of a message that lists and jobs need.
type Entry struct {
	Seq      uint64
	At       int64 // time of receipt, in ns
	Priority int32
	// eventType is shared by all messages of that type.
	eventType unique.Handle[string]
}

func (e Entry) less(o Entry) bool { return e.Seq < o.Seq }

// New returns an empty index.
func New() *Index {
	x := &Index{Clock: &clock.Clock{}, channels: map[string]*channelIndex{}, consumers: consumerIndexes{}, orphans: map[uint32][]domain.Job{}}
	x.Queue = newQueue(x)
	return x
}

// channel returns the index of a channel. It creates a missing one. mu is held.
func (x *Index) channel(token string) *channelIndex {
	c := x.channels[token]
	if c == nil {
		c = &channelIndex{waiting: map[string]uint64{}}
		x.channels[token] = c
	}
	return c
}

// noChannel and noConsumer are the empty indexes of unknown channels and consumers.
var (
	noChannel  = &channelIndex{}
	noConsumer = &consumerIndex{channel: noChannel}
)

// at returns the index of a channel, given by its token, for reading. mu is held.
func (x *Index) at(token string) *channelIndex { return cmp.Or(x.channels[token], noChannel) }

type consumerIndexes map[uint32]*consumerIndex // by number

// of returns the index of a consumer, for reading.
func (c consumerIndexes) of(number uint32) *consumerIndex { return cmp.Or(c[number], noConsumer) }

func (c *channelIndex) find(seq uint64) (Entry, bool) { return c.messages.get(Entry{Seq: seq}) }

// AddMessage adds a stored message to the index and queues its jobs.
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

// RemoveMessages removes messages or schedules, and the jobs of the messages. It releases the lock after each, so that requests do not wait for all.
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

// Consumer returns a consumer by its number.
func (x *Index) Consumer(number uint32) (domain.Consumer, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers.of(number)
	return k.consumer, k != noConsumer
}

// PutConsumer adds a consumer, or applies its new settings.
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

// reconfigure applies new settings. Index.mu is held.
func (k *consumerIndex) reconfigure(consumer domain.Consumer) {
	became, resumed := consumer.Type != k.consumer.Type, k.consumer.Paused() && !consumer.Paused()
	k.refilter(consumer)
	if resumed {
		k.wake()
	}
	if became {
		k.index.Queue.ready[consumer.Number] = struct{}{}
		for _, j := range k.records { // workers do not wait for the time of the next callback
			k.enqueue(j)
		}
		k.wake()
	}
}

// RemoveConsumer removes a consumer, its jobs and their records.
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

// PutRecord applies a record if it is newer than the known one.
func (x *Index) PutRecord(j domain.Job) { x.SeeRecord(j, 0) }

// SeeRecord is like PutRecord when the index has all messages up to the sequence known. If the message of j is one of them but is not in the index,
// SeeRecord ignores j, because the message was deleted.
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

// apply replaces the known state of a job if the record is newer. Index.mu is held.
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

// recorded returns a job as of the last known record.
func (k *consumerIndex) recorded(seq uint64) (domain.Job, bool) {
	if j, ok := k.records[seq]; ok {
		return j, true
	}
	if e, ok := k.settled.get(seq); ok {
		return e.job(k.consumer.Number), true
	}
	return domain.Job{}, false
}

// fresh returns the job of a message, as it is without a record.
func (k *consumerIndex) fresh(e Entry) domain.Job {
	return domain.Job{
		ID:     domain.JobID{Seq: e.Seq, Consumer: k.consumer.Number},
		Status: domain.Queued, Priority: int(e.Priority), ChangedAt: FromUnixNano(e.At),
	}
}

// wants reports whether a message without a record has a job.
func (k *consumerIndex) wants(e Entry) bool { return k.consumer.Wants(e.Seq, e.eventType.Value()) }

func queueKey(j domain.Job) key  { return key{-int64(j.Priority), j.ID.Seq} }
func statusKey(j domain.Job) key { return key{j.ChangedAt.UnixNano(), j.ID.Seq} }

// Lookup returns a job, also if it is removed. A settled job has only its state, revision and time.
func (x *Index) Lookup(id domain.JobID) (j domain.Job, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers.of(id.Consumer)
	if j, ok = k.recorded(id.Seq); ok {
		return j, true
	}
	return k.job(id.Seq)
}

// consumerIndex holds the known jobs of one consumer. Index.mu guards it.
type consumerIndex struct {
	consumer domain.Consumer
	channel  *channelIndex
	queue    orderedSet[key]       // available jobs: by priority, highest first, then by sequence
	taken    map[uint64]struct{}   // sequences of jobs that were taken and are still queued
	open     orderedSet[seqKey]    // queued and inflight jobs
	inflight orderedSet[key]       // by the start of the claim
	records  map[uint64]domain.Job // of queued and inflight jobs that have one
	settled  settledJobs
	signal   chan struct{} // closed when a job is queued; nil if nobody waits
	woken    bool          // this index is in Queue.woken
	index    *Index
}

// forget removes everything that is known of a job.
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

// job returns a job, unless it is removed.
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

// refilter applies a consumer's new settings. A change of its event types may become known after the first messages to which it applies.
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
