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
	term    int // counts leaders; what was planned under another term is void

	// The leader's state. sseq and dseq are the next to be used.
	sseq, dseq               uint64
	ackFloorSeq, ackFloorDel uint64
	pending                  map[uint64]*pendingAck // by stream sequence
	redelivered              map[uint64]uint64      // how often beyond the first time
	redeliver                []uint64               // due for redelivery, in order
	givenUp                  map[uint64]bool        // pending in the stored state at most; see Unsettled
	npc                      int64                  // messages not yet delivered once
	waiting                  []*waitingPull
	lastScan                 time.Time // of the waiting queue
	pin                      pin
	replay                   replay

	// When the leader has to look again; zero is never.
	wakeAt   time.Time // there is work
	expireAt time.Time // a waiting pull expires or wants a heartbeat
	ackAt    time.Time // a message's ack wait is over

	replication
}

// pendingAck is a message that was delivered and is not acked.
type pendingAck struct {
	deliverSeq uint64
	since      time.Time
}

// State is a consumer's counters, as its info shows them.
type State struct {
	Delivered      jetstream.SequenceInfo
	AckFloor       jetstream.SequenceInfo
	NumPending     uint64
	NumAckPending  int
	NumRedelivered int
	NumWaiting     int
}

// AddConsumer makes a pull consumer of a stream. A configuration that the model
// does not support is refused.
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

// refuse says what of a configuration the model does not do.
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

// SetDefaults fills in what a server would.
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

// State is the consumer's counters now. Like a server, the model looks through
// the waiting pulls for it.
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

// leads says whether there is a leader to talk to.
func (c *Consumer) leads() bool { return c.leader && !c.deleted }

// replicated says whether deliveries wait for a quorum.
func (c *Consumer) replicated() bool {
	return c.model.cfg.Replicas > 1 && c.cfg.AckPolicy != jetstream.AckNonePolicy
}

// matches says whether the consumer wants messages of a subject.
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

// nextAlarm is when the leader has to look again.
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

// fire does what is due and says whether anything was.
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

// loses draws whether the next frame gets lost.
func (c *Consumer) loses() bool {
	lose := c.model.cfg.Lose
	return lose > 0 && c.model.rng.Float64() < lose
}

// Held is the stream sequences that clients have: delivered, neither settled nor
// due for redelivery.
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

// Unsettled is the stream sequences that the consumer still has to deal with:
// not delivered, not acked, or acked but not yet agreed on. A message is
// settled when it was acked, terminated or given up for good. Where MaxDeliver is
// raised before a quorum has agreed to give a message up, it stays pending in the
// stored state, and the leader knows of it no more until another one takes over. So
// does one that is acked after the floor was raised over it, which replay can do. With ack policy all the floor
// can be above all deliveries after a crash, and then the stored state misses the next ones: the leader's floor counts.
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
