package worker

import (
	"time"

	"github.com/jetpull/jetpull/internal/pull"
)

// checkWithin schedules a call of check in d at the latest. The queue's lock is held.
func (p *Pool[M]) checkWithin(now pull.At, d time.Duration) {
	if at := now + d; !p.closed && (p.checkAt == 0 || at < p.checkAt) {
		p.checkAt = at
		p.timer.Reset(d)
	}
}

// checkSoon schedules a call of check within a quarter of AckWait. The queue's lock is held.
func (p *Pool[M]) checkSoon(now pull.At) {
	if wait := p.queue.consumer.Shortest; wait > 0 {
		p.checkWithin(now, max(time.Millisecond, wait/4))
	}
}

// check is called every quarter of AckWait while a message is held or remembered, and when a handler has failed.
// If the server refuses acknowledgements, it ends the call before the server redelivers handled messages.
func (p *Pool[M]) check() {
	q, disturbed := &p.queue, p.ops.Report.Disturbed()
	q.mu.Lock()
	if p.closed { // the timer fired before Close stopped it
		q.mu.Unlock()
		return
	}
	p.checkAt = 0
	now := p.ops.Now()
	kept := p.toKeep(now)
	q.age(now, disturbed)
	if q.n > 0 || len(q.history.ids) > 0 {
		p.checkSoon(now)
	}
	q.mu.Unlock()
	for _, m := range kept {
		_ = p.ops.InProgress(m) // it fails if the message was settled meanwhile
	}
	if err := p.ops.Refused(); err != nil {
		p.End(err)
	}
}

// toKeep returns the messages that must be reported in progress, because they have been held for half of AckWait. Messages whose handler has
// failed are reported even without KeepAlive: no other client may get them before the outcome reaches the server. The queue's lock is held.
func (p *Pool[M]) toKeep(now pull.At) (ms []M) {
	half := p.queue.consumer.Shortest / 2
	for e := p.queue.held.next; e != &p.queue.held; e = e.next {
		if (p.set.KeepAlive || e.failed) && e.since <= now-half {
			e.since = now
			ms = append(ms, e.latest)
		}
	}
	return ms
}

// lateMost is how late after AckWait the server may redeliver a message.
const lateMost = 5 * time.Second

// age releases memory and resets the window when nothing is held and no message has arrived since the last check.
// It forgets settled messages when those whose acknowledgement was lost must have been redelivered, but not during a disturbance.
func (q *queue[M]) age(now pull.At, disturbed bool) {
	h := &q.history
	idle := q.n == 0 && h.highest == h.checked
	h.checked = h.highest
	if disturbed {
		h.lastAt = now
	}
	if !idle {
		return
	}
	q.window.restart()
	q.free = nil
	if len(q.lines) == 0 { // a handler that has handed its message back may still run
		q.lines = map[string]*line[M]{}
	}
	if now-h.lastAt > q.consumer.Longest+lateMost {
		h.forget()
	}
}
