package model

import (
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// flushEvery is the interval at which a server writes the state of a consumer without replicas.
const flushEvery = 100 * time.Millisecond

// replication is the state of a consumer that outlives its leader, and the changes that wait for a quorum.
type replication struct {
	store   *store
	flushed *store // the state after a crash of a consumer without replicas
	flushAt time.Time

	log        []proposal // changes that are not yet agreed on, in order
	lastAgreed time.Time  // when the last of them will be agreed on
	unsent     map[uint64]*delivery
	openPulls  map[string]*openPull // by reply
	confirms   map[uint64]string    // replies of acks, by stream sequence
	announced  map[string]bool      // pulls that the followers know
}

// openPull is a pull with messages that wait for their quorum. n and bytes are set when the pull has ended and its 408 waits for these
// messages.
type openPull struct {
	seq      uint64 // the last of the messages
	n, bytes int
}

type proposalKind int

const (
	wasDelivered proposalKind = iota
	wasAcked
	pullBegan
	pullEnded
)

// proposal is a change for all replicas.
type proposal struct {
	kind                   proposalKind
	seq, deliverSeq, count uint64
	at                     time.Time
	reply                  string
}

// propose applies a change, at once or when the replicas agree.
func (c *Consumer) propose(p proposal) {
	if c.model.cfg.Replicas == 1 {
		c.store.apply(p, c.cfg)
		c.planFlush()
		if p.kind == wasAcked && p.reply != "" {
			c.confirm(p.reply)
		}
		return
	}
	if p.kind == wasAcked && p.reply != "" {
		c.confirms[p.seq] = p.reply
	}
	c.log = append(c.log, p)
	agreed := time.Now().Add(c.model.cfg.Quorum.draw(c.model.rng))
	if agreed.Before(c.lastAgreed) {
		agreed = c.lastAgreed
	}
	c.lastAgreed = agreed
	term := c.term
	c.model.at(agreed, func() {
		if c.leads() && c.term == term {
			c.agree()
		}
	})
}

func (c *Consumer) proposePull(reply string) {
	if c.model.cfg.Replicas > 1 {
		c.propose(proposal{kind: pullBegan, reply: reply})
	}
}

func (c *Consumer) proposePullEnd(reply string) {
	if c.model.cfg.Replicas > 1 {
		c.propose(proposal{kind: pullEnded, reply: reply})
	}
}

// agree applies the first waiting change, and sends what waited for it.
func (c *Consumer) agree() {
	p := c.log[0]
	c.log = c.log[1:]
	c.applyReplicated(p)
	switch p.kind {
	case wasDelivered:
		if d := c.unsent[p.seq]; d != nil {
			delete(c.unsent, p.seq)
			c.send(d)
			c.closePull(d)
		}
	case wasAcked:
		if reply := c.confirms[p.seq]; reply != "" {
			delete(c.confirms, p.seq)
			c.confirm(reply)
		}
	case pullBegan, pullEnded:
	}
}

// closePull sends the 408 that waited for the last message of a pull.
func (c *Consumer) closePull(d *delivery) {
	open := c.openPulls[d.reply]
	if open == nil || open.seq != d.seq {
		return
	}
	delete(c.openPulls, d.reply)
	if open.n > 0 || open.bytes > 0 {
		c.sendStatus(d.reply, 408, "Request Timeout", pendingHeaders(open.n, open.bytes)...)
	}
}

// applyReplicated applies a change to the state of all replicas.
func (c *Consumer) applyReplicated(p proposal) {
	switch p.kind {
	case wasDelivered, wasAcked:
		c.store.apply(p, c.cfg)
	case pullBegan:
		c.announced[p.reply] = true
	case pullEnded:
		delete(c.announced, p.reply)
	}
}

// planFlush schedules writing the state: at once, or flushEvery after the last time.
func (c *Consumer) planFlush() {
	now := time.Now()
	if c.flushAt.After(now) {
		return // planned already
	}
	c.flushAt = c.flushAt.Add(flushEvery)
	if c.flushAt.Before(now) {
		c.flushAt = now
	}
	term := c.term
	c.model.at(c.flushAt, func() {
		if c.leads() && c.term == term {
			c.flushed = c.store.clone()
		}
	})
}

// store is a consumer's stored state.
type store struct {
	deliveredSeq, deliveredDel uint64
	ackFloorSeq, ackFloorDel   uint64
	pending                    map[uint64]pendingAck
	redelivered                map[uint64]uint64
}

// newStore returns the state before the first delivery.
func newStore(first uint64) *store {
	return &store{
		deliveredSeq: first - 1,
		ackFloorSeq:  first - 1,
		pending:      map[uint64]pendingAck{},
		redelivered:  map[uint64]uint64{},
	}
}

func (s *store) clone() *store {
	copied := *s
	copied.pending, copied.redelivered = maps.Clone(s.pending), maps.Clone(s.redelivered)
	return &copied
}

func (s *store) apply(p proposal, cfg jetstream.ConsumerConfig) {
	switch {
	case p.kind == wasAcked:
		s.ack(p, cfg)
	case p.deliverSeq <= s.ackFloorDel:
		// The delivery is not above the ack floor. A new leader may get such old deliveries.
	case cfg.AckPolicy == jetstream.AckNonePolicy:
		s.deliveredDel, s.deliveredSeq = max(s.deliveredDel, p.deliverSeq), max(s.deliveredSeq, p.seq)
		s.ackFloorDel, s.ackFloorSeq = s.deliveredDel, s.deliveredSeq
	default:
		s.deliver(p, cfg)
	}
}

func (s *store) deliver(p proposal, cfg jetstream.ConsumerConfig) {
	if p.seq > s.deliveredSeq {
		s.pending[p.seq] = pendingAck{deliverSeq: p.deliverSeq, since: p.at}
	} else if before, ok := s.pending[p.seq]; ok {
		s.pending[p.seq] = pendingAck{deliverSeq: before.deliverSeq, since: p.at}
	}
	s.deliveredDel, s.deliveredSeq = max(s.deliveredDel, p.deliverSeq), max(s.deliveredSeq, p.seq)
	if p.count > 1 {
		if cfg.MaxDeliver > 0 && p.count > uint64(cfg.MaxDeliver) {
			delete(s.pending, p.seq)
		}
		s.redelivered[p.seq] = max(s.redelivered[p.seq], p.count-1)
	}
}

func (s *store) ack(p proposal, cfg jetstream.ConsumerConfig) {
	delete(s.redelivered, p.seq)
	before, ok := s.pending[p.seq]
	if p.deliverSeq <= s.ackFloorDel || !ok {
		return
	}
	if cfg.AckPolicy == jetstream.AckAllPolicy {
		for seq := range s.pending {
			if seq <= p.seq {
				delete(s.pending, seq)
				delete(s.redelivered, seq)
			}
		}
		s.ackFloorDel, s.ackFloorSeq = p.deliverSeq, p.seq
		return
	}
	delete(s.pending, p.seq)
	deliverSeq := p.deliverSeq
	if before.deliverSeq > 0 {
		deliverSeq = min(deliverSeq, before.deliverSeq)
	}
	switch {
	case len(s.pending) == 0:
		s.ackFloorDel, s.ackFloorSeq = s.deliveredDel, s.deliveredSeq
	case deliverSeq == s.ackFloorDel+1:
		s.ackFloorDel, s.ackFloorSeq = deliverSeq, p.seq
		for seq := p.seq + 1; seq <= s.deliveredSeq && s.deliveredDel > deliverSeq; seq++ {
			if next, ok := s.pending[seq]; ok {
				s.ackFloorDel, s.ackFloorSeq = next.deliverSeq-1, seq-1
				break
			}
		}
	}
}
