package jobindex

import (
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Scheduled is a scheduled message as far as lists need it. The message
// itself is read from the stream.
type Scheduled struct {
	Seq          uint64
	ID           string
	subject      string // of the schedule
	At           int64  // when it is to be broadcast, ns
	DispatchedAt int64  // when it was, 0 while it is pending
	Message      uint64 // what it was broadcast as, 0 while it is pending
}

// latest is the last message of its subject that the entry stands for.
func (e *Scheduled) latest() uint64 { return max(e.Seq, e.Message) }

// Schedules is what this node knows of the messages that were scheduled, broadcast or not. As with the index, news may
// come twice and in any order.
type Schedules struct {
	mu        sync.RWMutex
	channels  map[string]*channelSchedules // by token
	pendingAt map[string]*Scheduled        // by subject
	cancelled map[uint64]struct{}          // sequences of schedules that the stream may still bring
}

type channelSchedules struct {
	scheduled []*Scheduled // by sequence
	// broadcastOf finds what was scheduled by the sequence that it was broadcast as.
	broadcastOf map[uint64]*Scheduled
}

// NewSchedules knows of none.
func NewSchedules() *Schedules {
	return &Schedules{
		channels: map[string]*channelSchedules{}, pendingAt: map[string]*Scheduled{}, cancelled: map[uint64]struct{}{},
	}
}

// Add takes a message into the index that the stream says is to be
// broadcast later.
func (x *Schedules) Add(token, subject string, e Scheduled) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, gone := x.cancelled[e.Seq]; gone {
		delete(x.cancelled, e.Seq)
		return
	}
	x.replace(token, subject, e)
}

// AddOwn is [Schedules.Add] for a schedule that was stored by this node. It
// may have come from the stream already, and been cancelled or broadcast since.
func (x *Schedules) AddOwn(token, subject string, e Scheduled, seen func() uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	// Whoever cancels looks at what was seen first and takes the lock then: what is
	// not seen by now will be found here, or is marked.
	if _, gone := x.cancelled[e.Seq]; gone || seen() >= e.Seq {
		return
	}
	x.replace(token, subject, e)
}

// replace puts an entry in the place of an older one of its subject: the
// stream takes a schedule only where there is none, so that the older one was
// cancelled, or was broadcast and its message pruned, on this node or another. mu
// is held.
func (x *Schedules) replace(token, subject string, e Scheduled) {
	old := x.pendingAt[subject]
	if old != nil {
		if old.latest() >= e.Seq {
			return
		}
		x.drop(token, old)
	}
	e.subject = subject
	x.pendingAt[subject] = &e
	c := x.channels[token]
	if c == nil {
		c = &channelSchedules{broadcastOf: map[uint64]*Scheduled{}}
		x.channels[token] = c
	}
	i, _ := c.find(e.Seq)
	c.scheduled = slices.Insert(c.scheduled, i, &e)
	c.noteBroadcast(&e)
}

func (c *channelSchedules) find(seq uint64) (int, bool) {
	i := sort.Search(len(c.scheduled), func(i int) bool { return c.scheduled[i].Seq >= seq })
	return i, i < len(c.scheduled) && c.scheduled[i].Seq == seq
}

func (c *channelSchedules) noteBroadcast(e *Scheduled) {
	if e.Message != 0 {
		c.broadcastOf[e.Message] = e
	}
}

// drop forgets an entry. mu is held.
func (x *Schedules) drop(token string, e *Scheduled) {
	delete(x.pendingAt, e.subject)
	c := x.channels[token]
	delete(c.broadcastOf, e.Message)
	if i, found := c.find(e.Seq); found {
		c.scheduled = slices.Delete(c.scheduled, i, i+1)
	}
}

// Fired notes that the server broadcast a scheduled message, which e is of.
func (x *Schedules) Fired(token, subject string, e Scheduled) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.pendingAt[subject]
	if old != nil && old.Message == 0 && old.Seq < e.Message {
		old.DispatchedAt, old.Message = e.DispatchedAt, e.Message
		x.channels[token].noteBroadcast(old)
		return
	}
	// After a restart the schedule is gone from the stream, and its broadcast
	// is all there is. It takes the broadcast's place in the list.
	x.replace(token, subject, e)
}

// Remove forgets a scheduled message. If the stream was not read up to
// it, news of it may come yet and is to be ignored.
func (x *Schedules) Remove(token, subject string, seq, seen uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.markCancelled(seq, seen)
	if e := x.pendingAt[subject]; e != nil && e.Seq == seq {
		x.drop(token, e)
	}
}

// RemoveUntold forgets a schedule that the stream does not have any more and that
// nobody has told of. If it was broadcast, the broadcast is what there is to list.
func (x *Schedules) RemoveUntold(token, subject string, seq, seen uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e := x.pendingAt[subject]; e != nil && e.Seq == seq && e.Message == 0 {
		x.markCancelled(seq, seen)
		x.drop(token, e)
	}
}

// markCancelled has news of a schedule ignored that may come yet. mu is held.
func (x *Schedules) markCancelled(seq, seen uint64) {
	if seen < seq {
		x.cancelled[seq] = struct{}{}
	}
}

func (e *Scheduled) view(channel string) domain.Scheduled {
	return domain.Scheduled{
		Message:      domain.Message{Seq: e.Seq, ID: e.ID, Channel: channel},
		For:          FromUnixNano(e.At),
		DispatchedAt: FromUnixNano(e.DispatchedAt),
	}
}

func (e *Scheduled) status() domain.ScheduledStatus {
	return domain.Scheduled{DispatchedAt: FromUnixNano(e.DispatchedAt)}.Status()
}

// Pending returns the sequence of the schedule that waits for its time on a
// subject, as far as is known here, or 0.
func (x *Schedules) Pending(subject string) uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if e := x.pendingAt[subject]; e != nil && e.Message == 0 {
		return e.Seq
	}
	return 0
}

// Pruned forgets what was broadcast as messages that are gone.
func (x *Schedules) Pruned(token string, seqs []uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.channels[token]
	if c == nil {
		return
	}
	for _, seq := range seqs {
		if e := c.broadcastOf[seq]; e != nil {
			x.drop(token, e)
		}
	}
}

// List returns a page of a channel's scheduled messages; of those in one state, if it is not 0.
func (x *Schedules) List(token, channel string, status domain.ScheduledStatus, page domain.Page) []domain.Scheduled {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c := x.channels[token]
	if c == nil {
		return nil
	}
	i, step := len(c.scheduled)-1, -1
	switch {
	case page.Before != nil:
		step = 1
		var found bool
		if i, found = c.find(page.Before.Seq); found {
			i++
		}
	case page.After != nil:
		i, _ = c.find(page.After.Seq)
		i--
	}
	var views []domain.Scheduled
	for ; i >= 0 && i < len(c.scheduled) && len(views) < page.Limit; i += step {
		if e := c.scheduled[i]; status == 0 || e.status() == status {
			views = append(views, e.view(channel))
		}
	}
	if step > 0 {
		slices.Reverse(views)
	}
	return views
}

// Count counts those of a channel.
func (x *Schedules) Count(token string) domain.ScheduledCounts {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var counts domain.ScheduledCounts
	c := x.channels[token]
	if c == nil {
		return counts
	}
	next := int64(0)
	for _, e := range c.scheduled {
		if e.DispatchedAt != 0 {
			counts.Dispatched++
			continue
		}
		counts.Pending++
		if next == 0 || e.At < next {
			next = e.At
		}
	}
	if next != 0 {
		counts.Next = time.Unix(0, next).UTC()
	}
	return counts
}
