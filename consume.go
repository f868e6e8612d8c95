package jetpull

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Handler handles one message. What it returns settles the message: nil
// acknowledges it, an error has it redelivered (see [RetryDelays]), and [Retry]
// and [Terminate] say otherwise. A handler that has settled the message itself is
// left alone. A panic is recovered, reported, and has the message redelivered.
//
// Its context carries the values of Consume's and outlives it: it is cancelled
// only when the handler has not returned DrainTimeout after Consume's ended.
type Handler func(ctx context.Context, m *Msg) error

// drainGrace is how long Consume waits for handlers whose context it has
// cancelled.
const drainGrace = time.Second

// Consume runs h for each message until ctx ends or the consumer is gone. It
// reads ahead, keeps messages alive that take long, and pulls again by itself
// after whatever may happen to connection and server.
//
// When ctx ends, pulling ends first, messages that no handler has got are
// handed back to the server at once, and running handlers go on for
// [DrainTimeout]; then their context is cancelled. It returns nil after that, or
// [ErrDrainTimeout] if handlers had to be cancelled. It returns
// [ErrConsumerDeleted], [ErrClosed] or a [StatusError] that no retry can mend
// when it ends by itself, ErrClosed also where the connection was closed while it
// waited for dead letters to be stored, and [ErrInvalidOption] before it begins.
func (s *Subscription) Consume(ctx context.Context, h Handler, opts ...Option) error {
	if h == nil {
		return invalid("handler", "is nil; give the function that handles a message")
	}
	if ctx != nil && ctx.Err() != nil {
		_, err := s.settings(context.WithoutCancel(ctx), callConsume, opts)
		return err
	}
	set, err := s.settings(ctx, callConsume, opts)
	if err != nil {
		return err
	}
	if err := s.checkDeadLetter(ctx, set); err != nil {
		return err
	}
	defer s.engine.hook(set)()
	st := s.openStream(ctx, set, set.streaming.concurrency, true)
	st.log.Info("jetpull: consuming", "concurrency", set.streaming.concurrency)
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var workers sync.WaitGroup
	for i := range st.queue.slots {
		workers.Go(func() { st.work(work, h, &st.queue.slots[i], &workers) })
	}
	select {
	case <-ctx.Done():
	case <-st.ended:
	}
	st.halt()
	drained := errors.Join(st.drain(&workers, cancel), st.unburied())
	st.close()
	st.log.Info("jetpull: consuming ended")
	if err := st.reason(); err != nil {
		return errors.Join(s.callError("consume", err, false), drained)
	}
	return drained
}

// drain waits for the running handlers, and for the dead letters of messages that
// are aside, and cancels them after DrainTimeout.
func (st *stream) drain(workers *sync.WaitGroup, cancel context.CancelFunc) error {
	done := make(chan struct{})
	go func() {
		workers.Wait()
		st.aside.trying.Wait() // started by workers only
		close(done)
	}()
	timeout := st.set.streaming.drainTimeout
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
	}
	n, unstored := st.queue.running(), st.aside.len()
	cancel()
	timer.Reset(drainGrace)
	select {
	case <-done:
		switch left := st.abandoned.Load(); {
		case left > 0:
			return fmt.Errorf("%w: after %v %d handlers still ran and were cancelled, and %d messages at their last delivery had not been handled: OnError has told which have no dead letter", ErrDrainTimeout, timeout, n, left)
		case unstored > 0:
			return fmt.Errorf("%w: after %v %d handlers still ran and were cancelled, and %d messages at their last delivery had no dead letter stored and were handed back", ErrDrainTimeout, timeout, n, unstored)
		case n == 0:
			return nil
		}
		return fmt.Errorf("%w: %d handlers ran for more than %v after the end and were cancelled", ErrDrainTimeout, n, timeout)
	case <-timer.C:
		return fmt.Errorf("%w: %d handlers go on although their context is cancelled", ErrDrainTimeout, st.queue.running())
	}
}

// work handles messages until the stream halts. If a handler ends its
// goroutine (runtime.Goexit), another takes the worker's place.
func (st *stream) work(ctx context.Context, handler Handler, s *slot, workers *sync.WaitGroup) {
	p := pace{run: 1}
	clean := false
	defer func() {
		if !clean {
			workers.Go(func() { st.work(ctx, handler, s, workers) })
		}
	}()
	for {
		h, ok := st.take(s, &p)
		if !ok {
			clean = true
			return
		}
		switch {
		case h.fate == acknowledged:
			st.acknowledge(h)
		case h.fate == terminated:
			st.settledBy(h, h.m.Term())
		case ctx.Err() != nil:
			st.abandon(ctx, h)
		case h.flaw != nil:
			st.keyless(ctx, s, h)
		default:
			st.handle(ctx, handler, s, h)
			st.handled(&p, h)
		}
	}
}

var errGoexit = errors.New("jetpull: the handler ended its goroutine")

// handle runs the handler for h, in slot s, and settles it by what came of it.
func (st *stream) handle(ctx context.Context, handler Handler, s *slot, h held) {
	err, returned := error(nil), false
	defer func() {
		if !returned {
			if v := recover(); v != nil {
				err = recovered("the handler", v)
			} else {
				err = errGoexit
			}
			st.log.Error("jetpull: handler did not return", "error", err, "sequence", h.m.Sequence())
		}
		due := err == nil && !h.m.settled.Load()
		st.conclude(ctx, h, err)
		st.remember(s, h.m, due)
	}()
	err = handler(ctx, h.m)
	returned = true
}
