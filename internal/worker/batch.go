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

// handleBatch gets a batch, runs the handler for the messages of it that may begin, and settles each by its own result. It reports false if there
// are no more messages.
func (p *Pool[M]) handleBatch(ctx context.Context, s *slot[M]) (more bool) {
	p.fill(s)
	all := s.batch
	s.batch = nil
	var begun []*entry[M]
	var ms []M
	var ends []func()
	handler := ctx // what ends the context of one message ends that of its batch
	for _, e := range all {
		limited, end, err := p.begin(handler, e)
		if err == nil {
			handler, begun, ms = limited, append(begun, e), append(ms, e.msg)
			if end != nil {
				ends = append(ends, end)
			}
			continue
		}
		p.conclusion(s, e, func() {
			if wait, ok := errors.AsType[*Wait](err); !ok {
				p.conclude(ctx, s, e, err)
			} else if p.hold(ctx, s, e, wait) {
				p.giveBack(e)
			}
		})
	}
	if len(begun) == 0 {
		return len(all) > 0
	}
	p.call(handler, func(ctx context.Context) error { return p.ops.HandleBatch(ctx, ms) }, func(err error) {
		for _, end := range ends {
			end()
		}
		var confirm []M
		for _, e := range begun {
			failed := p.ops.Failure(err, e.msg)
			if failed == nil && p.ops.Settled(e.msg) == Undecided && !p.ackNone && !p.set.ManualAck {
				e.how = Acked
				confirm, s.batch = append(confirm, e.msg), append(s.batch, e)
				continue
			}
			p.conclusion(s, e, func() { p.conclude(ctx, s, e, failed) })
		}
		p.confirm(ctx, confirm)
	})
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

// confirm acknowledges messages, and repeats that until each is confirmed, the handlers' context ends, or nothing can be sent any more.
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
		if ctx.Err() != nil || errors.Is(err, ErrFinal) {
			return
		}
	}
}
