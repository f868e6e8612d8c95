package model

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// shutdownPause is how long a server waits during a shutdown for its last messages to be sent.
const shutdownPause = 50 * time.Millisecond

// lead gives the consumer a leader. It knows the replicated state, but not the waiting pulls.
func (c *Consumer) lead() {
	if c.deleted || c.leader || c.model.down {
		return
	}
	c.leader = true
	c.term++
	c.note(Event{Kind: LeaderNew})
	c.resetVolatile()
	c.replay = replay{on: c.cfg.ReplayPolicy == jetstream.ReplayOriginalPolicy, until: uint64(len(c.stream.messages))}
	c.sseq, c.dseq = c.store.deliveredSeq+1, c.store.deliveredDel+1
	c.ackFloorSeq, c.ackFloorDel = c.store.ackFloorSeq, c.store.ackFloorDel
	for seq, p := range c.store.pending {
		c.pending[seq] = &pendingAck{deliverSeq: p.deliverSeq, since: p.since}
	}
	for seq, n := range c.store.redelivered {
		c.redelivered[seq] = n
	}
	c.countPending()
	if len(c.pending) > 0 {
		look := Delay{500 * time.Millisecond, 1500 * time.Millisecond}.draw(c.model.rng)
		if c.cfg.AckWait < look {
			look = c.cfg.AckWait + ackWaitSlack
		}
		c.ackAt = time.Now().Add(look)
	}
	c.checkPending()
	for _, reply := range sortedReplies(c.announced) {
		c.sendStatus(reply, 409, "Leadership Change")
	}
	c.announced = map[string]bool{}
	c.signal()
}

// countPending counts the messages that were never delivered.
func (c *Consumer) countPending() {
	c.npc = 0
	for _, m := range c.stream.messages[min(int(c.sseq-1), len(c.stream.messages)):] {
		if c.matches(m.subject) {
			c.npc++
		}
	}
}

// resetVolatile clears the state that only a leader has.
func (c *Consumer) resetVolatile() {
	c.pending, c.redelivered, c.redeliver = map[uint64]*pendingAck{}, map[uint64]uint64{}, nil
	c.givenUp = map[uint64]bool{}
	c.npc, c.waiting = 0, nil
	c.wakeAt, c.expireAt, c.ackAt = time.Time{}, time.Time{}, time.Time{}
	c.clearPin()
	c.log, c.lastAgreed = nil, time.Time{}
	c.unsent, c.openPulls, c.confirms = map[uint64]*delivery{}, map[string]*openPull{}, map[uint64]string{}
	c.flushAt = time.Time{}
	if c.announced == nil {
		c.announced = map[string]bool{}
	}
}

// stopLeading removes the leader. The first few of the changes that are not yet agreed on may have reached a
// replica. These survive, but nothing is sent for them.
func (c *Consumer) stopLeading() {
	if !c.leads() {
		return
	}
	survivors := c.model.rng.IntN(len(c.log) + 1)
	for _, p := range c.log[:survivors] {
		c.applyReplicated(p)
	}
	c.leader = false
	c.resetVolatile()
	c.note(Event{Kind: LeaderLost})
}

// StepDown moves the consumer to another leader, which starts after the configured Outage. Waiting pulls
// get a 409. With one replica, StepDown does nothing.
func (c *Consumer) StepDown() { c.model.do(c.stepDown) }

func (c *Consumer) stepDown() {
	if c.model.cfg.Replicas == 1 || !c.leads() {
		return
	}
	c.stopLeading()
	c.model.after(c.model.cfg.Outage.draw(c.model.rng), c.lead)
}

// Delete deletes the consumer. Waiting pulls get a 409.
func (c *Consumer) Delete() {
	c.model.do(func() {
		if c.deleted {
			return
		}
		for _, w := range c.waiting {
			c.sendStatus(w.reply, 409, "Consumer Deleted")
		}
		c.deleted = true
		c.resetVolatile()
		delete(c.stream.consumers, c.name)
		c.note(Event{Kind: Deleted})
	})
}

// Pause stops deliveries until a time. Pulls continue to wait.
func (c *Consumer) Pause(until time.Time) {
	c.model.do(func() {
		c.cfg.PauseUntil = &until
		c.signal()
	})
}

// Config returns the consumer's configuration with its defaults.
func (c *Consumer) Config() jetstream.ConsumerConfig {
	c.model.mu.Lock()
	defer c.model.mu.Unlock()
	return c.cfg
}

// Shutdown stops the server gracefully. Waiting pulls get a 409. A moment later, clients are disconnected unless
// they are on another server. With replicas, another server takes over at once: consumers change their leaders,
// and clients may reconnect.
func (m *Model) Shutdown() {
	m.do(func() {
		if m.down {
			return
		}
		if m.cfg.Replicas > 1 {
			m.failOver()
			return
		}
		for _, c := range m.consumers() {
			c.announceShutdown()
		}
		m.after(shutdownPause, func() { m.stop(false) })
	})
}

// announceShutdown sends a status to waiting pulls. The server identifies them by their
// replies, so only the last of several pulls with one reply gets a status.
func (c *Consumer) announceShutdown() {
	last := map[string]*waitingPull{}
	for _, w := range c.waiting {
		last[w.reply] = w
	}
	for _, w := range c.waiting {
		if last[w.reply] == w {
			c.sendStatus(w.reply, 409, "Server Shutdown", w.pending()...)
		}
	}
}

// Crash stops the server without any message. Without replicas, the unwritten state of consumers is lost: deliveries and acks of the last
// 100 ms. With replicas, Crash is like Shutdown.
func (m *Model) Crash() {
	m.do(func() {
		switch {
		case m.down:
		case m.cfg.Replicas > 1:
			m.failOver()
		default:
			m.stop(true)
		}
	})
}

// failOver moves everything to other servers.
func (m *Model) failOver() {
	m.note(Event{Kind: ServerDown})
	for _, c := range m.consumers() {
		c.stepDown()
	}
	if !m.cfg.Remote {
		m.peer.Cut()
	}
	m.note(Event{Kind: ServerUp})
}

// stop stops the only server.
func (m *Model) stop(crashed bool) {
	if m.down {
		return
	}
	m.note(Event{Kind: ServerDown})
	for _, c := range m.consumers() {
		c.stopLeading()
		if crashed {
			c.store = c.flushed.clone()
		} else {
			c.flushed = c.store.clone()
		}
	}
	m.down = true
	if !m.cfg.Remote {
		m.peer.Refuse(true)
		m.peer.Cut()
	}
}

// Start starts the server again after a Shutdown or Crash.
func (m *Model) Start() {
	m.do(func() {
		if !m.down {
			return
		}
		m.down = false
		m.note(Event{Kind: ServerUp})
		for _, c := range m.consumers() {
			c.lead()
		}
		m.peer.Refuse(false)
	})
}

// Down reports whether the server is stopped.
func (m *Model) Down() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.down
}
