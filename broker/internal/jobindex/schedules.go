package jobindex

import (
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// scheduled is an entry in lists of scheduled messages. It refers to the schedule, and after the broadcast to the message.
type scheduled struct {
	seq     uint64
	at      int64  // when to broadcast it, in ns; 0 after the broadcast
	subject string // of the pending schedule
}

func (s scheduled) less(o scheduled) bool { return s.seq < o.seq }

func (s scheduled) status() domain.MessageStatus {
	if s.at == 0 {
		return domain.Dispatched
	}
	return domain.Pending
}

// AddSchedule adds a stored schedule to the index.
func (x *Index) AddSchedule(token, subject string, seq uint64, at time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.channel(token)
	// A subject has one schedule at a time. The old one was cancelled, and the notice of that was lost.
	if old, waits := c.waiting[subject]; waits && old < seq {
		c.scheduled.remove(scheduled{seq: old})
	}
	c.waiting[subject] = seq
	c.scheduled.insert(scheduled{seq: seq, at: max(1, at.UnixNano()), subject: subject})
}

// Fired records that the server has broadcast the schedule of a subject.
func (x *Index) Fired(token, subject string, seq uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.channel(token)
	if old, waits := c.waiting[subject]; waits && old < seq {
		c.unschedule(old)
	}
	c.scheduled.insert(scheduled{seq: seq})
}

// unschedule removes a schedule, or the entry of a broadcast one. Index.mu is held.
func (c *channelIndex) unschedule(seq uint64) {
	s, ok := c.scheduled.get(scheduled{seq: seq})
	if !ok {
		return
	}
	c.scheduled.remove(s)
	if c.waiting[s.subject] == seq {
		delete(c.waiting, s.subject)
	}
}

// Waiting returns the sequence of a subject's pending schedule that this node knows, or 0.
func (x *Index) Waiting(token, subject string) uint64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.at(token).waiting[subject]
}

// ScheduledSeqs returns the sequences on a page of a channel's scheduled messages in a status. Status 0 means any.
func (x *Index) ScheduledSeqs(channel string, status domain.MessageStatus, page domain.Page) (seqs []uint64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	c := x.at(domain.SubjectToken(channel))
	at := func(p domain.Position) scheduled { return scheduled{seq: p.Seq} }
	for _, s := range pageOf(&c.scheduled, page, at, func(s scheduled) bool { return status == 0 || s.status() == status }) {
		seqs = append(seqs, s.seq)
	}
	return seqs
}

// CountScheduled counts the scheduled messages of a channel.
func (x *Index) CountScheduled(channel string) (counts domain.ScheduledCounts) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	next := int64(0)
	for s := range x.at(domain.SubjectToken(channel)).scheduled.ascend(nil) {
		if s.at == 0 {
			counts.Dispatched++
			continue
		}
		counts.Pending++
		if next == 0 || s.at < next {
			next = s.at
		}
	}
	counts.Next = FromUnixNano(next)
	return counts
}
