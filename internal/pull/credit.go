package pull

import (
	"cmp"
	"time"

	"github.com/jetpull/jetpull/internal/wire"
)

const (
	// byteParts is into how many parts a byte window is divided. Each pull asks for one of them, so that pulls overlap.
	byteParts = 4
	// refreshBytes is the max_bytes of a pull that only refreshes a pin: less than the size of any message.
	refreshBytes = 1
	// mostAbandoned is how many pulls a standing demand gives up as silent before it waits until the inbox of
	// one is drained: a connection that carries nothing does not answer more pulls either.
	mostAbandoned = 2
)

// standing is the state of a demand that keeps a window on order.
type standing struct {
	// The caller's window, and the messages that it holds.
	window    int // messages that may be held or on order
	workers   int // messages of the window that are handled, not waiting
	held      int // delivered, and not credited by the caller
	heldBytes int
	starving  bool // a worker waits
	serial    uint64
	bytes     int // that may be held or on order; 0: no bound

	// Traffic.
	lastPull At
	notified bool // delivered messages are about to be handed over
	// oversize is set if the next message is larger than a pull may ask for: it is pulled alone.
	oversize bool
	// quiet is set if the last pull has expired with at least half of its batch unused: the other open pulls are enough, and the
	// next one goes out when they may bring only a few messages.
	quiet bool

	// Trouble. After it the next pull is a probe: short-lived and without heartbeat, so that the server refuses it with
	// a reason such as MaxWaiting. A pull with heartbeats would be dropped without an answer.
	probing   bool
	reported  bool // a problem was reported, and no frame has come since
	silent    int  // probes in a row that stayed silent
	abandoned int  // inboxes that drain after those
	retryAt   At   // no probe before this
}

// troubled reports whether the next message changes more than accounts: see steady.
func (s *standing) troubled() bool {
	return s.probing || s.reported || s.quiet || s.starving
}

// healthy notes that the server answers the pulls of d: the next is no probe. After a problem the
// consumer's configuration is read, because it may have changed meanwhile.
func (e *Engine) healthy(d *Demand) {
	s := d.stand
	if !s.probing && !s.reported {
		return
	}
	s.probing, s.silent, s.retryAt = false, 0, 0
	if s.reported && !d.Done {
		s.reported = false
		e.do(Effect{Kind: Healthy, Demand: d})
		e.readConfig()
	}
}

// trouble notes that a pull of d failed with err.
func (e *Engine) trouble(d *Demand, err error) {
	d.stand.probing, d.stand.reported = true, true
	e.do(Effect{Kind: Problem, Demand: d, Err: err})
}

// silence notes that a pull of d stayed silent. The first probe goes out at once, and the next ones after a
// back-off that doubles up to 5 s. Several pulls that were dropped together count as one.
func (e *Engine) silence(now At, d *Demand, p *pull) {
	if s := d.stand; p.probe() {
		s.retryAt = now + e.backOffTime(s.silent, silentBackOff)
		e.schedule(s.retryAt)
		s.silent++
	}
	e.trouble(d, ErrSilent)
}

// standingEnded updates the standing demand whose pull has ended.
func (e *Engine) standingEnded(now At, d *Demand, p *pull, o ending) {
	st := o.status
	d.stand.quiet = st.Condition == wire.Expired && p.got <= p.req.Batch/2 && !p.probe()
	switch class := st.Condition.Class(); {
	case o.silent:
		e.silence(now, d, p)
	case o.lost && d.stand.reported: // with the connection
		d.stand.probing = true
	case o.lost:
		e.trouble(d, ErrLost)
	case st.Condition == wire.MaxBytes:
		e.healthy(d)
		e.tooLarge(d, p, st)
	case st.Condition == wire.ConsumerDeleted:
		e.config.awaited = true
		e.readConfig()
		e.trouble(d, &Refused{st})
	case class == wire.Retry, st.Condition == wire.LimitExceeded:
		e.trouble(d, &Refused{st})
	case class == wire.Config, class == wire.Terminal:
		e.finish(d, &Refused{st})
	default:
		e.healthy(d)
	}
}

// tooLarge notes that the next message is larger than the bytes that a pull asked for.
func (e *Engine) tooLarge(d *Demand, p *pull, st wire.Status) {
	switch {
	case p.got > 0, p.refresh:
	case p.alone:
		e.finish(d, &Refused{st}) // it does not fit the user's limit and never will
	default:
		d.stand.oversize = true
	}
}

// onOrder counts the messages that the pulls of a standing demand may still bring.
type onOrder struct {
	pulls, messages int // of pulls that are open
	ended           int // pulls that the server has ended, and how many messages
	promised        int // of theirs are expected
	bytes           int // of all messages
}

func (e *Engine) onOrder(now At, d *Demand) (o onOrder) {
	for _, p := range d.share.pulls {
		if p.owner != d {
			continue
		}
		if d.stand.bytes > 0 {
			o.bytes += d.stand.reserved(p.req.MaxBytes, p.bytes, p.status)
		}
		switch {
		case !p.ended:
			o.pulls++
			o.messages += p.left
		case now < p.promisedUntil():
			o.ended++
			o.promised += p.left
		}
	}
	return o
}

// reserved is how many of the bytes that a pull asked for may still come. A message that is pulled alone reserves all.
func (s *standing) reserved(asked, got int, ended wire.Status) int {
	if asked == 0 {
		return s.bytes
	}
	return max(0, asked-got-int(min(ended.PendingBytes, int64(asked))))
}

// coverStanding keeps a standing demand's window on order. Pulls overlap: the next goes out as soon as half of the
// messages that may wait for a worker are neither held nor on order, or when nothing is on order and a worker waits. The
// first row that applies decides:
//
//	| state                                               | the next pull                                 |
//	| ---                                                 | ---                                           |
//	| the configuration is to be read                     | waits for that                                |
//	| trouble                                             | waits for the open pull, one that drains, or  |
//	|                                                     | the back-off; then it is a probe              |
//	| pinned policy, no pin, and messages were promised   | waits for those: they bring the pin           |
//	| no free slots in the channel                        | waits for some                                |
//	| the next message fits no pull                       | waits until nothing is held or on order       |
//	| the pin has to be refreshed                         | goes out, if need be with refreshBytes        |
//	| window full, or a quarter of MaxWaiting is open     | waits                                         |
//	| quiet, and an eighth of the window is on order      | waits                                         |
//	| less than half of the window free, nobody starves   | waits for credit                              |
//	| less free of the byte window than a pull may ask    | waits for credit                              |
func (e *Engine) coverStanding(now At, d *Demand) {
	s, o := d.stand, e.onOrder(now, d)
	pin := e.limits.Pinned && e.pins[d.share.terms.Group].id != ""
	refreshDue := pin && now >= s.lastPull+e.pinRefresh()
	open := o.messages + o.promised
	most := e.capacity.slots - e.capacity.slots/9 // the others are for calls beside a full window
	need := min(s.window-s.held, most) - open
	half := max(1, (min(s.window-s.workers, most)+1)/2)
	batch := min(need, e.longMost(), cmp.Or(e.limits.Batch, need))
	enough := max(1, min(s.window, cmp.Or(e.limits.Batch, s.window))/8) // in quiet times
	wait := false
	switch {
	case e.config.awaited:
		wait = true
	case s.probing && (o.pulls > 0 || s.abandoned >= mostAbandoned || now < s.retryAt):
		e.schedule(s.retryAt)
		wait = true
	case e.limits.Pinned && !pin && o.promised > 0:
		wait = true
	case e.capacity.free < 1:
		e.capacity.awaited = e.capacity.awaited || need > 0 || refreshDue
		wait = true
	case s.oversize:
		batch, wait = 1, s.held > 0 || open > 0
	case refreshDue:
	case batch < 1, e.manyPulls(o), s.quiet && o.messages >= enough:
		wait = true
	case need < half:
		wait = open > 0 || s.held > 0 && !s.starving
	}
	if wait {
		return
	}
	bytes, fits := e.pullBytes(d, o)
	if fits || refreshDue {
		e.pullStanding(now, d, max(1, batch), bytes, !fits || batch < 1)
	}
}

// pullBytes is the max_bytes of the next pull, 0 for none. It reports false if too little of the byte window is free.
func (e *Engine) pullBytes(d *Demand, o onOrder) (n int, ok bool) {
	s := d.stand
	if s.bytes > 0 && !s.oversize {
		n = max(1, s.bytes/byteParts)
		if s.bytes-s.heldBytes-o.bytes < n {
			return 0, false
		}
	}
	n = min(cmp.Or(n, d.MaxBytes), cmp.Or(d.MaxBytes, n)) // the smaller one, where 0 is none
	return min(n, cmp.Or(e.limits.Bytes, n)), true
}

// pullStanding sends a pull for d. If the byte window has no space for a message, the pull only refreshes a pin and
// brings none.
func (e *Engine) pullStanding(now At, d *Demand, batch, bytes int, refresh bool) {
	s := d.stand
	p := e.newPull(now, d.share, windowed, e.pooled())
	p.owner, p.refresh = d, refresh
	p.req.MaxBytes, p.req.Expires = bytes, e.standingExpires()
	if refresh {
		p.req.MaxBytes = refreshBytes
	} else {
		p.alone, s.oversize = s.oversize, false
	}
	switch beat := d.Terms.Heartbeat; {
	case s.probing:
		p.req.Expires = min(p.req.Expires, probeExpires)
	case beat > 0:
		p.req.Heartbeat = min(beat, p.req.Expires/2)
	default:
		p.req.Expires = inStep(now, p.req.Expires)
		p.req.Heartbeat = min(StandingHeartbeat, p.req.Expires/2)
	}
	if s.lastPull = now; e.limits.Pinned {
		e.schedule(now + e.pinRefresh())
	}
	e.send(now, p, batch)
}

// manyPulls reports whether a standing demand has enough pulls: a quarter of the consumer's MaxWaiting, because the
// server drops pulls beyond its queue. A server that ends each pull with a promise of messages must not get ever more.
func (e *Engine) manyPulls(o onOrder) bool {
	most := e.capacity.slots
	if w := e.limits.Waiting; w > 0 {
		most = min(w, max(2, w/4))
	}
	return o.pulls >= most || o.ended > most
}

// Credit is N messages, of Bytes together, that are no longer held. Window is how many may be held or on order, and
// Starving says that a worker waits; of two that overtake each other the one with the higher Serial counts.
type Credit struct {
	N, Bytes, Window int
	Starving         bool
	Serial           uint64
}

// Credit returns messages of a standing demand to its window.
func (e *Engine) Credit(now At, d *Demand, c Credit) {
	s := d.stand
	s.held -= c.N
	s.heldBytes -= c.Bytes
	if c.Serial >= s.serial {
		s.window, s.starving, s.serial = c.Window, c.Starving, c.Serial
	}
	if !d.Done {
		e.cover(now, d.share)
	}
}

// pinRefresh is the longest time between pulls of a pinned client: only a pull refreshes a pin.
func (e *Engine) pinRefresh() time.Duration {
	if e.limits.PinTTL == 0 {
		return time.Minute
	}
	return max(e.limits.PinTTL/3, 10*time.Millisecond)
}
