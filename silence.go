package jetpull

import (
	"context"
	"time"
)

// A standing claim's pull that is overdue was dropped by the server, or the
// connection carries nothing at present. A ping tells which: its answer comes
// after all that the server had sent before.

const (
	// pingPatience is how long a ping may take before the silence is reported,
	// and pingWait how long it is waited for before another is sent.
	pingPatience = 2 * time.Second
	pingWait     = 10 * time.Second
	// pingPause is waited where a ping cannot be sent, until it is known why.
	pingPause = 100 * time.Millisecond
)

// suspects reports whether p, which is overdue, is kept for now: a standing
// claim's pull is given up only when the connection is known to carry what the
// server sends. On one that does not, or is slow, another pull would be as late.
func (r *rules) suspects(now at, p *pull) bool {
	if p.owner == nil || p.ended || r.down {
		return false
	}
	if p.suspect == 0 {
		p.suspect = now
	} else if p.owner.stand.doubt == 0 {
		p.owner.stand.doubt, p.owner.stand.silent = 1, false
		r.do(action{kind: actProblem, claim: p.owner, err: errSilent})
	}
	p.deadline = now + pingPatience
	r.schedule(p.deadline)
	r.ping(now)
	return true
}

func (r *rules) ping(now at) {
	if r.pinged == 0 {
		r.pinged = max(1, now)
		r.do(action{kind: actPing})
	}
}

// ponged takes the answer to a ping, or that there was none, after everything
// that came before it. What is still suspect was dropped by the server.
func (r *rules) ponged(now at, answered bool) {
	pinged := r.pinged
	r.pinged = 0
	if answered {
		r.link = now - pinged
	}
	again := false
	for _, l := range r.lanes {
		for i := len(l.pulls) - 1; i >= 0; i-- {
			p := l.pulls[i]
			switch {
			case p.suspect == 0:
			case answered && p.suspect <= pinged:
				r.end(now, p, outcome{silent: true, unsure: true})
			default:
				again = true
			}
		}
		r.settle(now, l)
	}
	if again && !r.down {
		r.ping(now)
	}
}

// pong is what became of a ping, until the reader looks.
type pong uint8

const (
	pongNone pong = iota
	pongCame
	pongMissed
)

// ping asks for a sign of life, and leaves the answer to the reader, who first
// takes what has arrived before it.
func (e *engine) ping() {
	e.group.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, pingWait)
		defer cancel()
		err := e.nc.FlushWithContext(ctx)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(pingPause):
			}
		}
		e.mu.Lock()
		e.pong = pongMissed
		if err == nil {
			e.pong = pongCame
		}
		e.ensureReader()
		e.mu.Unlock()
		e.nudge()
	})
}

// takePong brings the rules the answer to a ping, after what came before it.
func (e *engine) takePong() {
	if e.pong == pongNone {
		return
	}
	now := e.now()
	for range len(e.in) {
		e.take(now, <-e.in)
	}
	came := e.pong == pongCame
	e.pong = pongNone
	e.rules.ponged(now, came)
	e.lookForRefusal(now)
}
