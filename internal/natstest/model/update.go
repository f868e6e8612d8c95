package model

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ackWaitCheck is how soon after a change of AckWait the ack waits are looked
// at.
const ackWaitCheck = 100 * time.Millisecond

// Update changes the consumer's configuration as an administrator would. Changes
// that a server refuses are refused, and so is a change of filters, which is not
// modelled.
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
	})
}

// unchangeable is what of a configuration differs that stays as it was made.
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
	case cfg.FilterSubject != before.FilterSubject, len(cfg.FilterSubjects) != len(before.FilterSubjects):
		return "a filter"
	}
	return ""
}

// DropPulls makes the leader forget the pulls that wait, without a word, as a
// crash does.
func (c *Consumer) DropPulls() {
	c.model.do(func() {
		for _, w := range c.waiting {
			c.proposePullEnd(w.reply)
		}
		c.waiting = nil
	})
}

// EndPulls ends the pulls that wait with a status.
func (c *Consumer) EndPulls(code int, text string) {
	c.model.do(func() {
		for _, w := range c.waiting {
			c.sendStatus(w.reply, code, text, w.pending()...)
			c.proposePullEnd(w.reply)
		}
		c.waiting = nil
	})
}
