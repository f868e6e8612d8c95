package pull

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jetpull/jetpull/internal/wire"
)

// At is a point in time: the duration since the driver's epoch.
type At = time.Duration

// Limits are the limits of pulls in the consumer's configuration.
type Limits struct {
	Batch   int           // MaxRequestBatch; 0: none
	Expires time.Duration // MaxRequestExpires; 0: none
	Bytes   int           // MaxRequestMaxBytes; 0: none
	Waiting int           // MaxWaiting; 0: unknown
	AckNone bool          // nothing can be handed back
	Pinned  bool          // the priority policy is pinned_client
	PinTTL  time.Duration // the priority timeout; 0: the server's default
}

// Message is a message of the stream.
type Message interface {
	Sequence() uint64
	Nak() error // hands it back to the server
}

// Engine is the state of all pulls of one consumer. Its methods must not run at the same time.
type Engine struct {
	base   string     // prefix of all reply subjects
	rng    *rand.Rand // of the jitter
	limits Limits

	shares   []*share
	standing int      // number of standing demands
	unused   []*Inbox // pooled inboxes without a pull
	draining int      // inboxes that drain
	capacity capacity
	seq      uint64 // of inboxes and pulls

	down   bool  // the connection is down
	dead   error // why no demand is accepted; nil: all are
	closed bool
	config config
	pins   pins

	due     At // no deadline is earlier; 0: there is none
	effects []Effect
	stats   Stats

	spare []Effect // memory of the last batch of effects
}

// capacity is how many messages the driver's channel can take. nats.go drops a message if the channel is full, so
// no more than that may be on order.
type capacity struct {
	slots   int  // of the channel, less those kept for statuses
	free    int  // slots that are not on order
	awaited bool // a pull was not sent, or was made smaller, because too few slots were free
}

// Stats count what the engine has seen and done.
type Stats struct {
	Pulls, Messages, Bytes, HandedBack, Dropped, Silent uint64

	Statuses map[int]uint64 // by code
}

// EffectKind is something for the driver to do.
type EffectKind uint8

// The kinds of effects.
const (
	Send        EffectKind = iota // send Pull, and subscribe Inbox to Subject before its first
	Unsubscribe                   // drop Inbox: nothing more can arrive on it
	Drain                         // unsubscribe Inbox and report when its wire is empty; see Silent
	Nak                           // hand Msg back to the server
	Wake                          // Demand is done, or its caller is to read
	Deliver                       // hand Msgs to the standing Demand; it may be done
	Problem                       // a pull of the standing Demand failed with Err
	Healthy                       // pulls of the standing Demand are answered again
	PinGained                     // Pin was gained
	PinLost                       // Pin was lost
	ReadConfig                    // read the consumer's configuration
)

// Effect is one thing to do. Effects are carried out in order. Among those that wait together, changes of pins come first.
type Effect struct {
	Kind   EffectKind
	Done   bool
	Silent bool // the inbox stays subscribed until the server has answered something
	Inbox  *Inbox
	Pull   *wire.Request
	Reply  string // where the answers to Pull go
	Demand *Demand
	Msg    Message
	Msgs   []Message
	Err    error
	Pin    *Pin
}

// New returns an engine whose channel has slots for messages. Reply subjects begin with base; seed is for the
// jitter of back-off.
func New(base string, lim Limits, slots int, seed uint64) *Engine {
	return &Engine{
		base: base, rng: rand.New(rand.NewPCG(seed, 0)), limits: lim, pins: pins{},
		capacity: capacity{slots: slots, free: slots}, stats: Stats{Statuses: map[int]uint64{}},
	}
}

func (f *Effect) changesPin() bool { return f.Kind == PinGained || f.Kind == PinLost }

func (e *Engine) do(f Effect) {
	if f.changesPin() {
		// The messages of the pin may leave by a Deliver that is there already.
		changes := 0
		for changes < len(e.effects) && e.effects[changes].changesPin() {
			changes++
		}
		e.effects = slices.Insert(e.effects, changes, f)
		return
	}
	e.effects = append(e.effects, f)
}

// Effects returns the effects since the last call, whose result it takes back to reuse the memory. Messages
// leave their standing demand here, so that those of several events are handed over at once.
func (e *Engine) Effects(done []Effect) []Effect {
	for i := range done {
		if f := &done[i]; f.Kind == Deliver && cap(f.Msgs) > 0 {
			clear(f.Msgs)
			f.Demand.spare = f.Msgs[:0]
		}
	}
	clear(done)
	if done != nil {
		e.spare = done[:0]
	}
	batch := e.effects
	if len(batch) == 0 {
		return nil
	}
	e.effects, e.spare = e.spare, nil
	for i := range batch {
		if f := &batch[i]; f.Kind == Deliver {
			d := f.Demand
			f.Msgs, f.Done, f.Err = d.Got, d.Done, d.Err
			d.Got, d.spare, d.stand.notified = d.spare, nil, false
		}
	}
	return batch
}

// Busy reports whether something can still arrive.
func (e *Engine) Busy() bool {
	if e.draining > 0 {
		return true
	}
	for _, s := range e.shares {
		if len(s.pulls) > 0 || len(s.demands) > 0 {
			return true
		}
	}
	return false
}

// Draining reports whether an inbox still drains.
func (e *Engine) Draining() bool { return e.draining > 0 }

// Closed reports whether Close was called.
func (e *Engine) Closed() bool { return e.closed }

// Down reports whether the connection is down.
func (e *Engine) Down() bool { return e.down }

// Stats returns the counters, and how many messages open pulls may still bring.
func (e *Engine) Stats() (s Stats, outstanding int) {
	s = e.stats
	s.Statuses = maps.Clone(s.Statuses)
	return s, e.capacity.slots - e.capacity.free
}

// PassReading makes the first call in any share group read for all, and reports whether one
// waits. It is woken after the callers whose demands are done.
func (e *Engine) PassReading() bool {
	for _, s := range e.shares {
		for _, d := range s.demands {
			if d.Mode != Standing {
				d.Reading = true
				e.do(Effect{Kind: Wake, Demand: d})
				return true
			}
		}
	}
	return false
}

// Message takes a message that arrived on ib. size is its size as the server counts it against max_bytes; pin is the
// pin id that came with it, or "". The first row that applies decides where the message goes:
//
//	| state                                        | the message goes to                                      |
//	| ---                                          | ---                                                      |
//	| ib was dropped                               | the server, by a NAK                                     |
//	| its share group has a call that wants more   | the one that was posted first                            |
//	| its share group has standing demands         | the one whose pull brought it, or else any               |
//	| other calls have its terms                   | the one that was posted first                            |
//	| explicit acknowledgements                    | the server, by a NAK                                     |
//	| ack policy none                              | the next call with its terms; after Close it is dropped  |
//
// Then its pull ends if that was its last message, and a new pull is sent if one is needed.
func (e *Engine) Message(now At, ib *Inbox, m Message, size int, pin string) {
	e.stats.Messages++
	e.stats.Bytes += uint64(size)
	s, p := ib.share, ib.pull
	if s == nil {
		e.handBack(m)
		return
	}
	if p != nil && e.steady(now, p, size, pin) {
		e.account(p, size)
		p.owner.add(m, size)
		e.notify(p.owner)
		return
	}
	gained := pin != "" && e.pinGained(now, s.terms.Group, pin, p)
	var owner *Demand
	switch {
	case p != nil:
		owner = p.owner
		e.arrived(now, p, size)
	case ib.reserved > 0:
		ib.reserved--
		e.capacity.free++
	}
	if ib.abandonedBy != nil {
		e.healthy(ib.abandonedBy)
	} else if owner != nil {
		e.healthy(owner)
	}
	if d := s.next(owner); d != nil {
		e.deliver(d, m, size)
	} else if to := e.late(s.terms, m, size); to != s {
		e.cover(now, to)
	}
	if p != nil && p.left == 0 {
		e.end(now, p, ending{filled: !p.ended, status: p.status, unsure: p.got < p.req.Batch && !p.ended})
	}
	if gained {
		for _, o := range e.shares {
			e.cover(now, o)
		}
		return
	}
	e.cover(now, s)
}

// steady reports whether a message of p changes nothing but accounts: it is neither the first of a batch nor the last of p,
// p's standing demand is the only one of its share group and without trouble, and no pull waits for the slot that it frees.
func (e *Engine) steady(now At, p *pull, size int, pin string) bool {
	d, s := p.owner, p.share
	return p.brought == now && p.left > 1 && !p.ended && (p.req.MaxBytes == 0 || p.bytes+size < p.req.MaxBytes) &&
		d != nil && len(s.demands) == 1 && s.demands[0] == d && !d.stand.troubled() && !e.capacity.awaited &&
		(pin == "" || pin == e.pins[s.terms.Group].id)
}

// Status takes a status frame that arrived on ib for the pull whose reply subject ends in token.
func (e *Engine) Status(now At, ib *Inbox, token string, st wire.Status) {
	e.stats.Statuses[st.Code]++
	p := ib.pull
	if p == nil || p.token != token || p.ended {
		if d := ib.abandonedBy; d != nil {
			e.healthy(d)
			e.cover(now, d.share)
		}
		return
	}
	e.answered(now, p)
	e.heard(now, p, st)
	if p.owner != nil && e.due > now {
		e.scheduleAll(now) // the deadline of p has moved, or p has ended
	}
}

// heard updates p after a status.
func (e *Engine) heard(now At, p *pull, st wire.Status) {
	if st.Condition == wire.Heartbeat {
		if p.owner != nil {
			e.healthy(p.owner)
		}
		return
	}
	if st.HasPending && st.PendingMsgs <= int64(p.req.Batch) {
		// On R3 a status can overtake the messages before it: wait for them.
		left := max(0, p.req.Batch-int(st.PendingMsgs)-p.got)
		e.capacity.free += p.left - left
		p.left = left
		if left > 0 {
			p.ended, p.status, p.deadline = true, st, now+promiseGrace
			e.schedule(p.promisedUntil())
			e.cover(now, p.share)
			return
		}
	}
	s := p.share
	e.end(now, p, ending{status: st})
	e.cover(now, s)
}
