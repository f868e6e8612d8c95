package pull

import "github.com/jetpull/jetpull/internal/wire"

// decide says what becomes of a demand whose pull has ended.
func (e *Engine) decide(now At, d *Demand, p *pull, o ending) {
	st := o.status
	some := d.n > 0 && d.Mode == Some
	switch class := st.Condition.Class(); {
	case d.Done:
	case o.fatal != nil:
		e.finish(d, o.fatal)
	case o.silent, o.lost:
		e.decideSilent(d, p, o, some)
	case o.filled && p.kind == oneShot && some:
		e.finish(d, nil)
	case o.filled:
		// The messages went to demands before this one, or there are more than a pull may ask for: look what is
		// there.
		d.long = d.long && d.Mode == Fill
	case st.Condition == wire.LimitExceeded && !e.overLimit(now, d, p):
		d.cause = &Refused{st}
		if some {
			e.finish(d, nil)
		}
	case class == wire.Config, class == wire.Terminal:
		e.finish(d, &Refused{st})
	case class == wire.Pin:
	case class == wire.Retry:
		d.cause, d.loud = &Refused{st}, d.loud || st.Condition == wire.MaxWaiting
		if some {
			e.finish(d, nil)
		}
	case some:
		e.finish(d, nil)
	case st.Condition == wire.MaxBytes:
		e.finish(d, &Refused{st})
	case p.kind != noWait:
		if st.Condition == wire.Expired && d.Deadline <= now+ExpiresMargin+ExpiresMargin/2 {
			e.finish(d, &Timeout{d.cause})
		}
	case d.early:
	case d.NoWait:
		e.finish(d, ErrEmpty)
	default:
		d.long = true
	}
}

// decideSilent handles a pull that ended without a word. A no-wait pull does so where the consumer is at
// MaxAckPending, so the long pull comes next and an earlier cause stands; with NoWait it is tried once more, for
// the answer may just have been lost.
func (e *Engine) decideSilent(d *Demand, p *pull, o ending, some bool) {
	switch {
	case o.lost:
		d.cause = ErrLost
	case p.kind != noWait || d.cause == nil:
		d.cause = ErrSilent
	}
	d.tries++
	d.loud = d.loud || o.silent && p.kind != noWait
	switch {
	case some:
		e.finish(d, nil)
	case o.lost, p.kind != noWait:
	case !d.NoWait:
		d.long = true
	case d.tries > 1:
		e.finish(d, &Timeout{ErrAckPending})
	}
}
