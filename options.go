package jetpull

import (
	"cmp"
	"log/slog"
	"slices"
	"time"
)

// Option changes how a call works. Given to [Subscribe] it is the default of all calls
// on the Subscription that can use it; given to a call it holds for that call. An option
// that a call cannot use is refused with [ErrInvalidOption].
type Option struct {
	name    string
	uses    call
	apply   func(*settings)
	problem string // what is wrong with its value, for any call and consumer; empty: nothing
}

// MaxWait sets how long Next and Fetch wait for a message, at least 1 ms. The server is asked to end the pull
// 100 ms earlier (ADR-13), so a wait over the consumer's MaxRequestExpires is refused with
// [ErrLimitExceeded]. Without it a call waits until the deadline of its context, and 5 s if that has none.
// The context still ends the call if it is done first. On a consumer with the pinned_client policy a pull that waits for
// more than half of the consumer's PinnedTTL can outlive the pin that it should keep.
func MaxWait(d time.Duration) Option {
	return Option{"MaxWait", callPull, func(s *settings) { s.maxWait = d }, within(d, minWait, maxWait, "")}
}

// NoWait makes Next and Fetch return what is there now, and [ErrNoMessages] if that is
// nothing. Off by default. A call without a wait has no use for a [Heartbeat]: as a
// default that is left out, and in the same call it is refused.
func NoWait() Option {
	return Option{"NoWait", callPull, func(s *settings) { s.noWait = true }, ""}
}

// FillBatch makes Fetch wait until it has all messages it asked for or its deadline has
// passed. Off by default: Fetch returns with what arrives first.
func FillBatch() Option {
	return Option{"FillBatch", callFetch, func(s *settings) { s.fillBatch = true }, ""}
}

// MaxBytes limits a pull to n bytes, at least 1, counting subject, reply, headers and
// payload of each message. No limit by default. A call with it shares its pulls with no
// other call. If the next message alone is larger, the call fails with [ErrMaxBytes].
func MaxBytes(n int) Option {
	return Option{"MaxBytes", callAll, func(s *settings) { s.maxBytes = n }, within(n, 1, maxBatch, " bytes")}
}

// Heartbeat asks the server for a heartbeat every d, at least 1 ms, while a pull waits; after two are missed the pull
// is sent again. At most half of the wait. By default 1 s, and less for waits under 4.2 s, so that a pull that is
// lost costs no more than half of the wait; none for waits under 300 ms. Consume and Messages ask for one every 2 s.
func Heartbeat(d time.Duration) Option {
	return Option{"Heartbeat", callAll, func(s *settings) { s.terms.Heartbeat = d }, within(d, minWait, maxWait, "")}
}

// Group names the priority group that pulls belong to (ADR-42). A consumer with priority groups needs one.
func Group(name string) Option {
	return Option{"Group", callAll, func(s *settings) { s.terms.Group = name }, ""}
}

// MinPending makes pulls wait until the consumer has at least n messages pending, n ≥ 1;
// only for the overflow policy. With MinAckPending, either is enough.
func MinPending(n int64) Option {
	return Option{"MinPending", callAll, func(s *settings) { s.terms.MinPending = n }, positive(n, "threshold")}
}

// MinAckPending makes pulls wait until the consumer has at least n messages that are
// delivered and not acknowledged, n ≥ 1; only for the overflow policy.
func MinAckPending(n int64) Option {
	return Option{"MinAckPending", callAll, func(s *settings) { s.terms.MinAckPending = n }, positive(n, "threshold")}
}

// Priority sets the priority of pulls, 0 (first, the default) to 9 (last); only for the prioritized policy.
func Priority(p int) Option {
	return Option{"Priority", callAll, func(s *settings) { s.terms.Priority = p }, within(p, 0, 9, "")}
}

// OnPin sets what is called when this client becomes the pinned one of its group, once per change and on a goroutine of
// its own. It is given to Subscribe. Consume and Messages begin no message of the pin until it has returned: it is the place to load what handlers
// need. Messages are kept in progress meanwhile, and are handed back if the call ends. Next and Fetch do not wait for it.
// It may call all methods of the Subscription but Close, [Subscription.Consume] and [Subscription.Messages], whose messages
// would wait for its own return; and it waits for earlier callbacks, as later ones wait for it. A consumer without the
// pinned_client policy refuses it. None by default.
func OnPin(f func(PinEvent)) Option {
	return Option{"OnPin", callSubscribe, func(s *settings) { s.onPin = f }, problem(f == nil, nilFunction)}
}

// OnUnpin sets what is called when this client is no longer the pinned one of its group,
// under the rules of [OnPin]. None by default.
func OnUnpin(f func(PinEvent)) Option {
	return Option{"OnUnpin", callSubscribe, func(s *settings) { s.onUnpin = f }, problem(f == nil, nilFunction)}
}

// Logger sets where changes of state, failed handlers, retries and dead letters are logged. By default
// [slog.Default] gets warnings and errors, at the level that it has when the call begins. A line is logged for each failure, so
// set a Logger that limits them where many are expected. The logger's handler is
// called by workers and where callbacks are: one that blocks holds them up, and it must not close the Subscription.
func Logger(l *slog.Logger) Option {
	const fix = "the logger is nil; use slog.New(slog.DiscardHandler) to discard the log"
	return Option{"Logger", callRun, func(s *settings) { s.logger = l }, problem(l == nil, fix)}
}

// Concurrency sets how many handlers Consume runs at a time, 1..1792. By default 1, which keeps stream order.
func Concurrency(n int) Option {
	return Option{"Concurrency", callConsume, func(s *settings) { s.run.Workers = n }, within(n, 1, maxPrefetch, " handlers")}
}

// OrderedBy makes Consume handle messages with the same key in stream order, one at a time, and those with
// different keys in parallel, up to Concurrency. A message whose handler failed stays here, first of its key
// and in progress, and is handled again after its delay; Delivered does not grow meanwhile. A handler that hands
// its message back itself releases its key. A key that keeps failing can fill the window: then no more
// is pulled, and the log has a line with the sequence for each failure. Where the consumer's configuration changes, a message at its last
// delivery may be handled before an earlier one of its key. key is called once a delivery and must not block. If it
// panics, the message gets no handler, holds up no other, and counts as one whose handler failed.
func OrderedBy(key func(*Msg) string) Option {
	return Option{"OrderedBy", callConsume, func(s *settings) { s.run.orderedBy = key }, problem(key == nil, nilFunction)}
}

// Prefetch fixes how many messages Messages and Consume read ahead, those being handled included, 1..1792;
// for Consume at least [Concurrency]. By default it adapts: it is enough for 10 ms of work, grows while
// handlers wait for messages, and shrinks so that none waits longer than a quarter of the consumer's AckWait,
// within 1792 messages and about 64 MiB, held and on order. A message over an eighth of that may be pulled
// alone, when nothing else is held; [PrefetchBytes] sets another limit. Fixed, it is the only limit.
func Prefetch(n int) Option {
	return Option{"Prefetch", callRun, func(s *settings) { s.run.Prefetch = n }, within(n, 1, maxPrefetch, " messages")}
}

// PrefetchBytes limits what Messages and Consume read ahead to n bytes, n ≥ 1, counted
// as by MaxBytes. A message that is larger alone is still delivered, when nothing else
// is held. By default about 64 MiB, and no limit where [Prefetch] is set.
func PrefetchBytes(n int) Option {
	return Option{"PrefetchBytes", callRun, func(s *settings) { s.run.PrefetchBytes = n }, within(n, 1, maxBatch, " bytes")}
}

// KeepAlive reports messages in progress to the server that Messages and Consume have held for half of the
// consumer's AckWait, waiting or being handled, so that a slow handler causes no redelivery. On by default. A
// consumer with ack policy none refuses it, because nothing is redelivered.
func KeepAlive(on bool) Option {
	return Option{"KeepAlive", callRun, func(s *settings) { s.run.KeepAlive = on }, ""}
}

// RetryDelays sets after which delay a message is handled again whose handler failed: the first entry after
// its first attempt, the last for all further ones. 0 means at once. By default the consumer's BackOff, and
// where it has none 1 s, doubling to 1 min, a fifth more or less by chance. Attempts are deliveries, as the
// server counts them, and retries by [OrderedBy].
func RetryDelays(d ...time.Duration) Option {
	own := slices.Clone(d)
	wrong := func(delay time.Duration) bool { return delay < 0 || delay > maxWait }
	return Option{"RetryDelays", callConsume, func(s *settings) { s.run.RetryDelays = own }, cmp.Or(
		problem(len(d) == 0, "has no entries; leave the option out for the default, or give 0 for a retry at once"),
		problem(slices.ContainsFunc(d, wrong), "%v has an entry that is not in 0s..%v", d, maxWait),
	)}
}

// MaxAttempts makes Consume give up on a message whose handler failed at its n-th attempt, n ≥ 1: it goes to
// DeadLetter, if that is set, and is terminated. No limit by default, but with [OrderedBy] the consumer's MaxDeliver. More
// than that is refused: the server would stop first and the message would be lost without a dead letter. Deliveries are
// counted by the server, so those count too that no handler had: a message that was read ahead by workers that stopped, or
// lost with a connection, has fewer tries. While a message is held its count does not fall, also where the server's does.
func MaxAttempts(n int) Option {
	return Option{"MaxAttempts", callConsume, func(s *settings) { s.run.MaxAttempts = n }, positive(int64(n), "limit")}
}

// DeadLetter sets the subject that messages are published to which are given up by MaxAttempts, with their
// headers and payload, and headers that say why (see [HeaderDeadReason]). The original is terminated only
// when a stream has confirmed the copy. None by default. The subject must be stored by a stream, and the
// consumer must not deliver it. A consumer that delivers headers only is refused, because the copy would have no payload.
// Consume needs [MaxAttempts] with it, its own or the default. [Terminate] makes no dead letter.
//
// The copy has the same message id at each try, so that one whose confirmation was lost is not stored twice,
// if the next try comes within the duplicate window of the stream that stores it (Duplicates, 2 minutes
// unless set). Keep that longer than the consumer's AckWait and the longest of RetryDelays.
//
// At the last delivery that the consumer's MaxDeliver allows a handler's slot is taken until the copy is
// stored or Consume's drain ends: a stream of dead letters that is down then stops Consume.
func DeadLetter(subject string) Option {
	wrong := problem(!publishable(subject), "%q is not a subject to publish to; use one without wildcards, spaces and empty tokens", subject)
	return Option{"DeadLetter", callConsume, func(s *settings) { s.run.deadLetter = subject }, wrong}
}

// ManualAck leaves it to the handler, or to other code that it hands its message to, to settle it: by Ack, AckNext,
// DoubleAck, Nak, NakWithDelay, Term, TermWithReason or [ConfirmAcks]. A handler that returns nil has not settled its message. Until that
// happens the message is kept in progress (see [KeepAlive]), holds up its key with [OrderedBy], and takes up a place of
// what may be read ahead: a program that settles none gets no more, and is warned after ten times AckWait. An error settles
// as without ManualAck. When Consume ends it waits for what is not settled as for handlers that run. Off by default. A
// consumer with ack policy none refuses it.
func ManualAck() Option {
	return Option{"ManualAck", callConsume, func(s *settings) { s.run.ManualAck = true }, ""}
}

// StopAfter ends Messages and Consume, which returns nil, when n messages have been handled, n ≥ 1. They ask the server for
// no more than that, so that nothing has to be handed back. A message that failed and is delivered again counts again,
// but not one that is retried in place by [OrderedBy]. No limit by default.
func StopAfter(n int) Option {
	return Option{"StopAfter", callRun, func(s *settings) { s.run.StopAfter = n }, within(n, 1, maxBatch, " messages; leave the option out for no limit")}
}

// HandlerTimeout ends the context of a handler that has run for d, at least 1 ms, with a cause that says so.
// Its message fails as by an error when the handler returns, whatever it returns, and is kept in progress until then; see
// [KeepAlive]. None by default: after ten times AckWait a log line has the sequences that a worker has taken.
func HandlerTimeout(d time.Duration) Option {
	return Option{"HandlerTimeout", callConsume, func(s *settings) { s.run.HandlerTimeout = d }, within(d, minWait, maxWait, "")}
}

// DrainTimeout sets how long handlers may go on when Consume ends before their context is cancelled. By
// default 30 s; 0 cancels it at once. Messages that were read ahead at the last delivery that the consumer's
// MaxDeliver allows are handled in that time; the sequences of those that were not go to [OnError].
func DrainTimeout(d time.Duration) Option {
	return Option{"DrainTimeout", callConsume, func(s *settings) { s.run.DrainTimeout = d }, within(d, 0, maxWait, "")}
}

// DrainBuffered makes Consume handle, within [DrainTimeout], what it has read ahead when its context ends. Off by default:
// that is handed back to the server, and another worker can have it at once, as it is when Consume ends by itself. A message
// that fails meanwhile goes back too, and with [OrderedBy] those behind it are handled before it.
func DrainBuffered() Option {
	return Option{"DrainBuffered", callConsume, func(s *settings) { s.run.DrainBuffered = true }, ""}
}

// OnError sets what Consume calls for each problem: an error or panic of a handler, a dead letter that was
// not stored, a pull that failed. With [OnEvent] the failed attempts of handlers go there, and only to OnError if they make
// no event, so that no failure is reported twice. It is called on a goroutine of its own, in order, and must not block: later
// problems, and the callbacks of [OnPin] and [OnUnpin], wait for it. Up to 4096 problems wait; those beyond
// are counted, and it gets their number. Calls may go on when Consume has returned, until Close. A panic in it is not
// recovered. None by default.
func OnError(f func(error)) Option {
	return Option{"OnError", callConsume, func(s *settings) { s.run.onError = f }, problem(f == nil, nilFunction)}
}

// OnStart sets what Consume calls, once, when it has found nothing against its options, before it begins to pull. None by default.
func OnStart(f func()) Option {
	return Option{"OnStart", callConsume, func(s *settings) { s.run.onStart = f }, problem(f == nil, nilFunction)}
}

// OnEvent sets what Consume calls for each attempt that failed, with its message and what came of it: retried, dead-lettered,
// terminated. It is called as the function of [OnError] is, in order with it. A message that its handler has settled itself
// makes no event, and with ack policy none there are no events: such failures go to OnError. None by default.
func OnEvent(f func(Event)) Option {
	return Option{"OnEvent", callConsume, func(s *settings) { s.run.onEvent = f }, problem(f == nil, nilFunction)}
}

// Use wraps the handler of Consume: the first Middleware is the outermost. Given to Consume it takes the place of that given
// to Subscribe, and of an earlier one; it does not add to it. None by default.
func Use(mw ...Middleware) Option {
	own := slices.Clone(mw)
	missing := slices.ContainsFunc(own, func(m Middleware) bool { return m == nil })
	return Option{"Use", callConsume, func(s *settings) { s.run.use = own }, problem(missing, "a Middleware is nil; leave it out")}
}

// AwaitConsumer makes Messages and Consume wait for a deleted consumer to be created
// again instead of ending with [ErrConsumerDeleted]. They read its configuration before
// they pull from it, and end with [ErrInvalidOption] if a new call would. Off by default.
func AwaitConsumer() Option {
	return Option{"AwaitConsumer", callRun, func(s *settings) { s.run.awaitConsumer = true }, ""}
}
