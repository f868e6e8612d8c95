package model

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/natstest"
)

// onAck handles an ack of any kind from the peer.
func (m *Model) onAck(_ *natstest.Peer, a natstest.Ack) {
	m.do(func() {
		if c := m.acking(a); c != nil {
			c.ack(a)
		} else if a.Reply != "" {
			m.peer.NoResponders(a.Reply, a.Subject)
		}
	})
}

// acking returns the consumer that handles an ack, or nil.
func (m *Model) acking(a natstest.Ack) *Consumer {
	c := m.find(a.Stream, a.Consumer)
	if m.closed || c == nil || !c.leads() || c.cfg.AckPolicy == jetstream.AckNonePolicy {
		m.note(Event{
			Kind: Unanswered, Stream: a.Stream, Consumer: a.Consumer, Seq: a.StreamSeq, DeliverSeq: a.DeliverSeq, Reply: a.Reply,
			Text: string(a.Body),
		})
		return nil
	}
	return c
}

// ack handles an ack as the leader does.
func (c *Consumer) ack(a natstest.Ack) {
	switch {
	case len(a.Body) == 0, string(a.Body) == natstest.AckAck, string(a.Body) == natstest.AckOK:
		if !c.settle(a, Acked, a.Reply) {
			return // confirmed when the replicas agree, or never
		}
	case bytes.HasPrefix(a.Body, []byte(natstest.AckNak)):
		c.nak(a)
	case string(a.Body) == natstest.AckProgress:
		c.progress(a.StreamSeq)
	case bytes.HasPrefix(a.Body, []byte(natstest.AckTerm)):
		if !c.settle(a, Termed, a.Reply) {
			return
		}
	}
	if a.Reply != "" && a.StreamSeq != 0 {
		c.confirm(a.Reply)
	}
}

func (c *Consumer) confirm(reply string) { c.model.peer.Reply(reply, nil) }

// settle removes acked messages from the pending ones. It reports whether the ack must be confirmed now, and not after the quorum.
func (c *Consumer) settle(a natstest.Ack, kind Kind, reply string) bool {
	if a.StreamSeq >= c.sseq {
		c.note(Event{Kind: Ignored, Seq: a.StreamSeq, DeliverSeq: a.DeliverSeq, Text: "not yet delivered"})
		return false
	}
	stalled := c.cfg.MaxAckPending > 0 && len(c.pending) >= c.cfg.MaxAckPending
	deliverSeq := a.DeliverSeq
	if c.cfg.AckPolicy == jetstream.AckAllPolicy {
		if a.DeliverSeq <= c.ackFloorDel || a.StreamSeq <= c.ackFloorSeq {
			c.note(Event{Kind: Ignored, Seq: a.StreamSeq, DeliverSeq: a.DeliverSeq, Text: "acked before"})
			return true
		}
		c.settleAll(a, kind)
	} else {
		p := c.pending[a.StreamSeq]
		if p == nil {
			stalled = false
			c.note(Event{Kind: Ignored, Seq: a.StreamSeq, DeliverSeq: a.DeliverSeq, Text: "not pending"})
		} else {
			c.note(Event{Kind: kind, Seq: a.StreamSeq, DeliverSeq: a.DeliverSeq, Text: string(bytes.TrimPrefix(a.Body, []byte(natstest.AckTerm)))})
			deliverSeq = p.deliverSeq
			if deliverSeq <= c.store.ackFloorDel {
				c.givenUp[a.StreamSeq] = true // the floor was raised over it, see checkPending: the stored state keeps it, and the leader does not
			}
			delete(c.pending, a.StreamSeq)
			c.moveAckFloor(deliverSeq, a.StreamSeq)
		}
		c.forget(a.StreamSeq)
	}
	c.propose(proposal{kind: wasAcked, seq: a.StreamSeq, deliverSeq: deliverSeq, reply: reply})
	if stalled {
		c.signal()
	}
	return false
}

// settleAll settles a message and all before it. If the gap is long, only pending messages are forgotten. If it is short, all messages are, so
// that the delivery counts of messages that were given up are lost too.
func (c *Consumer) settleAll(a natstest.Ack, kind Kind) {
	gap := a.StreamSeq - c.ackFloorSeq
	c.ackFloorDel, c.ackFloorSeq = a.DeliverSeq, a.StreamSeq
	short := gap <= uint64(len(c.pending))
	for _, seq := range sortedKeys(c.pending) {
		if seq <= a.StreamSeq && (!short || seq > a.StreamSeq-gap) {
			c.note(Event{Kind: kind, Seq: seq})
			delete(c.pending, seq)
			delete(c.redelivered, seq)
			c.unqueue(seq)
		}
	}
	if !short {
		return
	}
	for seq := a.StreamSeq; seq > a.StreamSeq-gap && len(c.pending) > 0; seq-- {
		delete(c.redelivered, seq)
		c.unqueue(seq)
	}
}

// forget drops the leader's state of a message.
func (c *Consumer) forget(seq uint64) {
	delete(c.pending, seq)
	delete(c.redelivered, seq)
	c.unqueue(seq)
}

// moveAckFloor advances the floor over contiguous acked messages.
func (c *Consumer) moveAckFloor(deliverSeq, seq uint64) {
	if len(c.pending) == 0 {
		c.ackFloorDel, c.ackFloorSeq = c.dseq-1, c.sseq-1
		return
	}
	if deliverSeq != c.ackFloorDel+1 {
		return
	}
	c.ackFloorDel, c.ackFloorSeq = deliverSeq, seq
	for s := seq + 1; s < c.sseq; s++ {
		if p := c.pending[s]; p != nil {
			if p.deliverSeq > 0 {
				c.ackFloorDel, c.ackFloorSeq = p.deliverSeq-1, s-1
			}
			return
		}
	}
}

// nak schedules the redelivery of a message.
func (c *Consumer) nak(a natstest.Ack) {
	p := c.pending[a.StreamSeq]
	if a.DeliverSeq <= c.ackFloorDel || a.DeliverSeq > c.dseq || p == nil {
		c.note(Event{Kind: Ignored, Seq: a.StreamSeq, DeliverSeq: a.DeliverSeq, Text: "nak of what is not pending"})
		return
	}
	if delay, ok := nakDelay(a.Body); ok {
		wait := delay + c.ackDeadline(c.redelivered[a.StreamSeq]) - c.cfg.AckWait
		c.note(Event{Kind: Naked, Seq: a.StreamSeq, DeliverSeq: a.DeliverSeq, Wait: wait})
		c.unqueue(a.StreamSeq)
		// Set the time of delivery so that the ack wait ends after the delay.
		p.since = time.Now().Add(delay - c.cfg.AckWait)
		c.propose(proposal{kind: wasDelivered, seq: a.StreamSeq, deliverSeq: p.deliverSeq, count: a.Delivered, at: p.since})
		c.ackAt = time.Now().Add(nakCheck)
		return
	}
	c.note(Event{Kind: Naked, Seq: a.StreamSeq, DeliverSeq: a.DeliverSeq})
	if !c.toRedeliver(a.StreamSeq) {
		c.redeliver = append(c.redeliver, a.StreamSeq)
	}
	c.signal()
}

// nakDelay parses the delay of a nak, which may be a duration or JSON. An invalid delay is ignored.
func nakDelay(body []byte) (time.Duration, bool) {
	arg := bytes.TrimSpace(bytes.TrimPrefix(body, []byte(natstest.AckNak)))
	if len(arg) == 0 {
		return 0, false
	}
	if arg[0] == '{' {
		var opts natstest.NakOptions
		err := json.Unmarshal(arg, &opts)
		return opts.Delay, err == nil
	}
	delay, err := time.ParseDuration(string(arg))
	return delay, err == nil
}

// progress restarts the ack wait of a message.
func (c *Consumer) progress(seq uint64) {
	p := c.pending[seq]
	if p == nil {
		c.note(Event{Kind: Ignored, Seq: seq, Text: "in progress of what is not pending"})
		return
	}
	c.note(Event{Kind: Working, Seq: seq})
	p.since = time.Now()
	c.propose(proposal{kind: wasDelivered, seq: seq, deliverSeq: p.deliverSeq, count: 1, at: p.since})
}

func sortedKeys[V any](m map[uint64]V) []uint64 {
	keys := make([]uint64, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
