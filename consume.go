package jetpull

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jetpull/jetpull/internal/running"
)

// Consume calls h for each message until ctx ends or the consumer is deleted. It reads ahead, keeps slow messages in
// progress, and pulls again by itself after failures of the connection and the server. A consumer with ack policy all is
// refused with [ErrInvalidOption]: create it with the explicit policy, or use Messages or Fetch.
//
// When ctx ends, Consume stops pulling, and immediately hands messages that no handler has started back to the server.
// Running handlers may continue for [DrainTimeout]; then their context is cancelled. Consume returns nil, or
// [ErrDrainTimeout] if handlers had to be cancelled, at most DrainTimeout and a second after the end of ctx. If it ends by
// itself, it returns [ErrConsumerDeleted], [ErrClosed] or a [StatusError] that no retry can resolve. If the options do not
// fit, before the start or after an edit of the consumer, it returns [ErrInvalidOption]. With [DeadLetter] it first looks up the
// subject's stream, for 5 s at most, and needs the permission for STREAM.NAMES; the end of ctx stops that, Close does not. If the server
// refuses acknowledgements, Consume ends with an error that matches [nats.ErrPermissionViolation], before their messages are redelivered.
func (s *Subscription) Consume(ctx context.Context, h Handler, opts ...ConsumeOption) error {
	if h == nil {
		return invalid("handler", "is nil; give the function that handles a message")
	}
	set, err := s.consumeSettings(ctx, opts)
	if set == nil {
		return err
	}
	for _, use := range slices.Backward(set.run.use) {
		if h = use(h); h == nil {
			return invalid("Use", "a Middleware returned a nil Handler")
		}
	}
	return s.consume(ctx, set, func(ctx context.Context, ms []*Msg) error { return h(ctx, ms[0]) })
}

// BatchHandler handles messages together. If it returns nil, all have succeeded. After a [BatchError], the messages in it
// have failed. After any other error, all have failed. Its context is like that of a [Handler].
type BatchHandler func(ctx context.Context, ms []*Msg) error

// BatchError is the result of a BatchHandler if only some messages failed. It maps them to their errors, which may be [Retry] and [Terminate].
type BatchError map[*Msg]error

// Error names the number of messages, and the error of the first one in the stream.
func (e BatchError) Error() string {
	var first *Msg
	for m, err := range e {
		if m != nil && err != nil && (first == nil || m.Sequence() < first.Sequence()) {
			first = m
		}
	}
	if first == nil {
		return "jetpull: no message of the batch failed"
	}
	return fmt.Sprintf("jetpull: %d messages of the batch failed; sequence %d: %v", len(e), first.Sequence(), e[first])
}

// ConsumeBatch is Consume for a handler that takes several messages at a time, for example to load them into a database. A batch is handled when
// it has n messages or the last one of [StopAfter], when its first message has waited for maxDelay, and when the call ends. Meanwhile the next
// one fills. [Concurrency] is the number of batches, and [HandlerTimeout] and the context are those of a batch. With [OrderedBy] a batch has at
// most one message per key. No batch has more messages than the consumer's MaxAckPending, nor more bytes than [PrefetchBytes], about 64 MiB by
// default: with an n that needs more, each batch waits for maxDelay.
//
// The acknowledgements of a batch are confirmed together before the worker takes the next one. Those that are not confirmed are repeated until
// the handlers' context ends, which is not an attempt. Retries, MaxAttempts, DeadLetter and draining work as in Consume, for each message. [Use]
// has no effect on a BatchHandler, and is refused.
//
// With [Limited], a message that has waited for its key is handled as soon as it may start, so such batches are small, often of one message. If
// it is added to a batch that waits for maxDelay, others can take its turn meanwhile, and fewer messages start than the limit allows. With
// [MaxCrashes], a redelivered message needs two requests before the handler and one after it, and those of a batch are made one after the other.
func (s *Subscription) ConsumeBatch(ctx context.Context, n int, maxDelay time.Duration, h BatchHandler, opts ...ConsumeOption) error {
	switch {
	case h == nil:
		return invalid("handler", "is nil; give the function that handles a batch")
	case n < 1 || n > maxBatch:
		return invalid("n", "%d is not in 1..%d messages", n, maxBatch)
	case maxDelay < 0 || maxDelay > maxWait:
		return invalid("maxDelay", "%v is not in 0s..%v", maxDelay, maxWait)
	}
	set, err := s.consumeSettings(ctx, opts)
	if set == nil {
		return err
	}
	switch o := &set.run; {
	case set.given["Use"] == callConsume:
		return invalid("Use", "wraps a Handler, and ConsumeBatch has a BatchHandler; leave the option out")
	case o.Prefetch > 0 && o.Prefetch < n*o.Workers:
		return invalid("Prefetch", "%d is below %d batches of %d messages, so a batch would never be full; raise Prefetch, or leave it out",
			o.Prefetch, o.Workers, n)
	}
	set.run.Batch, set.run.BatchDelay = n, maxDelay
	return s.consume(ctx, set, func(ctx context.Context, ms []*Msg) error { return h(ctx, slices.Clone(ms)) })
}

// consumeSettings returns the settings of a call of Consume or ConsumeBatch. If they are nil the call is over, even without an error.
func (s *Subscription) consumeSettings(ctx context.Context, opts []ConsumeOption) (*settings, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	set, err := callSettings(context.WithoutCancel(ctx), s, callConsume, opts) // a context that has ended is no error
	if err != nil || ctx.Err() != nil {
		return nil, err
	}
	own := *set
	return &own, nil
}

// consume runs h until the call ends.
func (s *Subscription) consume(ctx context.Context, set *settings, h BatchHandler) error {
	if err := s.checkDeadLetter(ctx, set); err != nil {
		if errors.Is(err, context.Canceled) { // ctx was cancelled before the answer came
			return nil
		}
		return err
	}
	if set.run.named != "" {
		service, err := running.Start(s.nc, set.run.named, s.stream, s.consumer, func() int { return s.Stats().Buffered })
		if err != nil {
			return fmt.Errorf("jetpull: Named: the service %q: %w", set.run.named, err)
		}
		defer service.Stop()
		h = named(service, h)
	}
	set.run.onStart()
	r := s.open(callConsume, set, h)
	r.report.Log.Debug("jetpull: consuming", "concurrency", set.run.Workers)
	var err, drained error
	for next := r; next != nil; next, err = r.next(ctx) {
		r = next
		drained = r.pool.Run(ctx)
	}
	r.close(min(closeMost, r.pool.Left()))
	r.report.Log.Debug("jetpull: consuming ended")
	if drained != nil {
		drained = fmt.Errorf("%w: %w", ErrDrainTimeout, drained)
	}
	if err != nil {
		return errors.Join(s.wrapError("consume", err), drained)
	}
	return drained
}

// named returns h with the messages that it has in a service, which can cancel its context.
func named(service *running.Service, h BatchHandler) BatchHandler {
	return func(ctx context.Context, ms []*Msg) error {
		begun := make([]running.Message, len(ms))
		for i, m := range ms {
			begun[i] = running.Message{Sequence: m.Sequence(), Subject: m.Subject(), Since: time.Now(), Attempt: m.Delivered()}
		}
		ctx, end := service.Begin(ctx, begun, ErrCancelled)
		defer end()
		return h(ctx, ms)
	}
}
