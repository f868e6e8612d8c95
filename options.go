package jetpull

import (
	"cmp"
	"log/slog"
	"regexp"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/crash"
	"github.com/jetpull/jetpull/internal/wire"
	"github.com/jetpull/jetpull/limit"
)

// The types of options, by the calls that can use them. An option that a call cannot use does not compile.
type (
	// SubscribeOption is any option. An option of [Subscribe] is the default of all calls on the Subscription that can use it;
	// other calls ignore it. An option of a call applies to that call only.
	SubscribeOption interface{ base() option }
	// FetchOption is an option of [Subscription.Fetch].
	FetchOption interface {
		SubscribeOption
		fetch()
	}
	// NextOption is an option of [Subscription.Next] and [Msg.AckNext]. Each is a FetchOption too: Next is a Fetch of one message.
	NextOption interface {
		FetchOption
		next()
	}
	// ConsumeOption is an option of [Subscription.Consume].
	ConsumeOption interface {
		SubscribeOption
		consume()
	}
	// MessagesOption is an option of [Subscription.Messages]. Each is a ConsumeOption too.
	MessagesOption interface {
		ConsumeOption
		messages()
	}
	// HandlerOption is an option for handlers and the messages that wait for them. Each is a ConsumeOption too. Package
	// partition accepts these options, because they do not break the order of a key across processes.
	HandlerOption interface {
		ConsumeOption
		handler()
	}
	// PullOption is an option of the pulls of all calls.
	PullOption interface {
		NextOption
		MessagesOption
	}
	// RunOption is an option of calls that run until they are stopped: Messages, Consume, and those of package partition.
	RunOption interface {
		MessagesOption
		HandlerOption
	}
)

var serviceName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// option implements all types of options. The return type of an option's function determines which calls accept it.
type option struct {
	name    string
	apply   func(*settings)
	problem string // why the value is invalid for any call and consumer; empty if it is valid
}

func (o option) base() option { return o }
func (option) fetch()         {}
func (option) next()          {}
func (option) consume()       {}
func (option) messages()      {}
func (option) handler()       {}

// MaxWait sets how long Next and Fetch wait for a message, at least 1 ms. The server is asked to end the pull 100 ms earlier
// (ADR-13), so a wait over the consumer's MaxRequestExpires is refused with [ErrLimitExceeded]. By default a call waits until the
// deadline of its context, and 5 s if that has none. The context still ends the call if it is done first. On a consumer with the
// pinned_client policy a pull that waits for more than half of the consumer's PinnedTTL can outlive the pin that it should keep.
func MaxWait(d time.Duration) NextOption {
	return option{"MaxWait", func(s *settings) { s.maxWait = d }, within(d, minWait, maxWait, "")}
}

// NoWait makes Next and Fetch return the messages that are available now, and [ErrNoMessages] if there are none. Off by default.
// At the consumer's MaxAckPending the server does not answer such a pull, and the call takes about a second.
// A call that does not wait cannot use a [Heartbeat]: a default one is ignored, and one in the same call is refused.
func NoWait() NextOption {
	return option{"NoWait", func(s *settings) { s.noWait = true }, ""}
}

// FillBatch makes Fetch wait until it has all requested messages, or its deadline has passed. Off by default: Fetch returns the messages that
// arrive first. Messages that wait for the others are not kept in progress: with a [MaxWait] over AckWait, they can be redelivered meanwhile.
func FillBatch() FetchOption {
	return option{"FillBatch", func(s *settings) { s.fillBatch = true }, ""}
}

// MaxBytes limits a pull to n bytes, at least 1, counting subject, reply, headers and payload of each message. No limit by
// default. A call with this option does not share its pulls with other calls. If the next message alone is larger, the call
// fails with [ErrMaxBytes].
func MaxBytes(n int) PullOption {
	return option{"MaxBytes", func(s *settings) { s.maxBytes = n }, within(n, 1, maxBatch, " bytes")}
}

// Heartbeat asks the server for a heartbeat every d, at least 1 ms, while a pull waits. After two missed heartbeats the pull is sent
// again. d is at most half of the wait: a call whose [MaxWait] or default wait is too short for it is refused. If only the deadline of
// the call's context is too near, the call uses the default. The default is 1 s, and less for waits under 4.2 s, so that a lost pull
// costs at most half of the wait. Waits under 300 ms have none by default. In Consume and Messages the default is 2 s.
func Heartbeat(d time.Duration) PullOption {
	return option{"Heartbeat", func(s *settings) { s.terms.Heartbeat = d }, within(d, minWait, maxWait, "")}
}

// Group names the priority group that pulls belong to (ADR-42). A consumer with priority groups needs one.
func Group(name string) PullOption {
	return option{"Group", func(s *settings) { s.terms.Group = name }, ""}
}

// MinPending makes pulls wait until the consumer has at least n messages pending, n ≥ 1; only for the overflow policy. With
// MinAckPending, either is enough.
func MinPending(n int64) PullOption {
	return option{"MinPending", func(s *settings) { s.terms.MinPending = n }, positive(n, "threshold")}
}

// MinAckPending makes pulls wait until the consumer has at least n messages that are delivered and not acknowledged, n ≥ 1; only
// for the overflow policy.
func MinAckPending(n int64) PullOption {
	return option{"MinAckPending", func(s *settings) { s.terms.MinAckPending = n }, positive(n, "threshold")}
}

// Priority sets the priority of pulls, 0 (first, the default) to 9 (last); only for the prioritized policy.
func Priority(p int) PullOption {
	return option{"Priority", func(s *settings) { s.terms.Priority = p }, within(p, 0, 9, "")}
}

// OnPin sets a function that is called when this client becomes the pinned one of its group, once per change and on its own
// goroutine. It can only be given to Subscribe. Consume and Messages start no message of the pin until it has returned, so
// it can load the data that handlers need. Meanwhile messages are kept in progress, and are handed back if the call ends.
// Next and Fetch do not wait for it. It may call all methods of the Subscription except Close, [Subscription.Consume] and
// [Subscription.Messages], whose messages would wait for its own return. Callbacks run one after another. On a consumer
// without the pinned_client policy, the option is refused. None by default.
func OnPin(f func(PinEvent)) SubscribeOption {
	return option{"OnPin", func(s *settings) { s.onPin = f }, problem(f == nil, nilFunction)}
}

// OnUnpin sets a function that is called when this client is no longer the pinned one of its group, under the rules of [OnPin].
// None by default.
func OnUnpin(f func(PinEvent)) SubscribeOption {
	return option{"OnUnpin", func(s *settings) { s.onUnpin = f }, problem(f == nil, nilFunction)}
}

// Logger sets the logger for changes of state, failed handlers, retries and dead letters. The default is [slog.Default] at
// the start of the call. Retries, and the start and the end of Consume, have level debug. Each failure is logged: if you
// expect many, set a Logger that limits them. The logger's handler is called by workers and by the goroutine of the
// callbacks: if it blocks, they wait. It must not close the Subscription.
func Logger(l *slog.Logger) RunOption {
	const fix = "the logger is nil; use slog.New(slog.DiscardHandler) to discard the log"
	return option{"Logger", func(s *settings) { s.logger = l }, problem(l == nil, fix)}
}

// Concurrency sets how many handlers Consume runs at a time, 1..1792. By default 1, which keeps stream order.
func Concurrency(n int) HandlerOption {
	return option{"Concurrency", func(s *settings) { s.run.Workers = n }, within(n, 1, maxPrefetch, " handlers")}
}

// OrderedBy makes Consume handle messages with the same key in stream order, one at a time, and messages with different
// keys in parallel, up to Concurrency. A message whose handler failed stays in the client and in progress, before later
// messages of its key, and is retried after its delay. Delivered does not increase meanwhile. A handler that NAKs its
// message itself releases its key. A key that keeps failing can fill the window: then no more messages are pulled, and each
// failure is logged with its sequence. When Consume ends, and when the consumer's configuration changes, a message at its
// last delivery may be handled before an earlier one of its key. key is called once per delivery and must not block. If it
// panics, that is logged and reported to [OnError], and the message has the empty key.
func OrderedBy(key func(*Msg) string) HandlerOption {
	return option{"OrderedBy", func(s *settings) { s.run.orderedBy = key }, problem(key == nil, nilFunction)}
}

// Prefetch fixes how many messages Messages and Consume read ahead, including those being handled: 1..1792, and
// for Consume at least [Concurrency]. By default the number adapts. It is enough for 10 ms of work, grows while
// handlers wait for messages, and shrinks so that no message waits longer than a quarter of the consumer's AckWait.
// The messages held and on order are at most 1792 and about 64 MiB. With Prefetch only [PrefetchBytes] limits the bytes.
func Prefetch(n int) RunOption {
	return option{"Prefetch", func(s *settings) { s.run.Prefetch = n }, within(n, 1, maxPrefetch, " messages")}
}

// PrefetchBytes limits the messages that Messages and Consume read ahead to n bytes, n ≥ 1, counted as by MaxBytes. A message
// over a quarter of that is pulled alone, when nothing else is held, whatever its size. The default is about 64 MiB, or no
// limit if [Prefetch] is set.
func PrefetchBytes(n int) RunOption {
	return option{"PrefetchBytes", func(s *settings) { s.run.PrefetchBytes = n }, within(n, 1, maxBatch, " bytes")}
}

// KeepAlive makes Messages and Consume report a message to the server as in progress when they have held it, waiting or
// being handled, for half of the consumer's AckWait. So a slow handler causes no redelivery. On by default. With ack policy
// none it is refused, because nothing is redelivered.
func KeepAlive(on bool) MessagesOption {
	return option{"KeepAlive", func(s *settings) { s.run.KeepAlive = on }, ""}
}

// RetryDelays sets the delays before a message whose handler failed is handled again: the first entry after its first
// attempt, and the last entry after all further ones. 0 means no delay. By default the consumer's BackOff, and if it has
// none, 1 s doubling to 1 min, plus or minus a random fifth. Attempts are deliveries, as counted by the server, and retries
// by [OrderedBy]. With MaxAttempts(1) there are no retries, and the option is refused unless [DeadLetter] is set: the delays
// also apply to a message whose dead letter was not stored.
func RetryDelays(d ...time.Duration) HandlerOption {
	own := slices.Clone(d)
	wrong := func(delay time.Duration) bool { return delay < 0 || delay > maxWait }
	return option{"RetryDelays", func(s *settings) { s.run.RetryDelays = own }, cmp.Or(
		problem(len(d) == 0, "has no entries; leave the option out for the default, or give 0 for a retry at once"),
		problem(slices.ContainsFunc(d, wrong), "%v has an entry that is not in 0s..%v", d, maxWait),
	)}
}

// MaxAttempts makes Consume give up on a message whose handler failed at its n-th attempt, n ≥ 1: it goes to DeadLetter, if
// that is set, and is terminated. By default there is no limit, and with [OrderedBy] the consumer's MaxDeliver. More than
// MaxDeliver is refused: the server would stop first, and the message would be lost without a dead letter. The server also
// counts deliveries without an attempt: a message gets fewer attempts if a worker that stopped had read it ahead or cancelled
// its handler, or if a connection was lost. While a message is held its count does not decrease, even if the server's does.
// With OrderedBy on a consumer with the pinned_client policy and no MaxDeliver, only deliveries and retries to this call
// count. A handler that NAKs its message itself has not failed, so there is no limit to that: return [Retry] to have one.
func MaxAttempts(n int) HandlerOption {
	return option{"MaxAttempts", func(s *settings) { s.run.MaxAttempts = n }, positive(int64(n), "limit")}
}

// MaxCrashes makes Consume give up on a message that crashes its process: by os.Exit, a fatal error, or because memory runs out. Before
// the handler of a redelivered message starts, Consume stores a record in the bucket. When the handler has returned, it deletes the record.
// A message with n records of starts without an end is given up as by [MaxAttempts], with the reason "its process ended n times while it
// was handled", n ≥ 1. A first delivery writes nothing, so such a message crashes n+1 processes. Use 2 or more: with 1, redelivered
// messages that are handled at the same time as the culprit are given up too.
//
// A process handles only one message with such a record at a time. Other messages continue. A message that was handled at the same time
// as the culprit once is not counted with it again. A process that is cut off from its server counts as crashed when another one starts
// its message. While the bucket cannot be reached, redelivered messages wait, and [OnError] gets the reason.
//
// All processes of a consumer use the same bucket. Create it with a TTL of a day, after which a record is forgotten. No limit by default.
func MaxCrashes(n int, marks jetstream.KeyValue) HandlerOption {
	return option{"MaxCrashes", func(s *settings) { s.run.crashes = &crash.Counter{Most: n, Marks: marks} }, cmp.Or(
		positive(int64(n), "limit"),
		problem(marks == nil, "the bucket is nil; create one with a TTL of a day, or leave the option out"),
	)}
}

// ExpiresAt sets a function that returns the time until which a message is worth handling. If that time has passed when the
// handler would start, the message is given up as by [MaxAttempts], with the reason "expired". The time is compared with
// the clock of this process. The zero time means no limit. The function must not block. By default no message expires.
func ExpiresAt(f func(*Msg) time.Time) HandlerOption {
	return option{"ExpiresAt", func(s *settings) { s.run.expiresAt = f }, problem(f == nil, nilFunction)}
}

// DeadLetter sets the subject to which Consume publishes the messages that MaxAttempts, MaxCrashes and ExpiresAt give up on, with
// their headers and payload, and headers that state the reason (see [HeaderDeadReason]). The original is terminated only when a
// stream has confirmed the copy. None by default. A stream must store the subject, and the consumer must not deliver it. A
// consumer that delivers only headers is refused, because the copy would have no payload. Consume needs one of these options with
// it, its own or a default. [Terminate] makes no dead letter. A copy that is too large for its stream has no payload, or not even
// the message's own headers (see [HeaderDeadHeaders]). After any other error, the copy is published again.
//
// Each attempt to store the copy uses the same message id. If a confirmation is lost, the copy is not stored twice if the next
// attempt is within the duplicate window of the stream (Duplicates, 2 minutes by default). Keep that longer than the consumer's
// AckWait and the longest of RetryDelays.
//
// At the last delivery that the consumer's MaxDeliver allows, and while the consumer cannot be read, a handler's slot is occupied
// until the copy is stored, or Consume's drain times out. A stream of dead letters that is down therefore stops Consume.
func DeadLetter(subject string) HandlerOption {
	wrong := problem(!wire.Publishable(subject), "%q is not a subject to publish to; use one without wildcards, spaces and empty tokens", subject)
	return option{"DeadLetter", func(s *settings) { s.run.deadLetter = subject }, wrong}
}

// ManualAck lets the handler, or code to which it passes its message, settle it: by Ack, AckNext, DoubleAck, Nak,
// NakWithDelay, Term, TermWithReason or [ConfirmAcks]. A handler that returns nil does not settle its message. Until it is
// settled, the message is kept in progress (see [KeepAlive]), blocks its key with [OrderedBy], and counts as read ahead: a
// program that settles no messages gets no more. An error settles the message as without ManualAck. When Consume ends, it
// waits for unsettled messages as it does for running handlers. Off by default. With ack policy none it is refused.
func ManualAck() HandlerOption {
	return option{"ManualAck", func(s *settings) { s.run.ManualAck = true }, ""}
}

// StopAfter ends Messages, and Consume without an error, when n messages have been handled, n ≥ 1. They pull no more than n
// messages, so none has to be handed back. A message that fails and is redelivered counts again; a retry in place by
// [OrderedBy] does not count. No limit by default.
func StopAfter(n int) MessagesOption {
	wrong := within(n, 1, maxBatch, " messages; leave the option out for no limit")
	return option{"StopAfter", func(s *settings) { s.run.StopAfter = n }, wrong}
}

// HandlerTimeout cancels the context of a handler that has run for d, at least 1 ms, with a cause that says so. The attempt
// fails when the handler returns, whatever it returns; until then the message is kept in progress (see [KeepAlive]). None
// by default.
func HandlerTimeout(d time.Duration) HandlerOption {
	return option{"HandlerTimeout", func(s *settings) { s.run.HandlerTimeout = d }, within(d, minWait, maxWait, "")}
}

// DrainTimeout sets how long running handlers may continue when Consume ends, before their context is cancelled. By default
// 30 s; 0 cancels it immediately. Messages that were read ahead, at the last delivery that the consumer's MaxDeliver
// allows, are handled in that time. [OnError] gets the sequences of those that were not.
func DrainTimeout(d time.Duration) HandlerOption {
	return option{"DrainTimeout", func(s *settings) { s.run.DrainTimeout = d }, within(d, 0, maxWait, "")}
}

// DrainBuffered makes Consume handle, within [DrainTimeout], the messages that it has read ahead when its context ends. Off
// by default: they are handed back to the server, and another worker gets them immediately, as when Consume ends by itself.
// A message that fails meanwhile is handed back too, and with [OrderedBy] later messages of its key are handled before it.
// With a [Prefetch] that leaves no message waiting, and with DrainTimeout(0), the option is refused.
func DrainBuffered() ConsumeOption {
	return option{"DrainBuffered", func(s *settings) { s.run.DrainBuffered = true }, ""}
}

// Limited starts messages of a key only as the limiter allows, across all processes that opened it. A message that has to wait occupies no
// worker; others continue until the messages read ahead are used up (see [Prefetch]). Waiting is no attempt. With Concurrent, a handler's
// context ends with [limit.ErrLost] when other processes may run handlers of its key. The function must not block. No limit by default.
func Limited(l *limit.Limiter, key func(*Msg) string) HandlerOption {
	return option{"Limited", func(s *settings) { s.run.limiter, s.run.limitKey = l, key }, cmp.Or(
		problem(l == nil, "the limiter is nil; make one with limit.Open, or leave the option out"),
		problem(key == nil, nilFunction),
	)}
}

// Named makes Consume respond to requests from the account: which messages its handlers have, since when and at which delivery, and how many wait. A
// request can also cancel one message: the context of its handler ends with a cause that matches [ErrCancelled], and the handler decides what it
// returns. The commands jetpull ps and jetpull cancel send these requests. The name, of letters, digits, '-' and '_', is that of a service of
// nats.go's micro, which `nats service ls` lists. Any client that may publish to jetpull.cancel.STREAM.CONSUMER can cancel handlers. Off by default.
func Named(name string) HandlerOption {
	return option{"Named", func(s *settings) { s.run.named = name }, problem(!serviceName.MatchString(name),
		"%q is not a name of a service; use letters, digits, '-' and '_'", name)}
}

// OnError sets a function that Consume calls for each problem: an error or panic of a handler, a dead letter that was not
// stored, a pull that failed. With [OnEvent], OnError gets a failed attempt only if it makes no event, so no failure is
// reported twice. It is called in order, on its own goroutine, and must not block: later problems, and the callbacks of
// [OnPin] and [OnUnpin], wait for it. Up to 4096 problems wait. Further ones are dropped, which is logged when f has
// returned. f may still be called after Consume has returned, until Close. A panic in it is not recovered. None by default.
func OnError(f func(error)) HandlerOption {
	return option{"OnError", func(s *settings) { s.run.onError = f }, problem(f == nil, nilFunction)}
}

// OnStart sets a function that Consume calls once, after its options are checked and before the first pull. None by default.
func OnStart(f func()) ConsumeOption {
	return option{"OnStart", func(s *settings) { s.run.onStart = f }, problem(f == nil, nilFunction)}
}

// OnEvent sets a function that Consume calls for each failed attempt, with its message and its outcome: retried,
// dead-lettered, terminated, handed back. It is called under the rules of [OnError], in order with it. A message that its handler has
// settled makes no event, and with ack policy none there are no events: such failures go to OnError. None by default.
func OnEvent(f func(Event)) HandlerOption {
	return option{"OnEvent", func(s *settings) { s.run.onEvent = f }, problem(f == nil, nilFunction)}
}

// Use wraps the handler of Consume: the first Middleware is the outermost. Several Use options of one call add up. Options
// given to Consume replace those given to Subscribe. None by default.
func Use(mw ...Middleware) HandlerOption {
	own := slices.Clone(mw)
	missing := slices.ContainsFunc(own, func(m Middleware) bool { return m == nil })
	wrong := problem(missing, "a Middleware is nil; leave it out")
	return option{"Use", func(s *settings) { s.run.use = slices.Concat(s.run.use, own) }, wrong}
}

// AwaitConsumer makes Messages and Consume wait for a deleted consumer to be created again, as a pull consumer, instead of ending with
// [ErrConsumerDeleted]. Messages that no handler has are handed back, and running handlers continue. They read its configuration before they pull
// from it, and end with [ErrInvalidOption] if a new call would. Off by default.
func AwaitConsumer() MessagesOption {
	return option{"AwaitConsumer", func(s *settings) { s.run.awaitConsumer = true }, ""}
}
