package worker

import "time"

// keepAlive checks held messages each quarter of AckWait. It reports a message in progress that has been held for
// half of AckWait, and logs workers that do not finish. The queue's lock guards it.
type keepAlive struct {
	timer *time.Timer
	armed bool
}

// hangs is the number of checks, ten times AckWait, after which a message is logged that a worker has or left unsettled.
const hangs = 40

func (k *keepAlive) arm(patience time.Duration) {
	if !k.armed && patience > 0 {
		k.armed = true
		k.timer.Reset(max(time.Millisecond, patience/4))
	}
}

// keepHouse is called each quarter of AckWait while something is held or remembered.
func (p *Pool[M]) keepHouse() {
	q, disturbed := &p.queue, p.ops.Report.Disturbed()
	q.mu.Lock()
	if p.closed { // the timer had fired by then
		q.mu.Unlock()
		return
	}
	now, wait := p.ops.Now(), q.consumer.Patience
	var due []M
	var hanging []uint64
	for e := q.held.next; e != &q.held; e = e.next {
		if e.taken || e.parked {
			if e.looks++; e.looks == hangs {
				hanging = append(hanging, e.id.Seq)
			}
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
	p.alive.armed = false
	if q.n > 0 || len(q.history.memory.ids) > 0 {
		p.alive.arm(wait)
	}
	q.mu.Unlock()
	for _, m := range due {
		_ = p.ops.InProgress(m) // it fails if the message was settled meanwhile
	}
	if len(hanging) > 0 {
		p.ops.Report.Log().Warn("jetpull: messages were taken more than ten times AckWait ago and are not settled: their handler hangs, or ManualAck waits; see HandlerTimeout",
			"sequences", hanging[:min(len(hanging), sequencesMost)], "for", wait*hangs/4)
	}
}

// lateMost is how long after AckWait the server may redeliver a message.
const lateMost = 5 * time.Second

// trim releases memory when nothing is held and no message has come since the last check, and resets the window.
// Settled messages are forgotten when all messages whose acknowledgement was lost must have been redelivered.
func (q *queue[M]) trim(now At) {
	q.window.restart()
	q.free = nil
	if len(q.lines) == 0 { // a handler that has handed its message back may still run
		q.lines = map[string]*line[M]{}
	}
	if now-q.history.memory.lastAt > q.consumer.Longest+lateMost {
		q.history.memory = memory{}
	}
}
