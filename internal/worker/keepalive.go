package worker

import "time"

// keepAlive looks after what is held: each quarter of AckWait it reports in progress what has been held for
// half of it, and notices what workers do not finish. The queue's lock guards it.
type keepAlive struct {
	timer *time.Timer
	armed bool
}

// hangs is after how many looks at a message, while a worker has it or it is unsettled, that is logged: ten times AckWait.
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
		// A message that is retried in place, or insists on its dead letter, is kept in progress whatever
		// KeepAlive says: no other client is to get it.
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
		_ = p.ops.InProgress(m) // it fails where it was settled meanwhile
	}
	if len(hanging) > 0 {
		p.ops.Report.Log().Warn("jetpull: messages were taken more than ten times AckWait ago and are not settled: their handler hangs, or ManualAck waits; see HandlerTimeout",
			"sequences", hanging[:min(len(hanging), sequencesMost)], "for", wait*hangs/4)
	}
}

// lateMost is how much later than AckWait says the server may redeliver a message.
const lateMost = 5 * time.Second

// trim gives memory back when nothing is held and nothing has come since the last look, and makes the window as it was
// at first. Settled messages are forgotten once every message whose acknowledgement was lost must have been redelivered.
func (q *queue[M]) trim(now At) {
	q.window.restart()
	q.free = nil
	if len(q.lines) == 0 { // a handler that has handed its message back itself may still run
		q.lines = map[string]*line[M]{}
	}
	if now-q.history.memory.lastAt > q.consumer.Longest+lateMost {
		q.history.memory = memory{}
	}
}
