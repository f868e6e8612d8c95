package pull

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// Inbox is one subscription. A pooled inbox serves pull after pull by a wildcard and the last token of the reply subject; a single one
// serves one pull and is dropped.
type Inbox struct {
	// Fixed when its first pull is sent.
	Subject string // what is subscribed to
	Prefix  string // of the reply subjects; the subject itself for a single inbox

	Ref any // the driver's: the goroutine that carries out effects sets it

	single bool
	pull   *pull // open on it: memory; nil: none is

	// The reply subject of the pull that is open, or of the last one, and when it was first used. settled says that no status of that pull can come.
	reply     string
	repliedAt At
	settled   bool

	// Since it was given up: see leaving.
	number   uint64 // in the order in which inboxes are given up; 0: it is not
	reserved int    // messages that may still arrive
	leftAt   At
	since    At // when it was given up, or got its last message that counts
	drains   bool

	memory pull // the pull that is open on it, or was last
}

// serve begins a pull of a kind. The server caches what it knows of a reply subject, so no-wait pulls that follow each other have a
// common one for replyLife, if the last is settled. Otherwise a late status could be taken for a later pull's. seq is the number of a new
// reply subject.
func (ib *Inbox) serve(now At, s *share, k kind, seq uint64) *pull {
	if k != noWait || !ib.settled || now > ib.repliedAt+replyLife {
		var buffer [64]byte
		ib.reply, ib.repliedAt = string(strconv.AppendUint(append(buffer[:0], ib.Prefix...), seq, 36)), now
	}
	ib.memory = pull{share: s, inbox: ib, kind: k, req: s.terms.request()}
	if ib.single {
		ib.Subject, ib.Prefix = ib.reply, ib.reply
	}
	ib.pull = &ib.memory
	return ib.pull
}

// close ends the pull that is open.
func (ib *Inbox) close() {
	p := ib.pull
	ib.settled = p.kind == noWait && p.got > 0 && p.got == p.req.Batch && !p.ended && p.req.MaxBytes == 0
	ib.pull = nil
}

// leaving are the inboxes that were given up, although the remaining messages of their pulls can still arrive. The client's server can be
// a leaf node, or a cluster's other member: messages that the consumer's server has sent for the pull may be on their way, for as long as a
// link between the two is stalled. A message for which nobody subscribes there waits for AckWait. So an inbox stays subscribed until the
// consumer's server has answered a request that began after the last message on it: the server answers behind the messages that it has
// sent. Only then it drains.
//
// Such an answer also proves whether the server has a silent pull: see Engine.Answered.
type leaving struct {
	out *effects

	inboxes []*Inbox      // in the order in which they were given up; they have not drained
	retired uint64        // how many were given up so far
	held    []held        // messages to hand back when the pulls that could bring them again are gone
	proving bool          // requests go on until nothing is left open
	trip    time.Duration // how long the last request took that was answered
	heardAt At            // when it was answered, or the requests began
}

// held is a message to hand back when the first inboxes that were given up are unsubscribed, up to the number after.
type held struct {
	msg   Message
	after uint64
}

// add gives up an inbox with messages reserved for it. If nothing more can arrive, it drains at once.
func (l *leaving) add(now At, ib *Inbox, reserved int, atOnce bool) {
	l.retired++
	ib.number, ib.reserved, ib.leftAt, ib.since = l.retired, reserved, now, now
	l.inboxes = append(l.inboxes, ib)
	if atOnce || reserved == 0 {
		l.drain(func(o *Inbox) bool { return o == ib })
		return
	}
	l.prove(now)
}

// prove has requests sent until nothing is left open.
func (l *leaving) prove(now At) {
	if !l.proving {
		l.proving, l.heardAt = true, now
		l.out.do(Effect{Kind: Prove})
	}
}

// answered notes that a request that began at began was answered, and reports whether the link was stalled before.
func (l *leaving) answered(now, began At) (stalled bool) {
	stalled = now-l.heardAt > 2*l.trip+stallLeast
	l.trip, l.heardAt = now-began, now
	return stalled
}

// arrived takes note of a message on an inbox that was given up, and returns how many messages fewer are on order. The
// inbox stays subscribed while its messages are wanted, or for lateMost where the consumer's server is far: then they are handed back, and need
// not wait for AckWait.
func (l *leaving) arrived(now At, ib *Inbox, wanted bool) (fewer int) {
	fewer = min(ib.reserved, 1)
	ib.reserved -= fewer
	switch far := l.trip > farTrip && now < ib.leftAt+lateMost; {
	case ib.drains:
	case ib.reserved == 0:
		l.drain(func(o *Inbox) bool { return o == ib })
	case wanted || far:
		ib.since = now
		l.prove(now)
	}
	return fewer
}

// subscribed reports whether messages can come to an inbox that was given up.
func (l *leaving) subscribed() bool { return l.first() <= l.retired }

// first is the number of the first inbox that still is subscribed.
func (l *leaving) first() uint64 {
	for _, ib := range l.inboxes {
		if !ib.drains {
			return ib.number
		}
	}
	return math.MaxUint64
}

// reserved counts the messages that may still arrive.
func (l *leaving) reserved() (n int) {
	for _, ib := range l.inboxes {
		n += ib.reserved
	}
	return n
}

// drain unsubscribes the inboxes of which which is true. Then it hands back the messages that waited for that: the server would deliver
// them to the pull of any inbox that is still subscribed.
func (l *leaving) drain(which func(ib *Inbox) bool) {
	for _, ib := range l.inboxes {
		if !ib.drains && which(ib) {
			ib.drains = true
			l.out.do(Effect{Kind: Drain, Inbox: ib})
		}
	}
	n, first := 0, l.first()
	for n < len(l.held) && l.held[n].after < first {
		l.out.do(Effect{Kind: Nak, Msg: l.held[n].msg})
		n++
	}
	l.held = slices.Delete(l.held, 0, n)
}

// drainAll is drain for all.
func (l *leaving) drainAll() { l.drain(func(*Inbox) bool { return true }) }

// handBack returns a message to the server. While a pull that was given up may still be open, the server would deliver it to that pull
// again, so it waits.
func (l *leaving) handBack(m Message) {
	if l.subscribed() {
		l.held = append(l.held, held{m, l.retired})
		return
	}
	l.out.do(Effect{Kind: Nak, Msg: m})
}

// gone forgets an inbox on which nothing more arrives, and returns how many messages fewer are on order.
func (l *leaving) gone(ib *Inbox) (fewer int) {
	if ib.number == 0 {
		return 0
	}
	ib.number = 0
	l.inboxes = slices.DeleteFunc(l.inboxes, func(o *Inbox) bool { return o == ib })
	return ib.reserved
}
