package pull

import "github.com/jetpull/jetpull/internal/wire"

// Demand is an Ask that was posted. The engine owns its fields until it is Done; then the caller owns them.
// The messages of a standing demand leave it by the Deliver effect.
type Demand struct {
	Ask            // fixed when it is posted, except for Want
	Ref  any       // the driver's; fixed too
	Got  []Message // delivered, not yet taken by the caller
	Done bool
	Err  error

	share *share
	pull  *pull // the pull that covers it; nil: it needs one
	long  bool  // its next pull is a long one
	// noHeartbeat is set after a long pull stayed silent, or the server's queue of pulls was full. A server whose queue is
	// full drops a pull with a heartbeat without a status, but answers a pull without one with MaxWaiting.
	noHeartbeat bool
	cause       error // the last problem
	n           int   // messages delivered to it so far
	bytes       int   // the size of those messages
	stand       *standing
	spare       []Message // memory of the last messages that were handed over
}

// wants reports whether a message can be delivered to d.
func (d *Demand) wants() bool { return d.Mode == Standing || d.Want > 0 }

// looks reports whether d is a call that has not looked for available messages by a no-wait pull.
func (d *Demand) looks() bool { return d.Mode != Standing && !d.long }

// add delivers m to d, and reports whether d has all messages that it waits for.
func (d *Demand) add(m Message, size int) (over bool) {
	d.Got = append(d.Got, m)
	d.n++
	d.bytes += size
	if d.Mode == Standing {
		d.stand.held++
		d.stand.heldBytes += size
		return false
	}
	d.Want--
	if d.pull != nil {
		d.pull.need--
	}
	return d.Want == 0 || d.MaxBytes > 0 && d.bytes >= d.MaxBytes
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

// lookAgain makes d, which has a message, get the other available messages by a no-wait pull, unless the pull that covers d ends soon by
// itself. A no-wait pull does, and a one-shot that has brought messages. A long pull does not if the message came by another pull. A call
// with FillBatch waits for its whole batch.
func (d *Demand) lookAgain() {
	if d.Mode == Some && d.long && (d.pull == nil || d.pull.kind != oneShot || d.pull.got == 0) {
		d.detach()
		d.long = false
	}
}

// bytesLeft is the max_bytes of a pull for d.
func (d *Demand) bytesLeft() int {
	if d.MaxBytes == 0 {
		return 0
	}
	return max(1, d.MaxBytes-d.bytes)
}

// Cause returns the last problem of d, or nil if there was none.
func (d *Demand) Cause() error { return d.cause }

// pullEnded decides how a call continues after its pull has ended. It reports whether the call ends, and with which error. The first row that
// applies decides. "Some" means that the call has messages and need not wait for its whole batch.
//
//	| the pull                                           | the call                                                |
//	| ---                                                | ---                                                     |
//	| ended without an answer, or was a one-shot; some   | ends                                                    |
//	| was lost, or was a long pull without an answer     | is pulled for again                                     |
//	| was a no-wait pull without an answer               | waits by a long pull: the consumer may be at            |
//	|                                                    | MaxAckPending; with NoWait the pull expires at once, and |
//	|                                                    | if that is not answered the call ends                   |
//	| is filled, for calls before this one               | gets a no-wait pull; with Fill, a long one if it had one |
//	| is refused for its terms, or the consumer is gone  | ends with the status                                    |
//	| had an old pin id                                  | is pulled for again                                     |
//	| ended by any other status; some                    | ends                                                    |
//	| cannot be served now                               | is pulled for again, after the back-off                 |
//	| has too few bytes for the next message             | ends with the status                                    |
//	| was a long pull                                    | is pulled for again until its deadline                  |
//	| found nothing                                      | waits by a long pull; with NoWait it ends               |
func (d *Demand) pullEnded(now At, p *pull, o *ending) (over bool, err error) {
	st, class := o.status, o.status.Condition.Class()
	some := d.n > 0 && d.Mode == Some
	d.note(p, o)
	switch {
	case some && (o.silent || o.lost || o.filled && p.kind == oneShot):
		return true, nil
	case o.silent && d.NoWait && d.long:
		return true, &Timeout{ErrSilent}
	case o.lost, o.silent && p.kind != noWait:
	case o.silent:
		d.long = true
	case o.filled:
		d.long = d.long && d.Mode == Fill
	case class == wire.Config, class == wire.Terminal:
		return true, &Refused{st}
	case class == wire.Pin:
	case some:
		return true, nil
	case class == wire.Retry:
	case st.Condition == wire.MaxBytes:
		return true, &Refused{st}
	case d.NoWait:
		return true, ErrEmpty
	case p.kind != noWait:
		if st.Condition == wire.Expired && d.Deadline <= now+ExpiresMargin+ExpiresMargin/2 {
			return true, &Timeout{d.cause}
		}
	default:
		d.long = true
	}
	return false, nil
}

// note records the problem that ended d's pull.
func (d *Demand) note(p *pull, o *ending) {
	switch {
	case o.lost:
		d.cause = ErrLost
	case o.silent && (p.kind != noWait || d.cause == nil):
		d.cause = ErrSilent
	case o.status.Condition.Class() == wire.Retry:
		d.cause = &Refused{o.status}
	}
	d.noHeartbeat = d.noHeartbeat || o.silent && p.kind != noWait || o.status.Condition == wire.MaxWaiting
}
