package worker

import (
	"time"

	"github.com/jetpull/jetpull/internal/pull"
)

// look has keepHouse called after d at the latest. The queue's lock is held.
func (p *Pool[M]) look(now pull.At, d time.Duration) {
	if at := now + d; !p.closed && (p.lookAt == 0 || at < p.lookAt) {
		p.lookAt = at
		p.timer.Reset(d)
	}
}

// lookAgain has keepHouse called within a quarter of AckWait. The queue's lock is held.
func (p *Pool[M]) lookAgain(now pull.At) {
	if wait := p.queue.consumer.Shortest; wait > 0 {
		p.look(now, max(time.Millisecond, wait/4))
	}
}

// keepHouse is called each quarter of AckWait while something is held or remembered, and when a retry in place is due. It
// reports a message in progress that has been held for half of AckWait.
func (p *Pool[M]) keepHouse() {
	q, disturbed := &p.queue, p.ops.Report.Disturbed()
	q.mu.Lock()
	if p.closed { // the timer had fired by then
		q.mu.Unlock()
		return
	}
	now, wait := p.ops.Now(), q.consumer.Shortest
	p.lookAt = 0
	var due []M
	for e := q.held.next; e != &q.held; e = e.next {
		switch {
		case e.due > now:
			p.look(now, e.due-now)
		case e.due > 0:
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
	idle := q.n == 0 && q.history.highest == q.history.looked
	q.history.looked = q.history.highest
	if disturbed {
		q.history.memory.lastAt = now
	}
	if idle {
		q.trim(now)
	}
	if q.n > 0 || len(q.history.memory.ids) > 0 {
		p.lookAgain(now)
	}
	q.mu.Unlock()
	for _, m := range due {
		_ = p.ops.InProgress(m) // it fails if the message was settled meanwhile
	}
}

// lateMost is how long after AckWait the server may redeliver a message.
const lateMost = 5 * time.Second

// trim releases memory when nothing is held and no message has come since the last check, and resets the window.
// Settled messages are forgotten when all messages whose acknowledgement was lost must have been redelivered.
func (q *queue[M]) trim(now pull.At) {
	q.window.restart()
	q.free = nil
	if len(q.lines) == 0 { // a handler that has handed its message back may still run
		q.lines = map[string]*line[M]{}
	}
	if now-q.history.memory.lastAt > q.consumer.Longest+lateMost {
		q.history.memory = memory{}
	}
}
