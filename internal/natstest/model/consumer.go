package model

import (
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/natstest"
)

// Consumer is a pull consumer of the model. The model's mutex guards it.
type Consumer struct {
	model   *Model
	stream  *stream
	name    string
	cfg     jetstream.ConsumerConfig
	created int
	born    time.Time

	deleted bool
	leader  bool
	term    int // counts leaders; jobs that were scheduled in another term are void

	// The leader's state. sseq and dseq are the next sequences.
	sseq, dseq               uint64
	ackFloorSeq, ackFloorDel uint64
	pending                  map[uint64]*pendingAck // by stream sequence
	redelivered              map[uint64]uint64      // deliveries after the first
	redeliver                []uint64               // due for redelivery, in order
	givenUp                  map[uint64]bool        // pending in the stored state at most; see Unsettled
	npc                      int64                  // messages that were never delivered
	waiting                  []*waitingPull
	lastScan                 time.Time // of the waiting queue
	pin                      pin
	replay                   replay

	// When the leader has work again. Zero means never.
	wakeAt   time.Time // there is work
	expireAt time.Time // a waiting pull expires or wants a heartbeat
	ackAt    time.Time // a message's ack wait ends

	replication
}

// pendingAck is a delivered message that is not acked.
type pendingAck struct {
	deliverSeq uint64
	since      time.Time
}

// State holds a consumer's counters, as its info shows them.
type State struct {
	Delivered      jetstream.SequenceInfo
	AckFloor       jetstream.SequenceInfo
	NumPending     uint64
	NumAckPending  int
	NumRedelivered int
	NumWaiting     int
}

// AddConsumer creates a pull consumer of a stream. It fails the test if the model does not support the configuration.
func (m *Model) AddConsumer(stream string, cfg jetstream.ConsumerConfig) *Consumer {
	m.tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.streams[stream]
	if s == nil {
		m.tb.Fatalf("model: no stream %s", stream)
	}
	if cfg.Name == "" {
		cfg.Name = cfg.Durable
	}
	if err := refuse(cfg); err != nil {
		m.tb.Fatalf("model: consumer %s: %v", cfg.Name, err)
	}
	if s.consumers[cfg.Name] != nil {
		m.tb.Fatalf("model: consumer %s of stream %s is there already", cfg.Name, stream)
	}
	SetDefaults(&cfg)
	m.jobSeq++
	c := &Consumer{model: m, stream: s, name: cfg.Name, cfg: cfg, created: m.jobSeq, born: time.Now()}
	first := uint64(1)
	switch cfg.DeliverPolicy {
	case jetstream.DeliverNewPolicy:
		first = uint64(len(s.messages)) + 1
	case jetstream.DeliverByStartSequencePolicy:
		first = cfg.OptStartSeq
	}
	c.store = newStore(first)
	c.flushed = c.store.clone()
	s.consumers[c.name] = c
	c.note(Event{Kind: Created})
	if !m.down {
		c.lead()
	}
	return c
}

// refuse returns an error if the model does not support a configuration.
func refuse(cfg jetstream.ConsumerConfig) error {
	switch {
	case cfg.Name == "":
		return fmt.Errorf("no name, set Name or Durable")
	case cfg.DeliverSubject != "":
		return fmt.Errorf("push consumers are not modelled, leave DeliverSubject empty")
	case cfg.HeadersOnly:
		return fmt.Errorf("HeadersOnly is not modelled")
	case cfg.RateLimit != 0:
		return fmt.Errorf("RateLimit is not modelled")
	case cfg.InactiveThreshold != 0:
		return fmt.Errorf("InactiveThreshold is not modelled")
	}
	modelled := []jetstream.DeliverPolicy{
		jetstream.DeliverAllPolicy, jetstream.DeliverNewPolicy, jetstream.DeliverByStartSequencePolicy,
	}
	if !slices.Contains(modelled, cfg.DeliverPolicy) {
		return fmt.Errorf("deliver policy %s is not modelled", cfg.DeliverPolicy)
	}
	return nil
}

// SetDefaults sets the defaults that a server would set.
func SetDefaults(cfg *jetstream.ConsumerConfig) {
	if cfg.MaxDeliver == 0 || cfg.MaxDeliver < -1 {
		cfg.MaxDeliver = -1
	}
	if cfg.MaxWaiting <= 0 {
		cfg.MaxWaiting = natstest.DefaultMaxWaiting
	}
	if cfg.AckPolicy != jetstream.AckNonePolicy {
		if cfg.AckWait == 0 {
			cfg.AckWait = natstest.DefaultAckWait
		}
		if cfg.MaxAckPending == 0 {
			cfg.MaxAckPending = natstest.DefaultMaxAckPending
		}
	}
	if len(cfg.BackOff) > 0 {
		cfg.AckWait = cfg.BackOff[0]
	}
	if cfg.PriorityPolicy == jetstream.PriorityPolicyPinned && cfg.PinnedTTL == 0 {
		cfg.PinnedTTL = natstest.DefaultPinnedTTL
	}
}

// State returns the consumer's current counters. Like a server, the model processes the waiting pulls for that.
func (c *Consumer) State() State {
	var state State
	c.model.do(func() { state = c.state() })
	return state
}

func (c *Consumer) state() State {
	c.processWaiting(false)
	state := State{
		Delivered:      jetstream.SequenceInfo{Consumer: c.store.deliveredDel, Stream: c.store.deliveredSeq},
		AckFloor:       jetstream.SequenceInfo{Consumer: c.store.ackFloorDel, Stream: c.store.ackFloorSeq},
		NumPending:     c.numPending(),
		NumAckPending:  len(c.pending),
		NumRedelivered: len(c.redelivered),
		NumWaiting:     len(c.waiting),
	}
	if c.cfg.MaxDeliver == 1 {
		state.NumRedelivered = 0
	}
	return state
}

// leads reports whether the consumer has a leader.
func (c *Consumer) leads() bool { return c.leader && !c.deleted }

// replicated reports whether deliveries wait for a quorum.
func (c *Consumer) replicated() bool {
	return c.model.cfg.Replicas > 1 && c.cfg.AckPolicy != jetstream.AckNonePolicy
}

// matches reports whether a subject matches the consumer's filters.
func (c *Consumer) matches(subject string) bool {
	filters := c.cfg.FilterSubjects
	if c.cfg.FilterSubject != "" {
		filters = []string{c.cfg.FilterSubject}
	}
	if len(filters) == 0 {
		return true
	}
	return slices.ContainsFunc(filters, func(f string) bool { return natstest.SubjectMatches(f, subject) })
}

func (c *Consumer) numPending() uint64 { return uint64(max(0, c.npc)) }

// signal makes the delivery loop run soon.
func (c *Consumer) signal() {
	c.wakeAt = earlier(c.wakeAt, time.Now().Add(c.model.cfg.Wake.draw(c.model.rng)))
}

// nextAlarm returns the time at which the leader has work again, or zero.
func (c *Consumer) nextAlarm() time.Time {
	if !c.leads() {
		return time.Time{}
	}
	next := earlier(c.ackAt, c.pin.expires)
	if c.replay.pauses {
		return next
	}
	return earlier(next, earlier(c.wakeAt, c.expireAt))
}

// fire does the work that is due, and reports whether there was any.
func (c *Consumer) fire(now time.Time) bool {
	if !c.leads() {
		return false
	}
	due := func(at time.Time) bool { return !at.IsZero() && !at.After(now) }
	fired := false
	if due(c.pin.expires) {
		c.pinTimeout()
		fired = true
	}
	if due(c.ackAt) {
		c.checkPending()
		fired = true
	}
	if due(c.wakeAt) && !c.replay.pauses {
		c.gather()
		fired = true
	}
	if due(c.expireAt) && !c.replay.pauses {
		c.processWaiting(true)
		c.gather()
		fired = true
	}
	return fired
}

// sendStatus sends a status frame to a pull.
func (c *Consumer) sendStatus(reply string, code int, text string, kv ...string) {
	e := Event{Kind: Ended, Reply: reply, Code: code, Text: text}
	if c.loses() {
		e.Kind = Lost
		c.note(e)
		return
	}
	c.note(e)
	c.model.peer.Status(reply, code, text, kv...)
}

// loses decides at random whether the next frame is lost.
func (c *Consumer) loses() bool {
	lose := c.model.cfg.Lose
	return lose > 0 && c.model.rng.Float64() < lose
}

// Held returns the stream sequences of the messages that clients have: delivered, and neither settled nor due for redelivery.
func (c *Consumer) Held() []uint64 {
	c.model.mu.Lock()
	defer c.model.mu.Unlock()
	var seqs []uint64
	for _, seq := range sortedKeys(c.pending) {
		if !c.toRedeliver(seq) {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

// Unsettled returns the stream sequences of unsettled messages: not delivered, not
// acked, or acked but not yet agreed on. A message is settled when it is acked,
// terminated or finally given up. If MaxDeliver is raised before a quorum has agreed
// to give up a message, the message stays pending in the stored state, but the leader
// does not know it until another one takes over. The same holds for a message that is
// acked after replay has raised the floor over it. With ack policy all, the floor can be above all deliveries
// after a crash. The stored state then misses the next ones, so the leader's floor counts.
func (c *Consumer) Unsettled() []uint64 {
	c.model.mu.Lock()
	defer c.model.mu.Unlock()
	var seqs []uint64
	for _, m := range c.stream.messages {
		if c.cfg.AckPolicy == jetstream.AckAllPolicy && c.leads() && m.seq <= c.ackFloorSeq {
			continue
		}
		_, pending := c.store.pending[m.seq]
		if c.matches(m.subject) && (pending && !c.givenUp[m.seq] || m.seq > c.store.deliveredSeq) {
			seqs = append(seqs, m.seq)
		}
	}
	return seqs
}
