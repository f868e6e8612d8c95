package model

import (
	"maps"
	"slices"
	"time"
)

const (
	// ackWaitSlack is by how much the server lets an ack wait run over, so
	// that messages of one burst are handled together.
	ackWaitSlack = time.Millisecond
	// nakCheck is how soon after a delayed nak the ack waits are looked at.
	nakCheck = 10 * time.Millisecond
)

// toRedeliver says whether a message is queued for redelivery.
func (c *Consumer) toRedeliver(seq uint64) bool { return slices.Contains(c.redeliver, seq) }

// Queued is how many messages are queued for redelivery.
func (c *Consumer) Queued() int {
	c.model.mu.Lock()
	defer c.model.mu.Unlock()
	return len(c.redeliver)
}

// unqueue takes a message out of the redelivery queue.
func (c *Consumer) unqueue(seq uint64) {
	c.redeliver = slices.DeleteFunc(c.redeliver, func(s uint64) bool { return s == seq })
}

// ackDeadline is how long a message may stay without an ack, by how often it
// was redelivered.
func (c *Consumer) ackDeadline(redelivered uint64) time.Duration {
	if n := len(c.cfg.BackOff); n > 0 {
		return c.cfg.BackOff[min(int(redelivered), n-1)]
	}
	return c.cfg.AckWait
}

// trackPending notes a delivery that is to be acked.
func (c *Consumer) trackPending(seq, deliverSeq uint64) {
	now := time.Now()
	if p := c.pending[seq]; p != nil {
		p.since = now // the first delivery's sequence stays
	} else {
		c.pending[seq] = &pendingAck{deliverSeq: deliverSeq, since: now}
	}
	deadline := now.Add(c.ackDeadline(c.redelivered[seq]) + ackWaitSlack)
	if c.ackAt.IsZero() || c.ackAt.After(deadline) {
		c.ackAt = deadline
	}
}

// checkPending queues for redelivery what was not acked in time.
func (c *Consumer) checkPending() {
	if c.ackAt.IsZero() || c.cfg.AckWait == 0 {
		c.ackAt = time.Time{}
		return
	}
	now := time.Now()
	next := c.cfg.AckWait + ackWaitSlack
	if n := len(c.cfg.BackOff); n > 0 {
		next = c.cfg.BackOff[n-1]
	}
	var overdue []uint64
	forgot := false
	for _, seq := range sortedKeys(c.pending) {
		p := c.pending[seq]
		if seq <= c.ackFloorSeq {
			// A message that waited for its time, by replay at original speed, while all before it were acked: the floor is above it.
			c.forget(seq)
			c.ackFloorDel = max(c.ackFloorDel, p.deliverSeq)
			c.givenUp[seq], forgot = true, true
			continue
		}
		elapsed, deadline := now.Sub(p.since), c.ackDeadline(c.redelivered[seq])
		if len(c.cfg.BackOff) > 0 {
			next = min(next, c.ackDeadline(c.redelivered[seq]+1))
		}
		if elapsed < deadline {
			next = min(next, deadline-elapsed)
		} else if !c.toRedeliver(seq) && !c.reachedMaxDeliver(seq) {
			overdue = append(overdue, seq)
		}
	}
	if forgot && c.model.cfg.Replicas == 1 {
		c.store.ackFloorDel, c.store.ackFloorSeq = c.ackFloorDel, c.ackFloorSeq
		maps.DeleteFunc(c.store.pending, func(seq uint64, _ pendingAck) bool { return seq <= c.ackFloorSeq })
	}
	c.queueOverdue(overdue, now)
	if len(c.pending) == 0 {
		c.ackAt, c.redeliver = time.Time{}, nil
		c.ackFloorDel, c.ackFloorSeq = c.dseq-1, c.sseq-1
		return
	}
	c.ackAt = now.Add(next)
}

// queueOverdue queues messages and shifts their times to now, keeping the
// distances between them, so that they are not found overdue again.
func (c *Consumer) queueOverdue(overdue []uint64, now time.Time) {
	if len(overdue) == 0 {
		return
	}
	shift := now.Sub(c.pending[overdue[0]].since)
	for _, seq := range overdue {
		c.note(Event{Kind: Overdue, Seq: seq})
		p := c.pending[seq]
		p.since = p.since.Add(shift)
	}
	c.redeliver = append(c.redeliver, overdue...)
	c.signal()
}

// reachedMaxDeliver gives up a message that was delivered as often as it may
// be.
func (c *Consumer) reachedMaxDeliver(seq uint64) bool {
	if c.cfg.MaxDeliver <= 0 {
		return false
	}
	count := max(1, c.redelivered[seq])
	if count < uint64(c.cfg.MaxDeliver) {
		return false
	}
	c.note(Event{Kind: Exceeded, Seq: seq})
	if c.cfg.MaxAckPending > 0 && len(c.pending) >= c.cfg.MaxAckPending {
		c.signal()
	}
	c.giveUp(seq, count+1)
	c.redelivered[seq] = count
	return true
}

// giveUp takes a message off the pending ones without an ack.
func (c *Consumer) giveUp(seq, count uint64) {
	p := c.pending[seq]
	if p == nil {
		return
	}
	delete(c.pending, seq)
	c.givenUp[seq] = true
	c.propose(proposal{kind: wasDelivered, seq: seq, deliverSeq: p.deliverSeq, count: count, at: p.since})
	c.moveAckFloor(p.deliverSeq, seq)
}
