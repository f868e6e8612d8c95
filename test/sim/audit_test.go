package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jetpull/jetpull/internal/natstest/model"
)

// delivery is one message that the model sent.
type delivery struct {
	deliveryID
	at   time.Duration
	life string
	kind model.Kind // Delivered, Lost or Unwanted
	got  *handing   // the last one, where it was retried in place; nil: nobody was handed it
}

// course is all that happened to one message.
type course struct {
	seq        uint64
	deliveries []*delivery
	handings   []*handing
	naks       []nak     // that reached the server, whatever it made of them
	ended      []endedAt // when it was terminated, or may have been and the server took no note
	overdue    []time.Duration
	settled    time.Duration // acked, terminated or given up; 0: never
	as         model.Kind
}

// nak is what came for a delivery, by its sequence.
type nak struct {
	at, wait   time.Duration
	deliverSeq uint64
	taken      bool // by the server
}

// endedAt is when a message was terminated, or may have been, and the number of the delivery; 0: that is not known.
type endedAt struct {
	at         time.Duration
	deliverSeq uint64
}

// audit holds what the processes noted against the model's history.
type audit struct {
	*schedule
	history []model.Event
	courses map[uint64]*course
	order   []uint64        // of the messages
	crashes []time.Duration // when the server forgot deliveries; see forgets
}

// check returns all that is wrong, in the order in which it was found.
func (s *schedule) check(history []model.Event) []string {
	a := &audit{schedule: s, history: history, courses: map[uint64]*course{}}
	a.read()
	gone, deleted := a.plan.deletion()
	for _, r := range a.runs {
		if deleted && r.gone && (r.stopped == 0 || r.stopped > gone.at) {
			r.stopped = gone.at
		}
		r.alone = !slices.ContainsFunc(a.runs, func(o *run) bool { return o != r && o.life == r.life && o.from <= r.end && o.end >= r.from })
	}
	for _, seq := range a.order {
		if !a.plan.ackNone() {
			a.conclude(a.courses[seq])
		}
	}
	a.checkLoss()
	a.checkDead()
	a.checkGone()
	a.checkReset()
	a.checkStranded()
	a.checkAckWait()
	a.checkDuplicates()
	a.checkCopies()
	a.checkOrder()
	a.checkDelays()
	a.checkPins()
	a.checkStats()
	a.checkRate()
	a.checkRefusals()
	return s.wrongs
}

func (a *audit) since(t time.Time) time.Duration { return t.Sub(a.start) }

// forgets reports whether after an event the server may have forgotten deliveries. With ack policy none deliveries do not wait for a quorum, and a
// new leader begins at the position of its replica.
func (a *audit) forgets(kind model.Kind) bool {
	return kind == model.ServerDown || kind == model.Deleted || kind == model.LeaderLost && a.plan.ackNone()
}

// read sorts the history by message.
func (a *audit) read() {
	for _, e := range a.history {
		at := a.since(e.At)
		if a.forgets(e.Kind) {
			a.crashes = append(a.crashes, at)
		}
		if e.Seq == 0 || e.Stream != streamName {
			continue
		}
		f := a.courses[e.Seq]
		if f == nil {
			f = &course{seq: e.Seq}
			a.courses[e.Seq] = f
			a.order = append(a.order, e.Seq)
		}
		f.read(at, e)
	}
	for _, h := range a.handings {
		f := a.courses[h.seq]
		if f == nil {
			a.wrongWith(h.seq, "%s was handed a message that was never stored", h.life)
			continue
		}
		if end := a.lives[h.life]; end != nil && h.run != nil && h.when > h.run.end && h.when > end.closed-a.plan.trip() {
			h.verb, h.failed, h.late = "", false, true
		}
		f.handings = append(f.handings, h)
		f.match(a, h)
	}
}

func (f *course) read(at time.Duration, e model.Event) {
	switch e.Kind {
	case model.Delivered, model.Lost, model.Unwanted:
		f.deliveries = append(f.deliveries, &delivery{
			deliveryID: deliveryID{e.Seq, e.DeliverSeq, e.Count}, at: at, life: lifeOf(e.Reply), kind: e.Kind,
		})
	case model.Naked:
		f.naks = append(f.naks, nak{at, e.Wait, e.DeliverSeq, true})
	case model.Ignored, model.Unanswered:
		if e.Text == "not pending" || e.Text == "not yet delivered" || strings.HasPrefix(e.Text, "+TERM") {
			f.ended = append(f.ended, endedAt{at, e.DeliverSeq})
		}
		if strings.HasPrefix(e.Text, "nak") || strings.HasPrefix(e.Text, "-NAK") {
			f.naks = append(f.naks, nak{at: at, deliverSeq: e.DeliverSeq})
		}
	case model.Overdue:
		f.overdue = append(f.overdue, at)
	case model.Acked, model.Termed, model.Exceeded:
		f.settled, f.as = at, e.Kind
		if e.Kind == model.Termed {
			f.ended = append(f.ended, endedAt{at, e.DeliverSeq})
		}
	default:
	}
}

// match finds the delivery by which a message was handed over, for the first time or for a retry in place: the last that can be, for a consumer that
// is recreated counts from one again, and what it delivered before may have got lost.
func (f *course) match(a *audit, h *handing) {
	var later *delivery // with the same number, of a server that crashed
	for _, d := range slices.Backward(f.deliveries) {
		if d.at > h.at || d.kind != model.Delivered || d.life != h.life || d.deliveryID != h.deliveryID {
			continue
		}
		switch {
		case d.got == nil || d.got.run == h.run && d.got.inPlace():
			d.got, h.sent = h, d.at
			return
		case later != nil && later.got.run == d.got.run && d.got.inPlace():
			d.got, later.got = later.got, h // it was not that one which was retried
			d.got.sent, h.sent = d.at, later.at
			return
		}
		later = d
	}
	a.wrongWith(h.seq, "%s was handed %v, which it was not sent", h.life, h.deliveryID)
}

// lifeOf is the life that an inbox belongs to.
func lifeOf(reply string) string {
	life, _, _ := strings.Cut(reply, ".")
	return life
}

// isPull reports whether an event is a pull that came to the server.
func isPull(e model.Event) bool {
	return e.Kind == model.Pulled || e.Kind == model.Unanswered && e.Seq == 0
}

// excused reports whether something was broken at some time from one time to another, or so soon before or after that it may have mattered.
func (a *audit) excused(from, to time.Duration) bool {
	return a.meets(a.outages, from, to) || a.meets(a.plan.stalls, from, to)
}

// meets reports whether one of some stretches, or the time of a round trip before or after it, was between two times.
func (a *audit) meets(spans []span, from, to time.Duration) bool {
	slack := a.plan.trip()
	return slices.ContainsFunc(spans, func(o span) bool { return o.from-slack <= to && from <= o.to+slack })
}

// arrives is when a message that the server sent at a time has arrived, and its answer is back.
func (a *audit) arrives(sent time.Duration) time.Duration {
	at := sent + 2*a.plan.trip()
	for _, s := range a.plan.stalls {
		if s.from <= at && sent <= s.to {
			at = max(at, s.to+2*a.plan.trip())
		}
	}
	return at
}

// excusedDelivery reports whether a message that was not handed over may have got lost on the way to the client, in the client, or on the way back.
func (a *audit) excusedDelivery(d *delivery) bool {
	to := a.arrives(d.at)
	if d.kind != model.Delivered || a.meets(a.outages, d.at, to) || a.plan.ackNone() && a.excused(d.at, to) {
		return true
	}
	end := a.lives[d.life]
	if end == nil {
		return false
	}
	if to > d.at+2*a.plan.trip() && (to >= end.closing || a.endedBefore(d)) {
		return true // Close does not wait for a link that stalls
	}
	if a.meets(a.plan.stalls, d.at, to) {
		to += letGoMost // what came for a call that has ended waits until the consumer's server has answered
	}
	return end.killed > 0 && to >= end.killed || slices.ContainsFunc(a.runs, func(r *run) bool {
		return r.life == d.life && r.end >= d.at && (end.killed > 0 && r.end >= end.killed || a.endedInOutage(r))
	})
}

// endedInOutage reports whether what a run handed back, when it was stopped or at its end, may have got lost.
func (a *audit) endedInOutage(r *run) bool {
	lost := func(at time.Duration) bool { return a.meets(a.outages, at, a.arrives(at)) }
	return lost(r.end) || r.stopped > 0 && lost(r.stopped)
}

// letGoMost is how long after the end of a call the client still receives what its pulls bring, while nothing is broken.
const letGoMost = time.Second

// endedBefore reports whether d was sent in a stall, and a call of its client ended so soon before that the server did not hear of it. A call
// that ended in another stall shortly before counts too.
func (a *audit) endedBefore(d *delivery) bool {
	slack := letGoMost + 2*a.plan.trip()
	return slices.ContainsFunc(a.plan.stalls, func(s span) bool {
		early := s.from - slack
		for _, before := range a.plan.stalls {
			if before.from < s.from && before.to >= early {
				early = before.from - slack
			}
		}
		ended := func(at time.Duration) bool { return at >= early && at <= s.from }
		return d.at >= s.from-a.plan.trip() && d.at <= s.to &&
			(slices.ContainsFunc(a.calls, func(c call) bool { return c.life == d.life && ended(c.to) }) ||
				slices.ContainsFunc(a.runs, func(r *run) bool {
					return r.life == d.life && (ended(r.end) || ended(r.stopped) || r.refusedWithin(early, s.from))
				}))
	})
}

// refusedWithin reports whether a Consume that nobody stopped may have ended between two times, as when it refuses the consumer's new
// configuration. Then its handlers went on, for its drain at most.
func (r *run) refusedWithin(from, to time.Duration) bool {
	return r.kind == useConsume && r.stopped == 0 && r.end >= from && r.end-r.drain-drainGrace <= to
}

// story is the history as a failing seed prints it: all that happened to the
// messages that something is wrong with, and all that concerns no message.
func (s *schedule) story(history []model.Event) []string {
	type line struct {
		at   time.Duration
		text string
	}
	var lines []line
	all := len(s.suspects) == 0 || *everything
	for _, e := range history {
		if all || e.Seq == 0 || s.suspects[e.Seq] {
			text := e.String()
			lines = append(lines, line{e.At.Sub(s.start), text[strings.IndexByte(text, ' ')+1:]})
		}
	}
	for _, h := range s.handings {
		if !all && !s.suspects[h.seq] {
			continue
		}
		by := "call"
		if h.run != nil {
			by = h.run.kind
		}
		lines = append(lines, line{h.at, fmt.Sprintf("  %s: %s handed %v", h.life, by, h.deliveryID)})
		if h.done {
			lines = append(lines, line{h.over, fmt.Sprintf("  %s: handler of %v returned", h.life, h.deliveryID)})
		}
		if h.verb != "" {
			lines = append(lines, line{h.when, fmt.Sprintf("  %s: %s of %v, failed %t, attempts %d to %d", h.life, h.verb, h.deliveryID, h.failed, h.least,
				h.most)})
		}
	}
	for _, r := range s.runs {
		lines = append(lines, line{r.from, fmt.Sprintf("  %s: %s begins: %+v", r.life, r.kind, *r)},
			line{r.end, fmt.Sprintf("  %s: %s ended", r.life, r.kind)})
	}
	for name, end := range s.lives {
		lines = append(lines, line{end.closed, fmt.Sprintf("  %s: closed, killed at %v", name, end.killed)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return int(a.at - b.at) })
	texts := make([]string, len(lines))
	for i, l := range lines {
		texts[i] = fmt.Sprintf("%12v %s", l.at, l.text)
	}
	return texts
}
