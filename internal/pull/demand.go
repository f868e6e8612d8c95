package pull

import "time"

// Mode says when a demand is satisfied.
type Mode uint8

// The modes of a demand.
const (
	Some     Mode = iota // by the first messages, up to Want
	Fill                 // by Want messages
	Standing             // never: it keeps a window on order until it leaves
)

// Terms are the terms of a pull in a priority group, and its heartbeat. Pulls with equal terms serve each other's callers.
type Terms struct {
	Group         string
	MinPending    int64
	MinAckPending int64
	Priority      int
	Heartbeat     time.Duration // asked for; 0: by the length of the wait
}

// Ask is what one caller wants: up to Want messages, at least one, until a deadline.
type Ask struct {
	Terms    Terms
	Mode     Mode
	Want     int // messages it still wants; unused by a standing demand
	Deadline At  // 0: none
	// Chosen is set if the user chose the wait: the pull then asks for it even if it is over the consumer's limit.
	Chosen   bool
	NoWait   bool
	MaxBytes int // 0: no limit
	// Window, Workers and Bytes apply to a standing demand: see standing.
	Window, Workers, Bytes int
}

// Demand is an Ask that was posted. The engine owns its fields until it is Done; then they belong to the
// caller. The messages of a standing demand leave it by the Deliver effect.
type Demand struct {
	Ask
	Ref  any       // the driver's
	Got  []Message // delivered, not yet taken by the caller
	Done bool
	Err  error
	// Reading is set while the caller reads for all demands, or is about to: it is not woken.
	Reading bool

	share *share
	pull  *pull // the pull that covers it; nil: it needs one
	long  bool  // the no-wait pull found nothing
	tries int   // no-wait pulls with NoWait that stayed silent
	// noHeartbeat is set once a long pull stayed silent, or the server's queue of pulls was full: the server drops a
	// pull with a heartbeat without a status, and answers one without it with MaxWaiting.
	noHeartbeat bool
	cause       error // the last problem
	n           int   // messages delivered to it so far
	bytes       int   // and their size
	stand       *standing
	spare       []Message // memory of the last messages that were handed over
}

// wants reports whether a message can be delivered to d.
func (d *Demand) wants() bool { return d.Mode == Standing || d.Want > 0 }

// add delivers m to d.
func (d *Demand) add(m Message, size int) {
	d.Got = append(d.Got, m)
	d.n++
	d.bytes += size
	if d.Mode == Standing {
		d.stand.held++
		d.stand.heldBytes += size
		return
	}
	d.Want--
	if d.pull != nil {
		d.pull.need--
	}
}

// attach lets p cover d.
func (d *Demand) attach(p *pull) {
	d.pull = p
	p.demands++
	p.need += d.Want
}

// detach removes the pull that covers d.
func (d *Demand) detach() {
	if d.pull != nil {
		d.pull.demands--
		d.pull.need -= d.Want
		d.pull = nil
	}
}

// bytesLeft is the max_bytes of a pull for d.
func (d *Demand) bytesLeft() int {
	if d.MaxBytes == 0 {
		return 0
	}
	return max(1, d.MaxBytes-d.bytes)
}

// batchEnds reports whether the pull of d, which has a message now, will end soon by itself. A no-wait pull does, and a
// one-shot that has brought some. A long pull does not if the message came by another pull, and one of FillBatch waits
// for its whole batch.
func (d *Demand) batchEnds() bool {
	return !d.long || d.pull != nil && d.pull.kind == oneShot && d.pull.got > 0
}

// Post accepts a demand.
func (e *Engine) Post(now At, d *Demand) {
	if d.Mode == Standing {
		d.stand = &standing{window: d.Window, workers: d.Workers, bytes: d.Bytes}
	}
	if e.dead != nil {
		e.finish(d, e.dead)
		return
	}
	s := e.shareOf(d.Terms, d.Mode != Standing && (d.MaxBytes > 0 || e.overLimits(now, d)))
	d.share = s
	s.demands = append(s.demands, d)
	if d.Mode == Standing {
		e.standing++
	}
	e.schedule(d.Deadline)
	e.unstash(d) // before anything is pulled for it
	if e.config.awaited && !e.config.reading && d.Mode == Standing {
		e.readConfig()
	}
	if !d.Done && d.n > 0 && d.Mode == Some {
		e.finish(d, nil)
	}
	e.cover(now, s)
}

// Cancel ends a demand whose caller leaves with err.
func (e *Engine) Cancel(now At, d *Demand, err error) {
	if d.Done {
		return
	}
	e.finish(d, err)
	e.cover(now, d.share)
}

// Cause returns the last problem of d; nil: there was none.
func (d *Demand) Cause() error { return d.cause }

// finish ends a demand. One that has messages has no error.
func (e *Engine) finish(d *Demand, err error) {
	if d.Done {
		return
	}
	if d.n > 0 && d.Mode != Standing {
		err = nil
	}
	d.Done, d.Err = true, err
	d.detach()
	if d.share != nil {
		d.share.demands = without(d.share.demands, d)
		if d.Mode == Standing {
			e.standing--
		}
	}
	switch {
	case d.Mode == Standing:
		e.notify(d)
	case !d.Reading:
		e.do(Effect{Kind: Wake, Demand: d})
	}
}

// notify adds the effect that hands over d's messages and its end.
func (e *Engine) notify(d *Demand) {
	if !d.stand.notified {
		d.stand.notified = true
		e.do(Effect{Kind: Deliver, Demand: d})
	}
}

// deliver gives m to d.
func (e *Engine) deliver(d *Demand, m Message, size int) {
	d.add(m, size)
	switch {
	case d.Mode == Standing:
		d.stand.starving = false
		e.notify(d)
	case d.Want == 0 || d.MaxBytes > 0 && d.bytes >= d.MaxBytes:
		e.finish(d, nil)
	case d.Mode == Some && !d.batchEnds():
		// Its pull does not end by itself: a no-wait pull gets the other messages that are available.
		d.detach()
		d.long = false
	}
}
