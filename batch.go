package jetpull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jetpull/jetpull/internal/worker"
)

// BatchHandler handles messages together, in stream order. nil acknowledges all of them; a [BatchError] has those that are in
// it treated as by the error of a [Handler], and another error, one that wraps a BatchError too, all of them. Messages that
// it has settled itself are left alone.
type BatchHandler func(ctx context.Context, ms []*Msg) error

// BatchError is the result of a BatchHandler of which some messages have failed, each with the error that a Handler would
// return for it. The others are acknowledged.
type BatchError map[*Msg]error

// Error says how many messages have failed; the map has why.
func (e BatchError) Error() string {
	return fmt.Sprintf("jetpull: %d messages of a batch failed", len(e))
}

// ConsumeBatch is [Subscription.Consume] for handlers that take up to n messages at a time, 1..3584 and no more than the
// consumer's MaxAckPending, such as those that write to a database. A batch is handled when it is full, when its first
// message has waited for maxDelay, 0 or more, and when the call is to end; it goes on filling while the one before it is
// handled. The server confirms its acknowledgements, together, before the next batch begins; a message whose acknowledgement
// is not confirmed is handled again.
//
// The options are those of Consume but for [Concurrency], which is n: one batch is handled at a time. To the others each
// message has a handler of its own, which runs while its batch fills and is handled: [HandlerTimeout] counts that time and
// must be over maxDelay, and a batch has the context of its first message; a [Middleware] wraps each message, with
// [OrderedBy] a batch has no two messages of a key, and with [StopAfter] the last batch waits for maxDelay. [ManualAck] is
// refused, as a default too.
func (s *Subscription) ConsumeBatch(ctx context.Context, n int, maxDelay time.Duration, h BatchHandler, opts ...Option) error {
	switch {
	case h == nil:
		return invalid("handler", "is nil; give the function that handles a batch")
	case n < 1 || n > maxPrefetch:
		return invalid("n", "%d is not in 1..%d messages", n, maxPrefetch)
	case maxDelay < 0 || maxDelay > maxWait:
		return invalid("maxDelay", "%v is not in 0s..%v", maxDelay, maxWait)
	case slices.ContainsFunc(opts, func(o Option) bool { return o.name == "Concurrency" }):
		return invalid("Concurrency", "cannot be used by ConsumeBatch, where it is the size of a batch")
	}
	b := &batcher{n: n, delay: maxDelay, h: h, one: make(chan struct{}, 1)}
	own := Option{"ConsumeBatch", callConsume, func(s *settings) { s.run.batch, s.run.Workers = b, n }, ""}
	return s.Consume(ctx, b.handle, append(slices.Clone(opts), own)...)
}

// batcher gathers what n handlers have into a batch. The handler of the batch's first message handles all of it, and the
// others wait for what comes of theirs.
type batcher struct {
	ended <-chan struct{} // closed when the call is to end
	n     int
	delay time.Duration
	h     BatchHandler
	one   chan struct{} // has an element while a batch is handled

	mu   sync.Mutex
	open *batch // more may join it
}

type batch struct {
	ms   []*Msg
	full chan struct{} // closed when no more may join
	done chan struct{} // closed when it was handled
	err  error         // of all
	// failed are those that have failed for a reason of their own.
	failed BatchError
}

// fits refuses what messages that are handled together cannot have.
func (b *batcher) fits(o *runSettings, maxAckPending int) error {
	switch d := o.HandlerTimeout; {
	case b == nil:
	case maxAckPending > 0 && b.n > maxAckPending:
		return invalid("n", "a batch of %d messages never fills: the consumer's MaxAckPending is %d", b.n, maxAckPending)
	case o.ManualAck:
		return invalid("ManualAck", "cannot be used by ConsumeBatch, which acknowledges what its handler has not settled; use Consume")
	case d > 0 && d <= b.delay:
		return invalid("HandlerTimeout", "%v is no more than maxDelay %v, for which a message may wait for others of its batch; make it longer by what a batch takes", d, b.delay)
	}
	return nil
}

func (b *batcher) handle(ctx context.Context, m *Msg) error {
	b.mu.Lock()
	own := b.open
	first := own == nil
	if first {
		own = &batch{full: make(chan struct{}), done: make(chan struct{})}
		b.open = own
	}
	own.ms = append(own.ms, m)
	if len(own.ms) == b.n {
		close(own.full)
		b.open = nil
	}
	b.mu.Unlock()
	if first {
		b.lead(ctx, own)
	} else {
		<-own.done
	}
	return cmp.Or(own.err, own.failed[m])
}

// lead waits until the batch is full or due, and handles it.
func (b *batcher) lead(ctx context.Context, own *batch) {
	timer := time.NewTimer(b.delay)
	select {
	case <-own.full:
	case <-timer.C:
	case <-b.ended:
	case <-ctx.Done():
	}
	timer.Stop()
	b.one <- struct{}{}
	defer func() { <-b.one }()
	b.mu.Lock()
	if b.open == own { // it went on filling while the one before it was handled
		b.open = nil
	}
	b.mu.Unlock()
	defer close(own.done)
	own.ms = slices.DeleteFunc(own.ms, func(m *Msg) bool { // those that HandlerTimeout has failed
		return m.settled.Load() && worker.Outcome(m.how.Load()) != worker.Acked
	})
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), worker.ErrHandlerTimeout) {
		for _, m := range own.ms { // the call is over: that is no attempt that failed
			_ = m.Nak()
		}
		own.ms = nil
	}
	if len(own.ms) == 0 {
		return
	}
	slices.SortFunc(own.ms, func(a, z *Msg) int { return cmp.Compare(a.Sequence(), z.Sequence()) })
	own.err = errBatchPanic
	err := b.h(ctx, slices.Clone(own.ms))
	failed, some := err.(BatchError) //nolint:errorlint // a BatchError that is wrapped in another is an error of all
	if err != nil && !some {
		own.err = err
		return
	}
	own.err = nil
	own.confirm(ctx, failed)
}

// errBatchPanic is what the other messages of a batch fail with when its handler panics.
var errBatchPanic = errors.New("jetpull: the handler of its batch panicked")

// confirm acknowledges what has not failed and was not settled.
func (b *batch) confirm(ctx context.Context, failed BatchError) {
	b.failed = BatchError{} // the handler may have kept its own
	maps.Copy(b.failed, failed)
	var good []*Msg
	for _, m := range b.ms {
		if failed[m] == nil && !m.settled.Load() && !m.sub.ackNone.Load() {
			good = append(good, m)
		}
	}
	if err := ConfirmAcks(ctx, good...); err != nil {
		for _, m := range good {
			if !m.settled.Load() {
				b.failed[m] = err
			}
		}
	}
}
