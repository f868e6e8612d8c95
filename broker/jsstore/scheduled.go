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
	at           int64 // when it is to be broadcast, ns
	dispatchedAt int64 // when it was, 0 while it is pending
}

// addScheduled takes a message into the index that is to be broadcast later.
func (x *index) addScheduled(token, subject string, e scheduledEntry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, gone := x.cancelled[e.seq]; gone {
		delete(x.cancelled, e.seq)
		return
	}
	if x.pendingAt[subject] != nil {
		return
	}
	x.pendingAt[subject] = &e
	x.insertScheduled(token, &e)
}

func (x *index) insertScheduled(token string, e *scheduledEntry) {
	c := x.channel(token)
	i := sort.Search(len(c.scheduled), func(i int) bool { return c.scheduled[i].seq >= e.seq })
	c.scheduled = slices.Insert(c.scheduled, i, e)
}

// scheduleFired notes that the server broadcast a scheduled message.
func (x *index) scheduleFired(token, subject string, e scheduledEntry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.pendingAt[subject]
	if old != nil {
		old.dispatchedAt = e.dispatchedAt
		return
	}
	// After a restart the schedule is gone from the stream, and its broadcast
	// is all there is. It takes the broadcast's place in the list.
	x.pendingAt[subject] = &e
	x.insertScheduled(token, &e)
}

// removeScheduled forgets a scheduled message. If the stream was not read up to
// it, news of it may come yet and is to be ignored.
func (x *index) removeScheduled(token, subject string, seq, seen uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if seen < seq {
		x.cancelled[seq] = struct{}{}
	}
	e := x.pendingAt[subject]
	if e == nil || e.seq != seq {
		return
	}
	delete(x.pendingAt, subject)
	c := x.channel(token)
	c.scheduled = slices.DeleteFunc(c.scheduled, func(o *scheduledEntry) bool { return o == e })
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
