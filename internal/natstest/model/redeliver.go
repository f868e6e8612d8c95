package model

import (
	"maps"
	"slices"
	"time"
)

const (
	// ackWaitSlack is how much longer the server waits for an ack, so that
	// it handles the messages of a burst together.
	ackWaitSlack = time.Millisecond
	// nakCheck is the time from a delayed nak to the next check of ack waits.
	nakCheck = 10 * time.Millisecond
)

// toRedeliver reports whether a message is queued for redelivery.
func (c *Consumer) toRedeliver(seq uint64) bool { return slices.Contains(c.redeliver, seq) }

// Queued returns the number of messages that are queued for redelivery.
func (c *Consumer) Queued() int {
	c.model.mu.Lock()
	defer c.model.mu.Unlock()
	return len(c.redeliver)
}

// unqueue removes a message from the redelivery queue.
func (c *Consumer) unqueue(seq uint64) {
	c.redeliver = slices.DeleteFunc(c.redeliver, func(s uint64) bool { return s == seq })
}

// ackDeadline returns the ack wait of a message, which may depend on the number of redeliveries.
func (c *Consumer) ackDeadline(redelivered uint64) time.Duration {
	if n := len(c.cfg.BackOff); n > 0 {
		return c.cfg.BackOff[min(int(redelivered), n-1)]
	}
	return c.cfg.AckWait
}

// trackPending records a delivery that must be acked.
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

// checkPending queues messages for redelivery that were not acked in time.
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
			// The message waited for its time in a replay at original speed, while all before it were acked, so the floor is above it.
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

// queueOverdue queues messages, and shifts their times to now, with the same distances, so that they do not count as overdue again.
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

// reachedMaxDeliver gives up a message that was delivered as often as allowed. It reports whether that is so.
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

// giveUp removes a message from the pending ones without an ack.
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
