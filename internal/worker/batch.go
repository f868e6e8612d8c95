package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jetpull/jetpull/internal/pull"
)

// confirmPause is how long after acknowledgements that were not confirmed they are sent again.
const confirmPause = 100 * time.Millisecond

// workBatches is work for batches.
func (p *Pool[M]) workBatches(call, handlers context.Context, s *slot[M]) {
	for {
		if call.Err() != nil {
			p.End(nil)
		}
		if p.fill(s); len(s.batch) == 0 {
			p.End(nil)
			return
		}
		p.handleBatch(handlers, s)
	}
}

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

// handleBatch runs the handler for the messages that may begin, and settles each by its own result.
func (p *Pool[M]) handleBatch(ctx context.Context, s *slot[M]) {
	all := s.batch
	s.batch = nil
	var begun []*entry[M]
	var ms []M
	var ends []func()
	for _, e := range all {
		end, err := p.begin(ctx, e)
		if err == nil {
			begun, ms, ends = append(begun, e), append(ms, e.msg), append(ends, end)
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
		return
	}
	err := p.callBatch(ctx, ms)
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

// callBatch calls the handler of batches, with a context and a time limit of its own.
func (p *Pool[M]) callBatch(ctx context.Context, ms []M) (err error) {
	cancel := func() {}
	if d := p.set.HandlerTimeout; d > 0 {
		ctx, cancel = context.WithTimeoutCause(ctx, d, fmt.Errorf("%w: it is %v", ErrHandlerTimeout, d))
	}
	defer cancel()
	done := make(chan error, 1)
	go func() { // it may end its goroutine
		err := errGoexit
		defer func() {
			if v := recover(); v != nil {
				err = recovered("the handler", v)
			}
			done <- err
		}()
		err = p.ops.HandleBatch(ctx, ms)
	}()
	err = <-done
	if cause := context.Cause(ctx); errors.Is(cause, ErrHandlerTimeout) {
		err = cause
	}
	if err != nil {
		err = readable(err)
	}
	return err
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
		timer := time.NewTimer(confirmPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil || errors.Is(err, ErrFinal) {
			return
		}
	}
}
