package sim

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/natstest/model"
)

const (
	streamName   = "S"
	consumerName = "C"
	groupName    = "g"
	deadStream   = "DEAD"
	deadSubject  = "DEAD.letters"
)

// plan is all that a seed draws before its schedule begins. The actions of actors on
// single messages are drawn as they come, from sources that the seed decides.
type plan struct {
	seed     uint64
	model    model.Config
	consumer jetstream.ConsumerConfig
	active   time.Duration   // how long the faults and the actors go on
	before   []time.Duration // pauses between messages that are stored before the consumer is created, which replays them
	publish  []publication
	procs    [][]life
	faults   []fault
	stalls   []span  // of the link behind the clients' server: data is late, and nothing is closed
	failing  bool    // most handlers fail, and their messages become dead letters
	loseDead float64 // the share of dead letters that go unanswered
}

// publication is one message that is stored at a time.
type publication struct {
	at      time.Duration
	subject string
	size    int
}

// life is a process from its start to its end: one connection and one Subscription.
type life struct {
	from, to time.Duration
	end      ending
	actors   []actor
}

// ending says how a life ends.
type ending string

const (
	staysOn  ending = "stays"  // it goes on into the calm phase
	leaves   ending = "leaves" // actors are cancelled, then the Subscription is closed
	closes   ending = "closes" // the Subscription is closed under its actors
	isKilled ending = "killed" // the connection is closed under everything
)

// The kinds of faults.
const (
	faultCut   = "cut"             // all connections break
	faultHush  = "silence"         // nothing comes through, then all of it
	faultStep  = "step down"       // the consumer changes its leader
	faultStop  = "shutdown"        // the server stops in good order
	faultCrash = "crash"           // it stops without a word
	faultUnpin = "unpin"           // an administrator takes the pin away
	faultPause = "pause consumer"  // the consumer delivers nothing
	faultAlter = "update consumer" // it gets another configuration
	faultGone  = "delete consumer" // it is created again with another, and knows nothing
	faultReset = "reset consumer"  // it delivers again from the first message on
)

// fault is something that breaks and, after a while, is well again.
type fault struct {
	at, length time.Duration
	kind       string
	to         jetstream.ConsumerConfig // of faultAlter and faultGone
}

// drawPlan draws a plan from a seed.
func drawPlan(seed uint64) *plan {
	rng := rand.New(rand.NewPCG(seed, 0x51b))
	p := &plan{seed: seed, active: between(rng, 3*time.Second, 20*time.Second)}
	p.drawConsumer(rng)
	p.drawNetwork(rng)
	p.drawFaults(rng)
	p.drawPublications(rng)
	p.drawProcesses(rng)
	// Later additions draw from a source of their own, so that a seed still draws the same values for the rest.
	extra := rand.New(rand.NewPCG(seed, 0xde1))
	p.drawLimits(extra, &p.consumer)
	p.drawDeletion(extra)
	p.drawUpdates(extra)
	p.drawBursts(extra)
	late := rand.New(rand.NewPCG(seed, 0x2e5))
	p.drawReset(late)
	p.drawLastDeliveries(late)
	p.drawStalls(rand.New(rand.NewPCG(seed, 0x57a)))
	p.drawReplay(rand.New(rand.NewPCG(seed, 0x4e9)))
	if p.lasts(useConsume) && (oneIn(extra, 2) || len(p.stalls) > 0) {
		// One Consume has to get over all faults by itself, or three over stalls: a call that ends beside one may lose messages, and what is
		// redelivered to the same process shows no loss.
		p.procs = nil
		for range min(1+2*len(p.stalls), 3) {
			p.procs = append(p.procs, []life{{to: p.active, end: staysOn, actors: []actor{{useConsume, extra.Uint64()}}}})
		}
	}
	if oneIn(extra, 2) {
		p.loseDead = 0.4
	}
	return p
}

func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rng.Int64N(int64(high-low)+1))
}

// oneIn is true once in n times.
func oneIn(rng *rand.Rand, n int) bool { return rng.IntN(n) == 0 }

func pick[T any](rng *rand.Rand, from ...T) T { return from[rng.IntN(len(from))] }

func (p *plan) drawConsumer(rng *rand.Rand) {
	c := jetstream.ConsumerConfig{Durable: consumerName, FilterSubject: streamName + ".>"}
	switch n := rng.IntN(20); {
	case n < 14:
		c.AckPolicy = jetstream.AckExplicitPolicy
	case n < 17:
		c.AckPolicy = jetstream.AckAllPolicy
	default:
		c.AckPolicy = jetstream.AckNonePolicy
	}
	if c.AckPolicy != jetstream.AckNonePolicy {
		c.AckWait = pick(rng, 2*time.Second, 5*time.Second, 30*time.Second, 30*time.Second, time.Minute)
		if oneIn(rng, 4) {
			c.MaxAckPending = 1 + rng.IntN(30)
		}
		if oneIn(rng, 8) {
			c.MaxDeliver = 3 + rng.IntN(4)
		}
	}
	if oneIn(rng, 6) {
		c.MaxWaiting = 3 + rng.IntN(8)
	}
	if oneIn(rng, 10) {
		c.MaxRequestBatch = 1 + rng.IntN(12)
	}
	if oneIn(rng, 10) {
		c.MaxRequestExpires = between(rng, time.Second, 8*time.Second)
	}
	switch rng.IntN(8) {
	case 0:
		c.PriorityPolicy = jetstream.PriorityPolicyOverflow
	case 1, 2:
		c.PriorityPolicy = jetstream.PriorityPolicyPinned
		c.PinnedTTL = between(rng, time.Second, 8*time.Second)
	case 3:
		c.PriorityPolicy = jetstream.PriorityPolicyPrioritized
	}
	if c.PriorityPolicy != jetstream.PriorityPolicyNone {
		c.PriorityGroups = []string{groupName}
	}
	p.consumer = c
}

func (p *plan) drawNetwork(rng *rand.Rand) {
	m := model.Config{Seed: p.seed, Replicas: 1}
	if oneIn(rng, 2) {
		m.Replicas = 3
		m.Quorum = model.Delay{Min: time.Millisecond, Max: between(rng, time.Millisecond, 40*time.Millisecond)}
		m.Outage = model.Delay{Max: between(rng, 0, 4*time.Second)}
	}
	m.Remote = oneIn(rng, 3)
	m.Wake = model.Delay{Max: between(rng, 0, 2*time.Millisecond)}
	most := pick(rng, 0, 2*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond, 150*time.Millisecond)
	m.Up = model.Delay{Max: between(rng, 0, most)}
	m.Down = model.Delay{Max: between(rng, 0, most)}
	if oneIn(rng, 4) {
		m.Lose = 0.005 + 0.03*rng.Float64()
	}
	p.model = m
}

// drawFaults draws up to eight faults; a third of the schedules has none.
func (p *plan) drawFaults(rng *rand.Rand) {
	if oneIn(rng, 3) {
		return
	}
	kinds := []string{faultCut, faultCut, faultHush, faultStep, faultStop, faultCrash, faultUnpin, faultPause}
	at := time.Duration(0)
	for range 1 + rng.IntN(8) {
		at += between(rng, 10*time.Millisecond, p.active/3)
		f := fault{at: at, kind: pick(rng, kinds...)}
		switch f.kind {
		case faultHush, faultStop, faultCrash, faultPause:
			f.length = between(rng, 50*time.Millisecond, 4*time.Second)
		}
		if at+f.length > p.active {
			return
		}
		p.faults = append(p.faults, f)
		at += f.length
	}
}

// drawLimits draws what of a configuration can be changed: as it is, or more of it.
func (p *plan) drawLimits(rng *rand.Rand, c *jetstream.ConsumerConfig) {
	if c.AckPolicy != jetstream.AckNonePolicy && oneIn(rng, 6) {
		c.BackOff = nil
		for range 1 + rng.IntN(3) {
			c.BackOff = append(c.BackOff, between(rng, 2*time.Second, 6*time.Second))
		}
		c.AckWait = c.BackOff[0]
	}
	if c.AckPolicy != jetstream.AckNonePolicy && oneIn(rng, 3) {
		c.AckWait, c.BackOff = pick(rng, 2*time.Second, 2*time.Second, 4*time.Second), nil
	}
	if c.PinnedTTL > 0 && oneIn(rng, 2) {
		c.PinnedTTL = 30 * time.Second
	}
}

// drawBursts lets messages be under way when a connection or the server breaks.
func (p *plan) drawBursts(rng *rand.Rand) {
	for _, f := range p.faults {
		if f.kind != faultCrash && f.kind != faultCut || oneIn(rng, 3) {
			continue
		}
		at := f.at - between(rng, 0, crashForgets)
		for range rng.IntN(20) {
			p.publish = append(p.publish, publication{at: at, subject: fmt.Sprintf("%s.k%d", streamName, rng.IntN(5))})
		}
	}
	slices.SortStableFunc(p.publish, func(a, b publication) int { return int(a.at - b.at) })
}

// drawUpdates lets the consumer be changed while runs are under way, in one schedule of three.
func (p *plan) drawUpdates(rng *rand.Rand) {
	if !oneIn(rng, 3) {
		return
	}
	until := p.active
	if gone, ok := p.deletion(); ok {
		until = gone.at
	}
	to := p.consumer
	for range 1 + rng.IntN(3) {
		to = p.drawChange(rng, to)
		p.faults = append(p.faults, fault{at: between(rng, 0, until-1), kind: faultAlter, to: to})
	}
	slices.SortStableFunc(p.faults, func(a, b fault) int { return int(a.at - b.at) })
}

// drawChange draws another configuration.
func (p *plan) drawChange(rng *rand.Rand, c jetstream.ConsumerConfig) jetstream.ConsumerConfig {
	p.drawLimits(rng, &c)
	c.PinnedTTL = p.consumer.PinnedTTL
	c.MaxRequestBatch = pick(rng, 0, c.MaxRequestBatch, 1+rng.IntN(12))
	c.MaxRequestExpires = pick(rng, 0, c.MaxRequestExpires, between(rng, time.Second, 8*time.Second))
	if !p.ackNone() {
		c.MaxAckPending = pick(rng, 0, c.MaxAckPending, 1+rng.IntN(30))
		c.MaxDeliver = pick(rng, 0, c.MaxDeliver, 3+rng.IntN(4))
	}
	return c
}

// all are the configurations that the consumer gets in a plan.
func (p *plan) all() []jetstream.ConsumerConfig {
	all := []jetstream.ConsumerConfig{p.consumer}
	for i := range p.faults { // by reference: the time of a fault is set when it takes place
		if f := &p.faults[i]; f.kind == faultAlter || f.kind == faultGone {
			all = append(all, f.to)
		}
	}
	return all
}

// ackWaits are the shortest and the longest AckWait.
func (p *plan) ackWaits() (least, most time.Duration) {
	least = math.MaxInt64
	for _, c := range p.all() {
		for _, d := range append(c.BackOff[:len(c.BackOff):len(c.BackOff)], c.AckWait) {
			least, most = min(least, d), max(most, d)
		}
	}
	return least, most
}

// drawDeletion lets the consumer be deleted, as the last fault of one schedule in eight.
func (p *plan) drawDeletion(rng *rand.Rand) {
	if !oneIn(rng, 8) {
		return
	}
	from := time.Duration(0)
	if n := len(p.faults); n > 0 {
		from = p.faults[n-1].at + p.faults[n-1].length
	}
	f := fault{
		kind: faultGone, to: p.consumer, at: from + between(rng, 10*time.Millisecond, p.active/2),
		length: between(rng, 50*time.Millisecond, 9*time.Second),
	}
	if f.at+f.length > p.active {
		f.length = p.active - f.at
	}
	if oneIn(rng, 2) {
		f.to = p.drawChange(rng, f.to)
	}
	if f.length >= 50*time.Millisecond {
		p.faults = append(p.faults, f)
	}
}

// drawReset lets the consumer be reset, as the last fault of one schedule in six.
func (p *plan) drawReset(rng *rand.Rand) {
	if _, gone := p.deletion(); gone || p.consumer.AckPolicy != jetstream.AckExplicitPolicy || !oneIn(rng, 6) {
		return
	}
	from := 10 * time.Millisecond
	if n := len(p.faults); n > 0 {
		from += p.faults[n-1].at + p.faults[n-1].length
	}
	if from < p.active {
		p.faults = append(p.faults, fault{kind: faultReset, at: between(rng, from, p.active)})
	}
}

// restart is the fault after which the consumer delivers all messages again, if there is one.
func (p *plan) restart() (f fault, ok bool) {
	if n := len(p.faults); n > 0 && p.faults[n-1].kind == faultReset {
		return p.faults[n-1], true
	}
	return p.deletion()
}

// deletion is the fault that deletes the consumer, if there is one.
func (p *plan) deletion() (f fault, ok bool) {
	if n := len(p.faults); n > 0 && p.faults[n-1].kind == faultGone {
		return p.faults[n-1], true
	}
	return fault{}, false
}

func (p *plan) drawPublications(rng *rand.Rand) {
	keys := 1 + rng.IntN(5)
	var at time.Duration
	for range rng.IntN(120) {
		if oneIn(rng, 5) {
			at = between(rng, 0, p.active)
		}
		p.publish = append(p.publish, publication{
			at: at, subject: fmt.Sprintf("%s.k%d", streamName, rng.IntN(keys)), size: rng.IntN(pick(rng, 20, 200, 3000)),
		})
	}
}

func (p *plan) drawProcesses(rng *rand.Rand) {
	n := 1 + rng.IntN(3)
	for range n {
		var lives []life
		from := time.Duration(0)
		for {
			l := life{from: from, to: p.active, end: staysOn}
			if oneIn(rng, 2) {
				l.to = from + between(rng, 100*time.Millisecond, p.active)
				l.end = pick(rng, leaves, closes, closes, isKilled)
			}
			if l.to >= p.active {
				l.to, l.end = p.active, staysOn
			}
			l.actors = p.drawActors(rng)
			lives = append(lives, l)
			if l.end == staysOn {
				break
			}
			from = l.to + between(rng, 0, time.Second)
		}
		p.procs = append(p.procs, lives)
	}
}

func (p *plan) drawActors(rng *rand.Rand) []actor {
	actors := make([]actor, 1+rng.IntN(3))
	for i := range actors {
		actors[i] = actor{kind: pick(rng, useNext, useFetch, useMessages, useConsume, useConsume), seed: rng.Uint64()}
		if p.ackAll() && actors[i].kind == useConsume {
			actors[i].kind = useMessages // Consume refuses such a consumer
		}
	}
	return actors
}

// lasts reports whether an actor of a life that stays on goes on in the calm phase. One that waits for thresholds may be served no more, and many
// can fill the queue of waiting pulls.
func (p *plan) lasts(kind string) bool {
	c := p.consumer
	return kind == useConsume && !p.ackAll() && p.seed/2%2 == 1 && c.PriorityPolicy != jetstream.PriorityPolicyOverflow && c.MaxWaiting == 0
}

func (p *plan) ackAll() bool  { return p.consumer.AckPolicy == jetstream.AckAllPolicy }
func (p *plan) ackNone() bool { return p.consumer.AckPolicy == jetstream.AckNonePolicy }
func (p *plan) pinned() bool {
	return p.consumer.PriorityPolicy == jetstream.PriorityPolicyPinned
}

// trip is the longest that one frame and its answer can take together with what the server does in between, while nothing is broken.
func (p *plan) trip() time.Duration {
	m := p.model
	return m.Up.Max + m.Down.Max + 2*m.Quorum.Max + m.Wake.Max + 10*time.Millisecond
}

// String is the plan as a failing seed prints it.
func (p *plan) String() string {
	text := fmt.Sprintf("seed %d: %s\nstored before it: %v\nserver: %+v\n%d messages in %v, a share of %.1f of the dead letters is lost\n",
		p.seed, asJSON(p.consumer), p.before, p.model, len(p.publish), p.active, p.loseDead)
	for i, lives := range p.procs {
		for j, l := range lives {
			text += fmt.Sprintf("%s: %+v\n", lifeName(i, j), l)
		}
	}
	for _, s := range p.stalls {
		text += fmt.Sprintf("the link stalls from %v to %v\n", s.from, s.to)
	}
	for _, f := range p.faults {
		text += fmt.Sprintf("fault at %v: %s for %v", f.at, f.kind, f.length)
		if f.to.Durable != "" {
			text += ", now " + asJSON(f.to)
		}
		text += "\n"
	}
	return text
}

func asJSON(c jetstream.ConsumerConfig) string {
	text, _ := json.Marshal(c)
	return string(text)
}

// lifeName names a life; it also begins the inboxes of its connection.
func lifeName(proc, life int) string { return fmt.Sprintf("P%dL%d", proc+1, life+1) }
