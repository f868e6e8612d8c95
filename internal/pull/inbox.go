package pull

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// Inbox is one subscription. A pooled inbox has a wildcard and serves one pull after another; the last token of the reply subject names
// the pull. A single inbox serves one pull and is dropped.
type Inbox struct {
	// Fixed when the first pull is sent.
	Subject string // the subject of the subscription
	Prefix  string // of the reply subjects; the subject itself for a single inbox

	Ref any // the driver's: the goroutine that carries out effects sets it

	single bool
	pull   *pull // the open pull, which is in memory; nil: none

	// The reply subject of the open pull, or of the last one, and when it was first used. settled means that no status of that pull can arrive.
	reply     string
	repliedAt At
	settled   bool

	// Set when the inbox is given up: see leaving.
	number   uint64 // in the order in which inboxes are given up; 0: not given up
	reserved int    // messages that may still arrive
	leftAt   At
	since    At // when it was given up, or when the last message arrived that keeps it subscribed
	drains   bool

	memory pull // the open pull, or the last one
}

// serve begins a pull of a kind. The server caches where it routes a reply subject, so consecutive no-wait pulls share one for replyLife,
// but only if the last pull is settled: otherwise a late status could be taken for one of a later pull. seq is the number of a new reply
// subject.
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

// close ends the open pull.
func (ib *Inbox) close() {
	p := ib.pull
	ib.settled = p.kind == noWait && p.got > 0 && p.got == p.req.Batch && !p.ended && p.req.MaxBytes == 0
	ib.pull = nil
}

// leaving holds the inboxes that were given up while messages of their pulls can still arrive. The client's server can be a leaf node, or
// another member of the cluster. Then messages that the consumer's server has sent for the pull may be in flight for as long as the link
// between the two servers is stalled. A message that finds no subscription waits for AckWait. So an inbox stays subscribed until the
// consumer's server has answered a request that began after the last message on the inbox, because the answer follows all messages that
// the server has sent before. Only then the inbox drains.
//
// Such an answer also proves whether the server has a silent pull: see Engine.Answered.
type leaving struct {
	out *effects

	inboxes []*Inbox      // in the order in which they were given up; they have not drained
	retired uint64        // number of inboxes given up so far
	held    []held        // messages to hand back when the pulls that could bring them again are gone
	proving bool          // requests are sent until nothing is left open
	trip    time.Duration // duration of the last answered request
	heardAt At            // when that was answered, or when the requests began
}

// held is a message to hand back when all inboxes with numbers up to after are unsubscribed.
type held struct {
	msg   Message
	after uint64
}

// add gives up an inbox on which up to reserved messages may arrive. If none may, or if atOnce, the inbox drains at once.
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

// prove makes the driver send requests to the consumer until nothing is left open.
func (l *leaving) prove(now At) {
	if !l.proving {
		l.proving, l.heardAt = true, now
		l.out.do(Effect{Kind: Prove})
	}
}

// answered records that a request that began at began was answered, and reports whether the link was stalled before.
func (l *leaving) answered(now, began At) (stalled bool) {
	stalled = now-l.heardAt > 2*l.trip+stallLeast
	l.trip, l.heardAt = now-began, now
	return stalled
}

// arrived records a message on an inbox that was given up, and returns how many messages fewer are on order. The inbox
// stays subscribed while its messages are wanted. If the consumer's server is far, it does so for lateMost in any case: then its messages are
// handed back, and do not wait for AckWait.
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

// subscribed reports whether an inbox that was given up is still subscribed.
func (l *leaving) subscribed() bool { return l.first() <= l.retired }

// first returns the number of the first inbox that is still subscribed.
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

// drain unsubscribes the inboxes for which which returns true. Then it hands back the messages that waited for that. As long as an inbox is
// subscribed, the server would deliver them to its pull.
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

// drainAll drains all inboxes.
func (l *leaving) drainAll() { l.drain(func(*Inbox) bool { return true }) }

// handBack hands a message back to the server. It waits while a pull that was given up may still be open, because the server would deliver
// the message to that pull again.
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
