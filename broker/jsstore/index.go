package jsstore

import (
	"math"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker"
)

// index is what this node knows: the messages of each channel, and the jobs of
// each consumer that follow from them and from the records. The same news may
// come twice and in any order, from this node's own writes and from the
// streams; a record is only taken if its revision is newer.
type index struct {
	mu        sync.RWMutex
	channels  map[string]*channelIndex   // by token
	consumers map[uint32]*consumerIndex  // by number
	orphans   map[uint32][]broker.Job    // records that came before their consumer
	pendingAt map[string]*scheduledEntry // by subject
	cancelled map[uint64]struct{}        // sequences of schedules that the stream may still bring
}

// maxOrphans bounds what is kept for one consumer that is not known yet.
const maxOrphans = 100_000

type channelIndex struct {
	messages  []entry // by sequence
	consumers []*consumerIndex
	scheduled []*scheduledEntry // by sequence
	// broadcastOf finds what was scheduled by the sequence that it was broadcast as.
	broadcastOf map[uint64]*scheduledEntry
}

// entry is a message as far as lists and jobs need it.
type entry struct {
	seq      uint64
	at       int64 // time of receipt, ns
	priority int32
}

type consumerIndex struct {
	consumer broker.Consumer
	channel  *channelIndex
	queue    orderedSet // by priority, highest first, then sequence
	status   [len(broker.JobStatuses)]orderedSet
	records  map[uint64]broker.Job
	signal   chan struct{} // closed at the next queued job; nil if nobody waits
}

func newIndex() *index {
	return &index{
		channels:  map[string]*channelIndex{},
		consumers: map[uint32]*consumerIndex{},
		orphans:   map[uint32][]broker.Job{},
		pendingAt: map[string]*scheduledEntry{},
		cancelled: map[uint64]struct{}{},
	}
}

// channel returns the index of a channel, made if need be. mu is held.
func (x *index) channel(token string) *channelIndex {
	c := x.channels[token]
	if c == nil {
		c = &channelIndex{}
		x.channels[token] = c
	}
	return c
}

func (c *channelIndex) find(seq uint64) (int, bool) {
	if n := len(c.messages); n == 0 || c.messages[n-1].seq < seq {
		return n, false
	}
	i := sort.Search(len(c.messages), func(i int) bool { return c.messages[i].seq >= seq })
	return i, c.messages[i].seq == seq
}

// addMessage takes a stored message into the index and queues its jobs.
func (x *index) addMessage(token string, e entry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.channel(token)
	i, found := c.find(e.seq)
	if found {
		return
	}
	c.messages = slices.Insert(c.messages, i, e)
	for _, k := range c.consumers {
		if e.seq > k.consumer.Since {
			if _, recorded := k.records[e.seq]; !recorded {
				k.enter(k.fresh(e))
			}
		}
	}
}

// removeMessages forgets messages, their jobs, and that they were scheduled.
func (x *index) removeMessages(token string, seqs []uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.channel(token)
	for _, seq := range seqs {
		if e := c.broadcastOf[seq]; e != nil {
			x.dropScheduled(token, e)
		}
		i, found := c.find(seq)
		if !found {
			continue
		}
		for _, k := range c.consumers {
			if j, ok := k.job(seq); ok {
				k.leave(j)
			}
			delete(k.records, seq)
		}
		c.messages = slices.Delete(c.messages, i, i+1)
	}
}

// putConsumer adds a consumer, or takes over its new settings.
func (x *index) putConsumer(token string, consumer broker.Consumer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k := x.consumers[consumer.Number]; k != nil {
		k.consumer = consumer
		return
	}
	c := x.channel(token)
	k := &consumerIndex{consumer: consumer, channel: c, records: map[uint64]broker.Job{}}
	x.consumers[consumer.Number] = k
	c.consumers = append(c.consumers, k)
	i, found := c.find(consumer.Since)
	if found {
		i++
	}
	for _, e := range c.messages[i:] {
		k.enter(k.fresh(e))
	}
	for _, j := range x.orphans[consumer.Number] {
		k.apply(j)
	}
	delete(x.orphans, consumer.Number)
}

func (x *index) removeConsumer(number uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.orphans, number)
	k := x.consumers[number]
	if k == nil {
		return
	}
	delete(x.consumers, number)
	k.channel.consumers = slices.DeleteFunc(k.channel.consumers, func(o *consumerIndex) bool { return o == k })
	k.wake()
}

// putRecord takes a record into the index and reports whether it was news.
func (x *index) putRecord(j broker.Job) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.consumers[j.ID.Consumer]
	if k == nil {
		if held := x.orphans[j.ID.Consumer]; len(held) < maxOrphans {
			x.orphans[j.ID.Consumer] = append(held, j)
		}
		return false
	}
	return k.apply(j)
}

// apply replaces what is known of a job, if the record is news.
func (k *consumerIndex) apply(j broker.Job) bool {
	if old, ok := k.records[j.ID.Seq]; ok && old.Revision >= j.Revision {
		return false
	}
	if old, ok := k.job(j.ID.Seq); ok {
		k.leave(old)
	}
	k.records[j.ID.Seq] = j
	if j.Status != broker.Removed {
		k.enter(j)
	}
	return true
}

// fresh is the job of a message that has no record.
func (k *consumerIndex) fresh(e entry) broker.Job {
	return broker.Job{
		ID:     broker.JobID{Seq: e.seq, Consumer: k.consumer.Number},
		Status: broker.Queued, Priority: int(e.priority), ChangedAt: fromUnixNano(e.at),
	}
}

// job returns a job that is not removed.
func (k *consumerIndex) job(seq uint64) (broker.Job, bool) {
	if j, ok := k.records[seq]; ok {
		return j, j.Status != broker.Removed
	}
	if seq <= k.consumer.Since {
		return broker.Job{}, false
	}
	i, found := k.channel.find(seq)
	if !found {
		return broker.Job{}, false
	}
	return k.fresh(k.channel.messages[i]), true
}

func queueKey(j broker.Job) key  { return key{-int64(j.Priority), j.ID.Seq} }
func statusKey(j broker.Job) key { return key{j.ChangedAt.UnixNano(), j.ID.Seq} }

func (k *consumerIndex) set(s broker.JobStatus) *orderedSet { return &k.status[s-broker.Queued] }

func (k *consumerIndex) enter(j broker.Job) {
	k.set(j.Status).insert(statusKey(j))
	if j.Status == broker.Queued {
		k.queue.insert(queueKey(j))
		k.wake()
	}
}

func (k *consumerIndex) leave(j broker.Job) {
	k.set(j.Status).remove(statusKey(j))
	if j.Status == broker.Queued {
		k.queue.remove(queueKey(j))
	}
}

func (k *consumerIndex) wake() {
	if k.signal != nil {
		close(k.signal)
		k.signal = nil
	}
}

// lookup returns a job, removed ones too.
func (x *index) lookup(id broker.JobID) (j broker.Job, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers[id.Consumer]
	if k == nil {
		return broker.Job{}, false
	}
	if j, ok := k.records[id.Seq]; ok {
		return j, true
	}
	return k.job(id.Seq)
}

// scheduledNow returns the sequence of the schedule that waits for its time on a
// subject, as far as is known here, or 0.
func (x *index) scheduledNow(subject string) uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if e := x.pendingAt[subject]; e != nil && e.message == 0 {
		return e.seq
	}
	return 0
}

func (x *index) jobsOf(token string, seq uint64) []broker.Job {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c := x.channels[token]
	if c == nil {
		return nil
	}
	var jobs []broker.Job
	for _, k := range c.consumers {
		if j, ok := k.job(seq); ok {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func (x *index) queued(number uint32, limit int) []broker.Job {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.front(number, limit)
}

// take is queued, and takes the jobs out of the queue.
func (x *index) take(number uint32, limit int) []broker.Job {
	x.mu.Lock()
	defer x.mu.Unlock()
	jobs := x.front(number, limit)
	for _, j := range jobs {
		x.consumers[number].queue.remove(queueKey(j))
	}
	return jobs
}

func (x *index) front(number uint32, limit int) []broker.Job {
	k := x.consumers[number]
	if k == nil || limit < 1 {
		return nil
	}
	jobs := make([]broker.Job, 0, min(limit, k.queue.len()))
	k.queue.ascend(nil, func(e key) bool {
		if j, ok := k.job(e.seq); ok {
			jobs = append(jobs, j)
		}
		return len(jobs) < limit
	})
	return jobs
}

// giveBack puts a job that was taken into the queue again, if it still belongs
// there.
func (x *index) giveBack(id broker.JobID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k := x.consumers[id.Consumer]; k != nil {
		if j, ok := k.job(id.Seq); ok && j.Status == broker.Queued && k.queue.insert(queueKey(j)) {
			k.wake()
		}
	}
}

// closed is returned to those who wait for a consumer that does not exist.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func (x *index) queuedSignal(number uint32) <-chan struct{} {
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

func (x *index) list(number uint32, status broker.JobStatus, page broker.Page) []broker.Job {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers[number]
	if k == nil || status < broker.Queued || status > broker.Dead {
		return nil
	}
	keys := pageOf(k.set(status), page)
	jobs := make([]broker.Job, 0, len(keys))
	for _, e := range keys {
		if j, ok := k.job(e.seq); ok {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// pageOf reads a page of a set, newest first.
func pageOf(s *orderedSet, page broker.Page) []key {
	keys := make([]key, 0, page.Limit)
	collect := func(e key) bool {
		keys = append(keys, e)
		return len(keys) < page.Limit
	}
	switch {
	case page.Before != nil:
		s.ascend(&key{page.Before.At, page.Before.Seq}, collect)
		slices.Reverse(keys)
	case page.After != nil:
		s.descend(&key{page.After.At, page.After.Seq}, collect)
	default:
		s.descend(nil, collect)
	}
	return keys
}

func (x *index) counts(number uint32) []broker.StatusCount {
	x.mu.RLock()
	defer x.mu.RUnlock()
	k := x.consumers[number]
	if k == nil {
		return nil
	}
	counts := make([]broker.StatusCount, len(broker.JobStatuses))
	for i, status := range broker.JobStatuses {
		counts[i].Status = status
		if s := k.set(status); s.len() > 0 {
			counts[i].Count = s.len()
			counts[i].Oldest = time.Unix(0, s.first().major).UTC()
			counts[i].Newest = time.Unix(0, s.last().major).UTC()
		}
	}
	return counts
}

// messages returns the sequences of a page of a channel's messages.
func (x *index) messages(token string, page broker.Page) []uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c := x.channels[token]
	if c == nil {
		return nil
	}
	from, to := pageBounds(len(c.messages), page, func(seq uint64) (int, bool) { return c.find(seq) })
	seqs := make([]uint64, 0, to-from)
	for i := to - 1; i >= from; i-- {
		seqs = append(seqs, c.messages[i].seq)
	}
	return seqs
}

// pageBounds finds a page in a list that is stored oldest first.
func pageBounds(n int, page broker.Page, find func(seq uint64) (int, bool)) (from, to int) {
	switch {
	case page.Before != nil:
		i, found := find(page.Before.Seq)
		if found {
			i++
		}
		return i, min(n, i+page.Limit)
	case page.After != nil:
		i, _ := find(page.After.Seq)
		return max(0, i-page.Limit), i
	}
	return max(0, n-page.Limit), n
}

func (x *index) countMessages(token string) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if c := x.channels[token]; c != nil {
		return len(c.messages)
	}
	return 0
}

// finished finds messages older than the given time with no job to do.
func (x *index) finished(before time.Time, limit int) []uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var seqs []uint64
	for _, c := range x.channels {
		for _, e := range c.messages {
			if e.at >= before.UnixNano() || len(seqs) >= limit {
				break
			}
			if c.settled(e.seq) {
				seqs = append(seqs, e.seq)
			}
		}
	}
	return seqs
}

func (c *channelIndex) settled(seq uint64) bool {
	for _, k := range c.consumers {
		if j, ok := k.job(seq); ok && (j.Status == broker.Queued || j.Status == broker.Inflight) {
			return false
		}
	}
	return true
}

// channelOf finds the channel of a message.
func (x *index) channelOf(seq uint64) (token string, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for token, c := range x.channels {
		if _, found := c.find(seq); found {
			return token, true
		}
	}
	return "", false
}

// recorded calls f for each job of a consumer, or with 0 of all, that has a record.
func (x *index) recorded(consumer uint32, f func(broker.Job) bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	consumers := x.consumers
	if consumer != 0 {
		consumers = map[uint32]*consumerIndex{}
		if k := x.consumers[consumer]; k != nil {
			consumers[consumer] = k
		}
	}
	for _, k := range consumers {
		for _, j := range k.records {
			if !f(j) {
				return
			}
		}
	}
}

// clampPriority keeps a priority in the range that the index holds.
func clampPriority(p int) int { return min(max(p, 0), math.MaxInt32) }
