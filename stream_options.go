package jetpull

import (
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// maxPrefetch is the most messages that one Subscription may have on order.
const maxPrefetch = inboxSlots - statusSlots

// Concurrency sets how many handlers Consume runs at a time, 1..3584. By default
// 1, which keeps stream order. A consumer with ack policy all allows only 1,
// because one acknowledgement covers all messages before it.
func Concurrency(n int) Option {
	return Option{"Concurrency", callConsume, func(s *settings) { s.streaming.concurrency = n }}
}

// OrderedBy makes Consume handle messages with the same key in stream order,
// one at a time, and those with different keys in parallel, up to Concurrency. A
// message whose handler failed holds back the later ones of its key until it is
// settled, or until it should have been redelivered to this client and was
// not. Up to 2048 messages wait so; more of the key go back to the server and
// keep their place, as long as they come back to this client; one that the
// consumer's MaxDeliver would not let come again stays. key is called once a
// delivery and must not block. If it panics, the message gets no handler, holds
// up no other, and counts as one whose handler failed; it comes again after a second
// or more.
//
// A consumer with ack policy all refuses it: there all messages are handled in stream
// order, and a failed one holds back all others.
func OrderedBy(key func(*Msg) string) Option {
	return Option{"OrderedBy", callConsume, func(s *settings) { s.streaming.orderedBy = key }}
}

// Prefetch fixes how many messages Messages and Consume read ahead, those being
// handled included, 1..3584; for Consume at least [Concurrency]. By default it
// adapts: it is enough for 10 ms of work, grows while handlers wait for messages,
// and shrinks so that none waits longer than a quarter of the consumer's AckWait,
// within 3584 messages and about 64 MiB, held and on order. A
// message that is larger alone still comes, when nothing else is held, and
// handlers of large messages run at a time as many as fit; [PrefetchBytes] sets
// another limit. Fixed, it is the only limit.
func Prefetch(n int) Option {
	return Option{"Prefetch", callStream, func(s *settings) { s.streaming.prefetch = n }}
}

// PrefetchBytes limits what Messages and Consume read ahead to n bytes, n ≥ 1,
// counted as by MaxBytes. A message that is larger alone is still delivered, when
// nothing else is held. By default about 64 MiB, and no limit where [Prefetch] is
// set.
func PrefetchBytes(n int) Option {
	return Option{"PrefetchBytes", callStream, func(s *settings) { s.streaming.prefetchBytes = n }}
}

// KeepAlive tells the server that messages are in progress which Messages and
// Consume have held for half of the consumer's AckWait, waiting or being
// handled, so that a slow handler causes no redelivery. On by default. A consumer
// with ack policy none refuses it, because nothing is redelivered.
func KeepAlive(on bool) Option {
	return Option{"KeepAlive", callStream, func(s *settings) { s.streaming.keepAlive = on }}
}

// RetryDelays sets after which delay a message whose handler failed is to be
// delivered again: the first entry after its first delivery, the last for all
// further ones. 0 means at once. By default the consumer's BackOff, and at once
// if it has none: a handler that always fails is then called again as fast as the
// server can deliver, until MaxAttempts or the consumer's MaxDeliver is reached.
// Deliveries are counted by the server: those that were handed back or lost count
// too.
func RetryDelays(d ...time.Duration) Option {
	own := slices.Clone(d)
	return Option{"RetryDelays", callConsume, func(s *settings) { s.streaming.retryDelays = own }}
}

// MaxAttempts makes Consume give up on a message whose handler failed at its
// n-th delivery, n ≥ 1: it goes to DeadLetter, if that is set, and is
// terminated. By default the server redelivers up to the consumer's MaxDeliver.
// More than that is refused: the server would stop first and the message would
// be lost without a dead letter. Deliveries are counted by the server, so those
// count too that no handler had: a message that was read ahead by workers that
// stopped, or lost with a connection, has fewer tries.
func MaxAttempts(n int) Option {
	return Option{"MaxAttempts", callConsume, func(s *settings) { s.streaming.maxAttempts = n }}
}

// DeadLetter sets the subject that messages are published to which are given up
// by MaxAttempts, with their headers and payload, and headers that tell why (see
// [HeaderDeadReason]). The original is terminated only when a stream has
// confirmed the copy. None by default. The subject must be stored by a stream and
// not come back to the consumer, in its own stream or by the Sources or Mirror of
// that. Where the consumer delivers headers only, the payload is read from the
// stream; if it is gone there the copy says so (see [HeaderDeadPayload]). Consume
// needs [MaxAttempts] with it, its own or the default. [Terminate] makes no dead
// letter.
//
// The copy has the same message id at each try, so that one whose confirmation was
// lost is not stored twice, if the next try comes within the duplicate window of the
// stream that stores it (Duplicates, 2 minutes unless set). Keep that longer than the
// consumer's AckWait and the longest of RetryDelays.
//
// A message at the last delivery that the consumer's MaxDeliver allows, whose copy
// is not stored, is set aside: up to 64 of them, about 8 MiB, and half of
// MaxAckPending, are kept in progress, whatever [KeepAlive] says, and tried again at
// least once a minute, while other messages are handled. Beyond that handlers wait.
func DeadLetter(subject string) Option {
	return Option{"DeadLetter", callConsume, func(s *settings) { s.streaming.deadLetter = subject }}
}

// DrainTimeout sets how long handlers may go on when Consume ends before their
// context is cancelled. By default 30 s; 0 cancels it at once. Messages that were
// read ahead at the last delivery that the consumer's MaxDeliver allows are handled
// in that time; what is left of them then goes to [DeadLetter], or to [OnError] where
// there is none.
func DrainTimeout(d time.Duration) Option {
	return Option{"DrainTimeout", callConsume, func(s *settings) { s.streaming.drainTimeout = d }}
}

// OnError sets what Consume calls for each problem: an error or panic of a
// handler, a dead letter that failed, a pull that ended badly. It is called on a
// goroutine of its own, in order, and must not block: later problems, and the
// callbacks of [OnPin] and [OnUnpin], wait for it. Up to 4096 problems wait; those
// beyond are counted, and it is told how many they were. None by default.
func OnError(f func(error)) Option {
	return Option{"OnError", callConsume, func(s *settings) { s.streaming.onError = f }}
}

// AwaitConsumer makes Messages and Consume wait for a deleted consumer to be
// created again instead of ending with [ErrConsumerDeleted]. They read its
// configuration before they pull from it. If it has another ack policy they end all
// the same, and with [ErrInvalidOption] if a new call would. Off by default.
func AwaitConsumer() Option {
	return Option{"AwaitConsumer", callStream, func(s *settings) { s.streaming.awaitConsumer = true }}
}

func (s *streamSettings) validate(c call, cfg *jetstream.ConsumerConfig, own map[string]bool) error {
	if s.concurrency < 1 || s.concurrency > maxPrefetch {
		return invalid("Concurrency", "%d is not in 1..%d handlers", s.concurrency, maxPrefetch)
	}
	if cfg.AckPolicy == jetstream.AckAllPolicy && s.concurrency > 1 {
		return invalid("Concurrency", "%d: consumer %q has ack policy all, where one acknowledgement covers all messages before it; use 1, or create the consumer with the explicit policy", s.concurrency, consumerName(cfg))
	}
	if own["OrderedBy"] && s.orderedBy == nil {
		return invalid("OrderedBy", "the key function is nil; leave the option out for no order by key")
	}
	if own["OrderedBy"] && cfg.AckPolicy == jetstream.AckAllPolicy {
		return invalid("OrderedBy", "has no effect on consumer %q: with ack policy all messages are handled in stream order, and a failed one holds back all others, whatever their keys; leave the option out, or create the consumer with the explicit policy", consumerName(cfg))
	}
	if own["Prefetch"] && (s.prefetch < 1 || s.prefetch > maxPrefetch) {
		return invalid("Prefetch", "%d is not in 1..%d messages", s.prefetch, maxPrefetch)
	}
	if c&(callConsume|callSubscribe) != 0 && s.prefetch > 0 && s.prefetch < s.concurrency {
		return invalid("Prefetch", "%d is below Concurrency %d: messages being handled count too, so %d handlers would never run; raise Prefetch, or leave it out", s.prefetch, s.concurrency, s.concurrency-s.prefetch)
	}
	if own["PrefetchBytes"] && (s.prefetchBytes < 1 || s.prefetchBytes > maxBatch) {
		return invalid("PrefetchBytes", "%d is not in 1..%d bytes", s.prefetchBytes, maxBatch)
	}
	if own["DrainTimeout"] {
		if err := checkDuration("DrainTimeout", s.drainTimeout, 0); err != nil {
			return err
		}
	}
	if own["OnError"] && s.onError == nil {
		return invalid("OnError", "the function is nil; leave the option out")
	}
	if err := s.validateRetries(cfg, own); err != nil {
		return err
	}
	return s.complete(c)
}

func (s *streamSettings) validateRetries(cfg *jetstream.ConsumerConfig, own map[string]bool) error {
	for i, d := range s.retryDelays {
		if d < 0 || d > maxWait {
			return invalid("RetryDelays", "entry %d is %v, not in 0..%v", i, d, maxWait)
		}
	}
	if own["RetryDelays"] && len(s.retryDelays) == 0 {
		return invalid("RetryDelays", "has no entries; leave the option out for the consumer's BackOff, or give 0 for a redelivery at once")
	}
	if own["MaxAttempts"] && s.maxAttempts < 1 {
		return invalid("MaxAttempts", "%d is less than 1; leave the option out for no limit", s.maxAttempts)
	}
	if cfg.MaxDeliver > 0 && s.maxAttempts > cfg.MaxDeliver {
		return invalid("MaxAttempts", "%d is more than the consumer's MaxDeliver of %d: the server would stop first and the message would be lost without a dead letter; use %d at the most, or raise MaxDeliver", s.maxAttempts, cfg.MaxDeliver, cfg.MaxDeliver)
	}
	if own["DeadLetter"] && !publishable(s.deadLetter) {
		return invalid("DeadLetter", "%q is not a subject to publish to; use one without wildcards, spaces and empty tokens", s.deadLetter)
	}
	return s.validateAckNone(cfg, own)
}

// validateAckNone refuses what has no effect where nothing is redelivered.
func (s *streamSettings) validateAckNone(cfg *jetstream.ConsumerConfig, own map[string]bool) error {
	if cfg.AckPolicy != jetstream.AckNonePolicy {
		return nil
	}
	for _, o := range []struct {
		name  string
		value any
	}{
		{"KeepAlive", s.keepAlive}, {"RetryDelays", s.retryDelays}, {"MaxAttempts", s.maxAttempts}, {"DeadLetter", s.deadLetter},
	} {
		if own[o.name] {
			return invalid(o.name, "%v has no effect: consumer %q has ack policy none, and nothing is redelivered; leave the option out, or create the consumer with the explicit policy", o.value, consumerName(cfg))
		}
	}
	return nil
}

// complete refuses options that need others which a call does not have, neither of its own
// nor among the defaults.
func (s *streamSettings) complete(c call) error {
	if c == callConsume && s.deadLetter != "" && s.maxAttempts == 0 {
		return invalid("DeadLetter", "%q needs MaxAttempts, which says when a message is given up; give it to Consume or to Subscribe", s.deadLetter)
	}
	return nil
}
