package pull

import (
	"github.com/jetpull/jetpull/internal/wire"
)

// config is what the engine knows of readings of the consumer's configuration.
type config struct {
	checking bool // a reading is under way, or was asked for
	// unread is set while standing demands wait for a reading, because the consumer was gone and can be another one.
	unread bool
	at     At  // when the next reading is asked for, while unread
	reads  int // how often that was
	// needs counts how often a reading was needed: one that was sent before says nothing of what is there now.
	needs uint64
}

// check has the configuration read once; nothing waits for the answer.
func (e *Engine) check() {
	if !e.config.checking && !e.closed {
		e.config.checking = true
		e.do(Effect{Kind: ReadConfig})
	}
}

// mustRead lets no standing demand pull before the configuration has been read.
func (e *Engine) mustRead(now, from At) {
	c := &e.config
	c.needs++
	if !c.unread {
		c.unread, c.reads, c.at = true, 0, from
	}
	e.ask(now)
}

// ask has the configuration read if that is due and somebody waits for it. A reading can stay unanswered while
// the consumer has no leader, so the next does not wait for its end.
func (e *Engine) ask(now At) {
	if !e.asks() {
		return
	}
	if c := &e.config; now >= c.at {
		c.at = now + e.backOffTime(c.reads, lastBackOff)
		c.reads++
		c.checking = true
		e.do(Effect{Kind: ReadConfig})
	}
	e.schedule(e.config.at)
}

// asks reports whether a demand waits for a reading.
func (e *Engine) asks() bool { return e.config.unread && !e.down && !e.closed && e.standing > 0 }

// Needs returns how often a reading was needed so far; see Configured.
func (e *Engine) Needs() uint64 { return e.config.needs }

// Configured takes the limits that a reading brought. needs is what Needs returned when the reading was sent.
func (e *Engine) Configured(now At, lim Limits, needs uint64) {
	e.config.checking = false
	if needs != e.config.needs {
		return
	}
	e.config.unread = false
	if e.limits.AckNone && !lim.AckNone {
		// The late messages came from a consumer that is gone; this one delivers them.
		for _, s := range e.shares {
			e.stats.Dropped += uint64(len(s.stash))
			s.stash = nil
		}
		e.capacity.want = 0 // a demand that can use a larger channel asks again
	}
	e.limits = lim
	for _, s := range e.shares {
		e.settle(now, s)
	}
}

// Unreadable says that a reading failed: with gone, the consumer does not exist and calls with a deadline end;
// nil says nothing. Standing demands wait until it is found.
func (e *Engine) Unreadable(now At, gone error) {
	e.config.checking = false
	if gone == nil {
		return
	}
	e.mustRead(now, now+e.backOffTime(0, lastBackOff))
	for _, s := range e.shares {
		for _, d := range append([]*Demand(nil), s.demands...) {
			if d.Mode == Standing {
				e.trouble(d, gone)
			} else {
				e.finish(d, gone)
			}
		}
		e.settle(now, s)
	}
}

// overLimit takes in that the server refused p as over a limit, and reports whether d asks for more than the limits that
// are known; a no-wait pull asks for no time. If not, they were lowered: they are read, and d is tried again after a while.
func (e *Engine) overLimit(now At, d *Demand, p *pull) bool {
	e.check()
	l := &e.limits
	if d.Mode != Standing && (l.Batch > 0 && d.Want > l.Batch || l.Bytes > 0 && d.MaxBytes > l.Bytes || p.kind != noWait && e.isOver(now, d)) {
		return true
	}
	if d.share.retryAt <= now {
		e.backOff(now, d.share)
	}
	return false
}

// isRefusable reports whether a request is over the limits, as they were read last.
func (e *Engine) isRefusable(req *wire.Request) bool {
	l := &e.limits
	return l.Batch > 0 && req.Batch > l.Batch || l.Expires > 0 && req.Expires > l.Expires || l.Bytes > 0 && req.MaxBytes > l.Bytes
}
