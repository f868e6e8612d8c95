package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// drawLastDeliveries lets an update lower MaxDeliver below what MaxAttempts may be, in one of three. In one schedule of five an early
// update does, and handlers fail.
func (p *plan) drawLastDeliveries(rng *rand.Rand) {
	for i := range p.faults {
		if f := &p.faults[i]; f.kind == faultAlter && p.consumer.AckPolicy == jetstream.AckExplicitPolicy && oneIn(rng, 3) {
			f.to.MaxDeliver, f.to.BackOff = 1+rng.IntN(2), nil
		}
	}
	if p.consumer.AckPolicy != jetstream.AckExplicitPolicy || !oneIn(rng, 5) {
		return
	}
	p.failing, p.consumer.MaxDeliver = true, 0
	to := p.consumer
	to.MaxDeliver = 1
	until := p.active / 2
	for i := range p.faults {
		switch f := &p.faults[i]; f.kind {
		case faultAlter:
			f.to.MaxDeliver, f.to.BackOff = 1, nil
		case faultGone, faultReset:
			until = min(until, f.at)
		}
	}
	p.faults = append(p.faults, fault{at: between(rng, 0, until-1), kind: faultAlter, to: to})
	slices.SortStableFunc(p.faults, func(a, b fault) int { return int(a.at - b.at) })
}

// drawStalls lets the link stall in one schedule of three, beside all other faults. Messages are stored meanwhile. In one that is longer than
// two heartbeats the pulls are silent.
func (p *plan) drawStalls(rng *rand.Rand) {
	if !oneIn(rng, 3) {
		return
	}
	p.model.Remote = true
	if p.lasts(useConsume) { // long enough for a pull to be silent, and for what it brings afterwards
		p.active = max(p.active, 25*time.Second)
	}
	at := between(rng, 10*time.Millisecond, p.active/2)
	for range 1 + rng.IntN(2) {
		s := span{at, min(p.active, at+pick(rng, between(rng, 200*time.Millisecond, 4*time.Second), between(rng, 5*time.Second, 12*time.Second)))}
		for range rng.IntN(20) {
			p.publish = append(p.publish, publication{at: between(rng, s.from, s.to), subject: fmt.Sprintf("%s.k%d", streamName, rng.IntN(5))})
		}
		p.stalls = append(p.stalls, s)
		if at = s.to + between(rng, 10*time.Millisecond, 2*time.Second); at >= p.active {
			break
		}
	}
	slices.SortStableFunc(p.publish, func(a, b publication) int { return int(a.at - b.at) })
}

// drawReplay lets the consumer replay at original speed, in one schedule of eight without a restart of it.
func (p *plan) drawReplay(rng *rand.Rand) {
	if _, again := p.restart(); again || !oneIn(rng, 8) {
		return
	}
	for range 2 + rng.IntN(6) {
		p.before = append(p.before, pick(rng, between(rng, 0, time.Second), between(rng, 2*time.Second, 8*time.Second)))
	}
	p.consumer.ReplayPolicy = jetstream.ReplayOriginalPolicy
	for i := range p.faults {
		p.faults[i].to.ReplayPolicy = jetstream.ReplayOriginalPolicy
	}
}
