package jsstore

import (
	"slices"
	"sort"
	"time"

	"github.com/jetpull/jetpull/broker"
)

// scheduledEntry is a scheduled message as far as lists need it. The message
// itself is read from the stream.
type scheduledEntry struct {
	seq          uint64
	id           string
	subject      string // of the schedule
	at           int64  // when it is to be broadcast, ns
	dispatchedAt int64  // when it was, 0 while it is pending
	message      uint64 // what it was broadcast as, 0 while it is pending
}

// latest is the last message of its subject that the entry stands for.
func (e *scheduledEntry) latest() uint64 { return max(e.seq, e.message) }

// addScheduled takes a message into the index that the stream says is to be
// broadcast later.
func (x *index) addScheduled(token, subject string, e scheduledEntry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, gone := x.cancelled[e.seq]; gone {
		delete(x.cancelled, e.seq)
		return
	}
	x.replaceScheduled(token, subject, e)
}

// addOwnScheduled is addScheduled for a schedule that was stored by this node. It
// may have come from the stream already, and been cancelled or broadcast since.
func (x *index) addOwnScheduled(token, subject string, e scheduledEntry, seen *progress) {
	x.mu.Lock()
	defer x.mu.Unlock()
	// Whoever cancels looks at what was seen first and takes the lock then: what is
	// not seen by now will be found here, or is marked.
	if _, gone := x.cancelled[e.seq]; gone || seen.reached() >= e.seq {
		return
	}
	x.replaceScheduled(token, subject, e)
}

// replaceScheduled puts an entry in the place of an older one of its subject: the
// stream takes a schedule only where there is none, so that the older one was
// cancelled, or was broadcast and its message pruned, on this node or another. mu
// is held.
func (x *index) replaceScheduled(token, subject string, e scheduledEntry) {
	old := x.pendingAt[subject]
	if old != nil {
		if old.latest() >= e.seq {
			return
		}
		x.dropScheduled(token, old)
	}
	e.subject = subject
	x.pendingAt[subject] = &e
	c := x.channel(token)
	i, _ := c.findScheduled(e.seq)
	c.scheduled = slices.Insert(c.scheduled, i, &e)
	c.noteBroadcast(&e)
}

func (c *channelIndex) findScheduled(seq uint64) (int, bool) {
	i := sort.Search(len(c.scheduled), func(i int) bool { return c.scheduled[i].seq >= seq })
	return i, i < len(c.scheduled) && c.scheduled[i].seq == seq
}

func (c *channelIndex) noteBroadcast(e *scheduledEntry) {
	if e.message == 0 {
		return
	}
	if c.broadcastOf == nil {
		c.broadcastOf = map[uint64]*scheduledEntry{}
	}
	c.broadcastOf[e.message] = e
}

// dropScheduled forgets an entry. mu is held.
func (x *index) dropScheduled(token string, e *scheduledEntry) {
	delete(x.pendingAt, e.subject)
	c := x.channel(token)
	delete(c.broadcastOf, e.message)
	if i, found := c.findScheduled(e.seq); found {
		c.scheduled = slices.Delete(c.scheduled, i, i+1)
	}
}

// scheduleFired notes that the server broadcast a scheduled message, which e is of.
func (x *index) scheduleFired(token, subject string, e scheduledEntry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.pendingAt[subject]
	if old != nil && old.message == 0 && old.seq < e.message {
		old.dispatchedAt, old.message = e.dispatchedAt, e.message
		x.channel(token).noteBroadcast(old)
		return
	}
	// After a restart the schedule is gone from the stream, and its broadcast
	// is all there is. It takes the broadcast's place in the list.
	x.replaceScheduled(token, subject, e)
}

// removeScheduled forgets a scheduled message. If the stream was not read up to
// it, news of it may come yet and is to be ignored.
func (x *index) removeScheduled(token, subject string, seq, seen uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.markCancelled(seq, seen)
	if e := x.pendingAt[subject]; e != nil && e.seq == seq {
		x.dropScheduled(token, e)
	}
}

// removeUntold forgets a schedule that the stream does not have any more and that
// nobody has told of. If it was broadcast, the broadcast is what there is to list.
func (x *index) removeUntold(token, subject string, seq, seen uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.pendingAt[subject]; e != nil && e.seq == seq && e.message == 0 {
		x.markCancelled(seq, seen)
		x.dropScheduled(token, e)
	}
}

// markCancelled has news of a schedule ignored that may come yet. mu is held.
func (x *index) markCancelled(seq, seen uint64) {
	if seen < seq {
		x.cancelled[seq] = struct{}{}
	}
}

func (e *scheduledEntry) view(channel string) broker.Scheduled {
	return broker.Scheduled{
		Message:      broker.Message{Seq: e.seq, ID: e.id, Channel: channel},
		For:          fromUnixNano(e.at),
		DispatchedAt: fromUnixNano(e.dispatchedAt),
	}
}

func (x *index) listScheduled(token, channel string, status broker.ScheduledStatus, page broker.Page) []broker.Scheduled {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c := x.channels[token]
	if c == nil {
		return nil
	}
	var views []broker.Scheduled
	for _, e := range c.scheduled {
		if v := e.view(channel); status == 0 || v.Status() == status {
			views = append(views, v)
		}
	}
	from, to := pageBounds(len(views), page, func(seq uint64) (int, bool) {
		i := sort.Search(len(views), func(i int) bool { return views[i].Seq >= seq })
		return i, i < len(views) && views[i].Seq == seq
	})
	views = views[from:to]
	slices.Reverse(views)
	return views
}

func (x *index) countScheduled(token string) broker.ScheduledCounts {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var counts broker.ScheduledCounts
	c := x.channels[token]
	if c == nil {
		return counts
	}
	next := int64(0)
	for _, e := range c.scheduled {
		if e.dispatchedAt != 0 {
			counts.Dispatched++
			continue
		}
		counts.Pending++
		if next == 0 || e.at < next {
			next = e.at
		}
	}
	if next != 0 {
		counts.Next = time.Unix(0, next).UTC()
	}
	return counts
}
