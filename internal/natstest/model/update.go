package model

import (
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ackWaitCheck is the time from a change of AckWait to the next check of ack waits.
const ackWaitCheck = 100 * time.Millisecond

// Update changes the consumer's configuration as an administrator would. It refuses changes that a server refuses.
func (c *Consumer) Update(change func(*jetstream.ConsumerConfig)) {
	c.model.tb.Helper()
	c.model.do(func() {
		before, cfg := c.cfg, c.cfg
		change(&cfg)
		SetDefaults(&cfg)
		if why := unchangeable(before, cfg); why != "" {
			c.model.tb.Errorf("model: consumer %s: %s cannot be updated", c.name, why)
			return
		}
		c.cfg = cfg
		c.note(Event{Kind: Updated})
		if cfg.MaxAckPending != before.MaxAckPending {
			c.signal()
		}
		if cfg.AckWait != before.AckWait && !c.ackAt.IsZero() {
			c.ackAt = time.Now().Add(ackWaitCheck)
		}
		if cfg.PauseUntil != before.PauseUntil {
			c.signal()
		}
		if cfg.FilterSubject != before.FilterSubject || !slices.Equal(cfg.FilterSubjects, before.FilterSubjects) {
			c.countPending()
			c.signal()
		}
	})
}

// Reset makes the consumer deliver again from a sequence, as an administrator can. 0 means the first after the ack floor. It drops deliveries
// that wait for a quorum.
func (c *Consumer) Reset(seq uint64) {
	c.model.do(func() {
		if !c.leads() {
			return // no response
		}
		if seq == 0 {
			seq = c.ackFloorSeq + 1
		}
		c.note(Event{Kind: Reset, Text: fmt.Sprintf("to %d", seq)})
		for i := range c.log {
			c.log[i] = proposal{kind: pullEnded}
		}
		c.unsent, c.openPulls = map[uint64]*delivery{}, map[string]*openPull{}
		c.pending, c.redelivered, c.redeliver = map[uint64]*pendingAck{}, map[uint64]uint64{}, nil
		c.givenUp = map[uint64]bool{}
		c.store = newStore(seq)
		c.sseq, c.dseq, c.ackFloorSeq, c.ackFloorDel = seq, 1, seq-1, 0
		c.countPending()
		c.planFlush()
		c.signal()
	})
}

// unchangeable returns the name of a changed field that cannot be changed, or "".
func unchangeable(before, cfg jetstream.ConsumerConfig) string {
	switch {
	case cfg.Name != before.Name:
		return "Name"
	case cfg.AckPolicy != before.AckPolicy:
		return "AckPolicy"
	case cfg.DeliverPolicy != before.DeliverPolicy, cfg.OptStartSeq != before.OptStartSeq:
		return "DeliverPolicy"
	case cfg.MaxWaiting != before.MaxWaiting:
		return "MaxWaiting"
	}
	return ""
}

// DropPulls makes the leader forget the waiting pulls without a status, as a crash does.
func (c *Consumer) DropPulls() {
	c.model.do(func() {
		for _, w := range c.waiting {
			c.proposePullEnd(w.reply)
		}
		c.waiting = nil
	})
}

// EndPulls ends the waiting pulls with a status.
func (c *Consumer) EndPulls(code int, text string) {
	c.model.do(func() {
		for _, w := range c.waiting {
			c.sendStatus(w.reply, code, text, w.pending()...)
			c.proposePullEnd(w.reply)
		}
		c.waiting = nil
	})
}
