package worker

import (
	"context"
	"errors"
	"time"

	"github.com/jetpull/jetpull/internal/pull"
)

// confirmPause is how long after acknowledgements that were not confirmed they are sent again.
const confirmPause = 100 * time.Millisecond

// fill marks the messages of the last batch as done, and gives a worker its next one: when it is full, when its first message has waited for
// BatchDelay, or when there are no more messages.
func (p *Pool[M]) fill(s *slot[M]) {
	q := &p.queue
	q.mu.Lock()
	for _, e := range s.batch {
		q.done(e, q.ops.Now())
		s.n++
	}
	q.mu.Unlock()
	s.batch = s.batch[:0]
	for until := pull.At(0); len(s.batch) < p.set.Batch; {
		e := q.next(s, until)
		if s.e = nil; e == nil {
			return
		}
		if s.batch = append(s.batch, e); until == 0 {
			until = max(1, e.arrived+p.set.BatchDelay)
		}
	}
}

// part is a message of a batch: what is called when the handler has returned, if it may begin, or why it has failed.
type part[M any] struct {
	e   *entry[M]
	end func()
	err error
}

// handleBatch gets a batch, runs the handler for the messages of it that may begin, and settles each by its own result. It reports false if there
// are no more messages. Questions and dead letters that can take long come before the messages are admitted, or after the acknowledgements.
func (p *Pool[M]) handleBatch(ctx context.Context, s *slot[M]) (more bool) {
	p.fill(s)
	all := s.batch
	s.batch = nil
	var begun, admitted, failed []part[M]
	refuse := func(e *entry[M], err error) {
		if wait, ok := errors.AsType[*Wait](err); ok {
			p.conclusion(s, e, func() { p.hold(ctx, s, e, wait) })
		} else {
			failed = append(failed, part[M]{e: e, err: err})
		}
	}
	for _, e := range all {
		if end, err := p.begin(ctx, e); err == nil {
			begun = append(begun, part[M]{e: e, end: end})
		} else {
			refuse(e, err)
		}
	}
	var ms []M
	handler := ctx // what ends the context of one message ends that of its batch
	for _, b := range begun {
		if limited, end, err := p.admit(handler, b.e, b.end); err == nil {
			handler, admitted, ms = limited, append(admitted, part[M]{e: b.e, end: end}), append(ms, b.e.msg)
		} else {
			refuse(b.e, err)
		}
	}
	conclude := func(err error) {
		var confirm []M
		for _, b := range admitted {
			if b.end != nil {
				b.end()
			}
			if err := p.ops.Failure(err, b.e.msg); err == nil && p.ops.Settled(b.e.msg) == Undecided && !p.ackNone && !p.set.ManualAck {
				b.e.how = Acked
				confirm, s.batch = append(confirm, b.e.msg), append(s.batch, b.e)
			} else {
				failed = append(failed, part[M]{e: b.e, err: err})
			}
		}
		p.confirm(ctx, confirm)
		for _, f := range failed {
			p.conclusion(s, f.e, func() { p.conclude(ctx, s, f.e, f.err) })
		}
	}
	if len(ms) == 0 {
		conclude(nil)
		return len(all) > 0
	}
	p.call(handler, func(ctx context.Context) error { return p.ops.HandleBatch(ctx, ms) }, conclude)
	return true
}

// conclusion settles a message of a batch as that of a worker of its own. If the worker still has it then, it is in the batch.
func (p *Pool[M]) conclusion(s *slot[M], e *entry[M], settle func()) {
	s.e = e
	settle()
	if s.e != nil {
		s.batch = append(s.batch, e)
	}
	s.e = nil
}

// confirm acknowledges messages, and repeats that until each is confirmed, the handlers' context ends, or nothing can be sent any more. When the call
// has ended for an error, such as the consumer's end, it repeats nothing.
func (p *Pool[M]) confirm(ctx context.Context, ms []M) {
	for len(ms) > 0 {
		err := p.ops.Confirm(ctx, ms)
		left := ms[:0]
		for _, m := range ms {
			if p.ops.Settled(m) == Undecided {
				left = append(left, m)
			}
		}
		if ms = left; len(ms) == 0 {
			return
		}
		p.ops.Report.Error(err)
		For(confirmPause)(ctx)
		over := p.open.Err() != nil && p.err != nil && !errors.Is(p.err, ErrReconfigured)
		if over || ctx.Err() != nil || errors.Is(err, ErrFinal) {
			return
		}
	}
}
