package model

import (
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/natstest"
)

var (
	errEndOfStream   = errors.New("nothing to deliver")
	errMaxAckPending = errors.New("max ack pending reached")
)

// shortestWait is the minimum time until the delivery loop processes the waiting pulls again.
const shortestWait = time.Millisecond

// timerLateness is the delay of a timer. A real timer is never exact, and a server does not end a pull at the exact time of its expiry.
const timerLateness = time.Microsecond

// gather is one run of the delivery loop. It delivers until there are no pulls or no messages. Then it processes the waiting pulls.
func (c *Consumer) gather() {
	c.wakeAt, c.expireAt = time.Time{}, time.Time{}
	var err error
	for err == nil && len(c.waiting) > 0 && !c.paused() {
		var m message
		var count uint64
		if m, count, err = c.nextMessage(); err == nil && !c.serve(m, count) {
			break
		}
		if c.replay.pauses {
			return
		}
	}
	if c.sseq > c.replay.until {
		c.replay.on = false
	}
	// Pulls get no status for the end of the stream if only acks are missing.
	next, _ := c.processWaiting(!errors.Is(err, errMaxAckPending))
	if !next.IsZero() {
		if now := time.Now(); !next.After(now) {
			next = now.Add(shortestWait)
		}
		c.expireAt = next.Add(timerLateness)
	}
	if c.paused() {
		c.wakeAt = earlier(c.wakeAt, *c.cfg.PauseUntil)
	}
}

func (c *Consumer) paused() bool {
	return c.cfg.PauseUntil != nil && time.Now().Before(*c.cfg.PauseUntil)
}

// nextMessage returns the next message to deliver, redeliveries first, and how often it will then have been delivered.
func (c *Consumer) nextMessage() (message, uint64, error) {
	for len(c.redeliver) > 0 {
		seq := c.redeliver[0]
		c.redeliver = c.redeliver[1:]
		c.redelivered[seq]++
		count := c.redelivered[seq] + 1
		if c.cfg.MaxDeliver > 0 && count > uint64(c.cfg.MaxDeliver) {
			c.note(Event{Kind: Exceeded, Seq: seq})
			c.giveUp(seq, count)
			continue
		}
		return c.stream.messages[seq-1], count, nil
	}
	if c.cfg.MaxAckPending > 0 && c.cfg.AckPolicy != jetstream.AckNonePolicy && len(c.pending) >= c.cfg.MaxAckPending {
		return message{}, 0, errMaxAckPending
	}
	last := uint64(len(c.stream.messages))
	for c.sseq <= last {
		m := c.stream.messages[c.sseq-1]
		c.sseq++
		if c.matches(m.subject) {
			return m, 1, nil
		}
	}
	return message{}, 0, errEndOfStream
}

// serve gives a message to a waiting pull. If no pull can get it, serve puts it back and returns false.
func (c *Consumer) serve(m message, count uint64) bool {
	if count == 1 {
		c.npc--
	}
	reply := natstest.AckReply(c.stream.name, c.name, count, m.seq, c.dseq, m.stored, c.numPending())
	w := c.nextWaiting(len(m.subject) + len(reply) + len(m.header) + len(m.body))
	if w == nil {
		c.putBack(m.seq, count)
		return false
	}
	d := &delivery{
		seq: m.seq, deliverSeq: c.dseq, count: count, reply: w.reply,
		data: natstest.Data{Subject: m.subject, AckReply: reply, RawHeader: m.header, Body: m.body},
	}
	if c.cfg.PriorityPolicy == jetstream.PriorityPolicyPinned {
		d.pin, d.data.RawHeader = c.pin.id, addHeader(m.header, "Nats-Pin-Id", c.pin.id)
	}
	wanted, bytes := w.n, w.bytes
	if wanted <= 0 {
		c.proposePullEnd(w.reply)
	} else if w.heartbeat > 0 {
		w.beatAt = time.Now().Add(w.heartbeat)
	}
	c.replayed(m.stored, func() {
		c.deliver(d, m.stored)
		if wanted <= 0 && bytes > 0 {
			c.sendStatus(d.reply, 409, "Batch Completed", pendingHeaders(wanted, bytes)...)
		}
	})
	return true
}

// replay is a leader's progress with messages that it delivers at their original speed.
type replay struct {
	on     bool
	until  uint64    // the last message when the leader began
	last   time.Time // when the last delivered message was stored
	pauses bool      // a message waits, and its pull is chosen; no statuses and no other messages are sent
}

// replayed delivers a message after the time that passed between storing the previous message and this one.
func (c *Consumer) replayed(stored time.Time, deliver func()) {
	pause := stored.Sub(c.replay.last)
	if !c.replay.on || c.replay.last.IsZero() || pause <= time.Millisecond {
		c.replay.last = stored
		deliver()
		return
	}
	c.replay.pauses = true
	term := c.term
	c.model.after(pause, func() {
		if c.leads() && c.term == term {
			c.replay.pauses, c.replay.last = false, stored
			deliver()
			c.gather()
		}
	})
}

// putBack takes back a message that no pull could get.
func (c *Consumer) putBack(seq, count uint64) {
	switch {
	case count == 1 && seq == c.sseq-1:
		c.sseq--
		c.npc++
	case !c.toRedeliver(seq):
		c.countDown(seq)
		c.redeliver = append(c.redeliver, seq)
	}
}

// countDown subtracts one delivery from a message's count.
func (c *Consumer) countDown(seq uint64) {
	switch n, ok := c.redelivered[seq]; {
	case !ok:
	case n > 1:
		c.redelivered[seq] = n - 1
	default:
		delete(c.redelivered, seq)
	}
}

// delivery is a message on its way to a pull.
type delivery struct {
	seq, deliverSeq, count uint64
	reply, pin             string
	data                   natstest.Data
}

// deliver records a delivery, and sends it at once or after its quorum.
func (c *Consumer) deliver(d *delivery, stored time.Time) {
	c.dseq++
	// The recorded time is when the message was stored, not when it was
	// delivered. It is the one that counts after a change of leader.
	c.propose(proposal{kind: wasDelivered, seq: d.seq, deliverSeq: d.deliverSeq, count: d.count, at: stored})
	if c.cfg.AckPolicy == jetstream.AckNonePolicy {
		c.ackFloorDel, c.ackFloorSeq = d.deliverSeq, d.seq
	} else {
		c.trackPending(d.seq, d.deliverSeq)
	}
	if !c.replicated() {
		c.send(d)
		return
	}
	c.unsent[d.seq] = d
	if open, ok := c.openPulls[d.reply]; ok {
		open.seq = d.seq
	} else {
		c.openPulls[d.reply] = &openPull{seq: d.seq}
	}
}

// send sends a message to its pull.
func (c *Consumer) send(d *delivery) {
	e := Event{Kind: Delivered, Seq: d.seq, DeliverSeq: d.deliverSeq, Count: d.count, Reply: d.reply, Text: d.pin}
	switch {
	case c.loses():
		e.Kind = Lost
	case !c.model.peer.Deliver(d.reply, d.data):
		e.Kind = Unwanted
		term := c.term
		c.model.after(0, func() {
			if c.leads() && c.term == term {
				c.notDelivered(d)
			}
		})
	}
	c.note(e)
}

// notDelivered takes back a message that had no subscription when it was sent.
func (c *Consumer) notDelivered(d *delivery) {
	c.countDown(d.seq)
	if len(c.pending) == 0 {
		return
	}
	c.processWaiting(false)
	for _, w := range c.waiting {
		if w.reply == d.reply {
			w.n++
			w.delivered--
			break
		}
	}
	if c.pending[d.seq] != nil && !c.toRedeliver(d.seq) {
		c.redeliver = append(c.redeliver, d.seq)
		if len(c.waiting) > 0 {
			c.signal()
		}
	}
}

// addHeader adds a line to a raw header.
func addHeader(header []byte, key, value string) []byte {
	const end = "\r\n"
	line := key + ": " + value + end + end
	if len(header) <= len(end) {
		return []byte("NATS/1.0\r\n" + line)
	}
	return append(header[:len(header)-len(end):len(header)-len(end)], line...)
}
