package worker

import "time"

// look has keepHouse called after d at the latest. The queue's lock is held.
func (p *Pool[M]) look(d time.Duration) {
	if at := p.ops.Now() + d; !p.closed && (p.lookAt == 0 || at < p.lookAt) {
		p.lookAt = at
		p.timer.Reset(d)
	}
}

// forgetAfter is how many looks in a row, ten AckWaits, find nothing held until the messages that were settled are forgotten. By then
// those whose acknowledgement was lost must have been redelivered.
const forgetAfter = 40

// keepHouse looks at the held messages each quarter of AckWait, and when a retry in place is due. It reports a message in
// progress that has been held for half of AckWait. When nothing is held, and no message has come since the last look, it releases
// memory and resets the window.
func (p *Pool[M]) keepHouse() {
	q := &p.queue
	q.mu.Lock()
	if p.closed { // the timer had fired by then
		q.mu.Unlock()
		return
	}
	now, wait := p.ops.Now(), q.consumer.Patience
	next := max(time.Millisecond, wait/4)
	var due []M
	for e := q.held.next; e != &q.held; e = e.next {
		switch {
		case e.due > now:
			next = min(next, e.due-now)
		case e.due > 0 && !q.stopped:
			e.due = 0
			q.wake(e)
		}
		// A message that is retried in place, or waits for its dead letter, is kept in progress even without
		// KeepAlive: no other client may get it.
		keep := p.set.KeepAlive || e.insists || e.retries > 0
		if !keep || e.since > now-wait/2 {
			continue
		}
		e.since = now
		due = append(due, e.latest)
	}
	h := &q.history
	if q.n == 0 && h.highest == h.looked {
		q.window.restart()
		q.free = nil
		if len(q.lines) == 0 { // a handler that has handed its message back may still run
			q.lines = map[string]*line[M]{}
		}
		if h.idle++; p.ops.Report.Disturbed() {
			h.idle = 0
		}
	} else {
		h.looked, h.idle = h.highest, 0
	}
	if h.idle == forgetAfter {
		h.memory = memory{}
	}
	p.lookAt = 0
	if q.n > 0 || len(h.memory.ids) > 0 {
		p.look(next)
	}
	q.mu.Unlock()
	for _, m := range due {
		_ = p.ops.InProgress(m) // it fails if the message was settled meanwhile
	}
}
