package pull

import (
	"maps"
	"math/rand/v2"
)

// Engine is the state of all pulls of one consumer. Its methods must not run at the same time: the driver's lock guards the engine, and all
// of its share groups, demands, pulls and inboxes. Exceptions are noted at their fields.
type Engine struct {
	base   string     // prefix of all reply subjects
	rng    *rand.Rand // of the jitter
	limits Limits

	shares   []*share
	unused   []*Inbox // pooled inboxes without a pull
	leaving  leaving
	capacity capacity
	seq      uint64 // of inboxes and pulls
	pins     pins

	down   bool  // the connection is down
	dead   error // why no demand is accepted; nil: demands are accepted
	closed bool

	now   At   // of the last event
	due   At   // when Tick is due: see NextTick
	timed bool // due is known

	stats Stats
	out   effects
}

// capacity is the number of messages that the driver's channel can hold. nats.go drops a message if the channel is
// full, so no more messages may be on order.
type capacity struct {
	slots   int  // of the channel, less those kept for statuses
	free    int  // slots that are not on order
	awaited bool // a pull was not sent, or was made smaller, because too few slots were free
}

// long returns how many slots a long-lived pull may take: half of the free ones, so that some are left for calls
// with other terms.
func (c *capacity) long() int { return (c.free + 1) / 2 }

// Stats are the counters of an engine.
type Stats struct {
	Pulls, Messages, Bytes, HandedBack, Dropped, Silent uint64

	Statuses map[int]uint64 // by code
}

// New returns an engine. slots is the number of messages that the driver's channel can hold. Reply subjects begin
// with base. seed is for the jitter of the back-off.
func New(base string, lim Limits, slots int, seed uint64) *Engine {
	e := &Engine{
		base: base, rng: rand.New(rand.NewPCG(seed, 0)), limits: lim, pins: pins{},
		capacity: capacity{slots: slots, free: slots}, stats: Stats{Statuses: map[int]uint64{}},
	}
	e.leaving.out = &e.out
	return e
}

// at records the time of an event, which may move any deadline.
func (e *Engine) at(now At) { e.now, e.timed = now, false }

// SetLimits sets the limits of the pulls from now on.
func (e *Engine) SetLimits(lim Limits) {
	if e.limits.AckNone && !lim.AckNone {
		// The late messages came from a consumer that is gone. The new one delivers them again.
		e.dropStashes()
	}
	e.limits, e.timed = lim, false
}

func (e *Engine) dropStashes() {
	for _, s := range e.shares {
		e.stats.Dropped += uint64(len(s.stash))
		s.stash = nil
	}
}

// Busy reports whether something can still arrive.
func (e *Engine) Busy() bool {
	if len(e.leaving.inboxes) > 0 {
		return true
	}
	for _, s := range e.shares {
		if len(s.pulls) > 0 || len(s.demands) > 0 {
			return true
		}
	}
	return false
}

// Retired returns the number of inboxes given up so far.
func (e *Engine) Retired() uint64 { return e.leaving.retired }

// Left reports whether one of the first n inboxes that were given up is still subscribed or draining.
func (e *Engine) Left(n uint64) bool {
	return len(e.leaving.inboxes) > 0 && e.leaving.inboxes[0].number <= n
}

// Down reports whether the connection is down.
func (e *Engine) Down() bool { return e.down }

// Proving reports whether the driver must continue to send requests to the consumer.
func (e *Engine) Proving() bool { return e.leaving.proving }

// Stats returns the counters, and how many messages open pulls may still bring.
func (e *Engine) Stats() (s Stats, outstanding int) {
	s = e.stats
	s.Statuses = maps.Clone(s.Statuses)
	return s, e.capacity.slots - e.capacity.free
}

// PinID returns the pin id that the client holds in group, or "".
func (e *Engine) PinID(group string) string { return e.pins[group].id }

// PinnedGroups returns the groups in which the client holds a pin.
func (e *Engine) PinnedGroups() (groups []string) {
	for group, pin := range e.pins {
		if pin.id != "" {
			groups = append(groups, group)
		}
	}
	return groups
}

// PinnedPolicy reports whether the consumer has the policy pinned_client.
func (e *Engine) PinnedPolicy() bool { return e.limits.Pinned }

// Stands reports whether a standing demand of group is left.
func (e *Engine) Stands(group string) bool {
	for _, s := range e.shares {
		for _, d := range s.demands {
			if d.Mode == Standing && s.terms.Group == group {
				return true
			}
		}
	}
	return false
}

// pins are the pin ids that the client holds, by priority group. A message with a pin id gains it, whatever was
// held before. A 423 drops an id only if its pull carried that id and the id is still current: a late answer to
// an old pull does not drop a new pin. A lost id is not gained again: the server generates another id for each
// pin, so a message with the old one was in flight, or waited for a quorum.
type pins map[string]struct{ id, lost string }

// isNew reports whether a message with id gains a pin.
func (p pins) isNew(group, id string) bool {
	held := p[group]
	return id != "" && id != held.id && id != held.lost
}

// set makes id the pin id held in group.
func (p pins) set(group, id string) {
	h := p[group]
	if h.id != "" {
		h.lost = h.id
	}
	h.id = id
	p[group] = h
}
