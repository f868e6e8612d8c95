package worker

import (
	"log/slog"
	"slices"

	"github.com/jetpull/jetpull/internal/pull"
)

// Deliver takes messages that have arrived, and keeps no reference to ms. It must not run twice at the same time. The function of OrderedBy is
// the user's, so a separate Notifier calls it. It does not delay the deliveries of other calls, or their callers.
func (p *Pool[M]) Deliver(ms []pull.Message) {
	if p.ops.Key == nil {
		p.take(ms, nil)
		return
	}
	ms = slices.Clone(ms)
	p.keyless.Post(func() {
		keys := make([]string, len(ms))
		for i, m := range ms {
			keys[i] = p.keyOf(m.(M))
		}
		p.take(ms, keys)
	})
}

// keyOf returns the key of a message. If the key function panics, that is reported, and the message has the empty key.
func (p *Pool[M]) keyOf(m M) (key string) {
	defer func() {
		if v := recover(); v != nil {
			id, _, _ := p.ops.Identify(m)
			err := recovered("the OrderedBy function", v)
			p.ops.Report.Later(slog.LevelError, "jetpull: OrderedBy panicked, and its message has the empty key", "sequence", id.Seq, "error", err)
			p.ops.Report.Error(err)
		}
	}()
	return p.ops.Key(m)
}

// take takes messages. keys are their keys, or nil.
func (p *Pool[M]) take(ms []pull.Message, keys []string) {
	q := &p.queue
	var settle []func() error // for messages without an entry
	q.mu.Lock()
	now, before := p.ops.Now(), q.ready.n
	for i, arrived := range ms {
		m := arrived.(M)
		id, delivered, number := p.ops.Identify(m)
		q.history.delivered(id, delivered, number)
		if delivered > 1 {
			p.ops.Redelivered.Add(1)
		}
		size := p.ops.Size(m)
		e, known := p.known(id)
		switch {
		case e != nil:
			e.replace(m, delivered)
		case known == Acked:
			settle = append(settle, func() error { return p.ops.AckAgain(m) })
			q.history.lastAt = now // more may follow
		case known == Terminated:
			settle = append(settle, func() error { return p.ops.Term(m, "") })
		case q.stopped:
			settle = append(settle, func() error { p.ops.HandBack(m); return nil })
		default:
			e = q.add()
			e.msg, e.latest, e.id, e.delivered, e.first, e.size, e.arrived, e.since = m, m, id, delivered, delivered, size, now, now
			if keys != nil {
				e.key = keys[i]
			}
			q.enqueue(e)
			continue
		}
		q.countCredit(size)
	}
	q.signal(q.ready.n - before)
	q.startWorker()
	q.starving = q.ready.n == 0 && (q.waiting > 0 || q.started < len(q.slots)) // another message could begin at once
	c := q.creditDue()
	p.checkSoon(now)
	q.mu.Unlock()
	for _, f := range settle {
		p.ops.Report.Error(f())
	}
	if c.N > 0 || c.Starving {
		p.ops.Credit(c)
	}
}

// known returns the held entry of a message, or how the message was settled, if that is remembered. A message that its
// handler, or the loop of Messages, has settled itself is held until the handler returns. If that handed it back, a
// redelivery is a message like any other. The lock is held.
func (p *Pool[M]) known(id ID) (*entry[M], Settlement) {
	q := &p.queue
	if id.Seq > q.history.highest || id.Seq == 0 {
		q.history.highest = max(q.history.highest, id.Seq)
		return nil, Undecided
	}
	e := q.find(id)
	if e == nil {
		return nil, q.history.settlement(id)
	}
	how := p.ops.Settled(e.msg)
	switch {
	case how == Naked && e.parked:
		q.done(e, p.ops.Now())
		p.workers.Done()
	case how == Naked:
		q.remove(e)
	}
	if how != Undecided {
		return nil, how
	}
	return e, Undecided
}

// replace replaces e's delivery by a redelivery. A worker keeps the delivery that it has, because an acknowledgement of
// any delivery settles the message.
func (e *entry[M]) replace(m M, delivered uint64) {
	e.latest, e.delivered = m, max(e.delivered, delivered) // a server that crashed counts from 1 again
	if e.worker == nil {
		e.msg = m
	}
}
