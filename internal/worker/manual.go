package worker

// park keeps e, which its handler has left unsettled, until Vacate.
func (p *Pool[M]) park(e *entry[M]) {
	q := &p.queue
	q.mu.Lock()
	if p.closed { // its handler outlived the call
		q.mu.Unlock()
		return
	}
	q.leave(e)
	e.parked = true
	q.parked++
	p.workers.Add(1) // the drain waits for it too
	m, id := e.msg, e.id
	q.mu.Unlock()
	if p.ops.Settled(m) != Undecided {
		p.Vacate(m, id)
	}
}

// Vacate removes a parked message that was settled. If it was handed back, and its redelivery has already arrived, that stays.
func (p *Pool[M]) Vacate(m M, id ID) {
	q := &p.queue
	q.mu.Lock()
	e, how := q.find(id), p.ops.Settled(m)
	if e == nil || !e.parked || how == Naked && p.ops.Settled(e.msg) == Undecided {
		q.mu.Unlock()
		return
	}
	e.how = how
	q.done(e, p.ops.Now())
	c := q.creditDue()
	q.mu.Unlock()
	p.workers.Done()
	if c.N > 0 {
		p.ops.Credit(c)
	}
}

// abandon removes parked messages, and the last message of the loop of Messages, because the call has ended and
// unsettled messages must not be kept in progress.
func (p *Pool[M]) abandon() {
	q := &p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	p.closed = true
	if p.ops.Handle == nil {
		q.finish(&q.slots[0])
	}
	for _, e := range q.all(func(e *entry[M]) bool { return e.parked }) {
		q.done(e, p.ops.Now())
		p.workers.Done()
	}
}
