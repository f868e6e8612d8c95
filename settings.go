package jetpull

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/crash"
	"github.com/jetpull/jetpull/internal/pull"
	"github.com/jetpull/jetpull/internal/transport"
	"github.com/jetpull/jetpull/internal/worker"
	"github.com/jetpull/jetpull/limit"
)

const (
	defaultMaxWait      = 5 * time.Second
	defaultDrainTimeout = 30 * time.Second
	minWait             = time.Millisecond
	// maxWait bounds waits and delays. A longer one is a mistake in units.
	maxWait     = 365 * 24 * time.Hour
	maxBatch    = math.MaxInt32
	maxPrefetch = transport.MaxOnOrder
)

// callKind is a kind of call, or a set of them.
type callKind uint8

const (
	callNext callKind = 1 << iota
	callFetch
	callMessages
	callConsume
	callSubscribe

	callPull = callNext | callFetch
	callRun  = callMessages | callConsume
)

func (c callKind) String() string {
	return map[callKind]string{callNext: "Next", callFetch: "Fetch", callMessages: "Messages", callConsume: "Consume", callSubscribe: "Subscribe"}[c]
}

// settings are the combined options of a call.
type settings struct {
	maxWait   time.Duration // 0: context deadline, else 5 s
	noWait    bool
	fillBatch bool
	maxBytes  int
	terms     pull.Terms
	onPin     func(PinEvent)
	onUnpin   func(PinEvent)
	logger    *slog.Logger // nil: slog's default
	run       runSettings
	given     map[string]callKind // the options that were given, and the call to which
}

// runSettings are the settings of Messages and Consume.
type runSettings struct {
	worker.Settings
	orderedBy     func(*Msg) string
	deadLetter    string
	crashes       *crash.Counter // nil: no limit
	named         string         // name of the service; empty: no service
	expiresAt     func(*Msg) time.Time
	limiter       *limit.Limiter // nil: no limit
	limitKey      func(*Msg) string
	deadHere      bool // the consumer's own stream stores dead letters
	use           []Middleware
	onError       func(error)
	onEvent       func(Event)
	onStart       func()
	awaitConsumer bool
}

func defaultSettings() *settings {
	return &settings{
		given: map[string]callKind{},
		run: runSettings{
			Settings: worker.Settings{Workers: 1, KeepAlive: true, DrainTimeout: defaultDrainTimeout},
			onStart:  func() {},
		},
	}
}

// log returns the logger of a call.
func (s *settings) log() *slog.Logger { return cmp.Or(s.logger, slog.Default()) }

// callSettings returns the settings of one call, after the checks that all calls share.
func callSettings[O SubscribeOption](ctx context.Context, s *Subscription, c callKind, opts []O) (*settings, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	_, bounded := ctx.Deadline()
	set, err := with(s.defaults, c, s.config(), opts, bounded)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, contextError(ctx, nil)
	}
	return set, nil
}

// with returns the settings of a call on a consumer with cfg: the defaults s, changed by opts. Without opts they are s itself. bounded reports
// whether the call's context has a deadline.
func with[O SubscribeOption](s *settings, c callKind, cfg *jetstream.ConsumerConfig, opts []O, bounded bool) (*settings, error) {
	if len(opts) == 0 {
		return s, s.check(c, cfg, bounded)
	}
	n := *s
	n.given = maps.Clone(s.given)
	for i, opt := range opts {
		if any(opt) == nil {
			return nil, invalid("opts", "option %d of %s is nil; leave it out", i+1, c)
		}
		o := opt.base()
		if o.problem != "" {
			return nil, invalid(o.name, "%s", o.problem)
		}
		if o.name == "Use" && n.given["Use"] != c { // the Use options of a call add up, and replace the defaults
			n.run.use = nil
		}
		o.apply(&n)
		n.given[o.name] = c
	}
	if c != callSubscribe {
		// A call's NoWait overrides a default FillBatch, and the reverse. They contradict each other only if both
		// are given in the same place.
		n.fillBatch = n.fillBatch && (n.given["FillBatch"] == c || n.given["NoWait"] != c)
		n.noWait = n.noWait && (n.given["NoWait"] == c || n.given["FillBatch"] != c)
	}
	return &n, n.check(c, cfg, bounded)
}

// check refuses options that contradict each other, and options that do not fit the consumer, so that the caller gets a
// specific error instead of the server's 400. A call without MaxWait ignores a default heartbeat that is too long for it.
func (s *settings) check(c callKind, cfg *jetstream.ConsumerConfig, bounded bool) error {
	o, t, policy := &s.run, &s.terms, cfg.PriorityPolicy
	beat, longest := time.Duration(0), time.Duration(math.MaxInt64) // the heartbeat to check, and its maximum
	switch {
	case c&callRun != 0 && s.given["Heartbeat"] == c:
		beat, longest = t.Heartbeat, pull.StandingExpires/2
	case c&(callPull|callSubscribe) != 0 && s.maxWait > 0:
		beat, longest = t.Heartbeat, (s.maxWait-pull.ExpiresMargin)/2
	case c&callPull != 0 && s.given["Heartbeat"] == c && !bounded:
		beat, longest = t.Heartbeat, (defaultMaxWait-pull.ExpiresMargin)/2
	}
	settles, consumes := c&(callRun|callSubscribe) != 0, c&(callConsume|callSubscribe) != 0
	full := o.Prefetch == o.Workers && (o.Prefetch == 1 || o.orderedBy == nil) // each message that is held is being handled
	switch {
	case s.noWait && s.fillBatch:
		return invalid("FillBatch", "excludes NoWait: one waits for the batch, the other never waits")
	case c&callPull != 0 && s.noWait && s.given["Heartbeat"] == c:
		return invalid("Heartbeat", "excludes NoWait: %v is how often the server sends one while a pull waits, and this one never waits; leave one of "+
			"the two out", t.Heartbeat)
	case beat > 0 && beat > longest:
		return invalid("Heartbeat", "%v is more than half of the time that a pull of %s waits, %v; the server refuses that", beat, c, 2*longest)
	case consumes && o.Prefetch > 0 && o.Prefetch < o.Workers:
		return invalid("Prefetch", "%d is below Concurrency %d: messages being handled count too, so %d handlers would never run; raise Prefetch, or "+
			"leave it out", o.Prefetch, o.Workers, o.Workers-o.Prefetch)
	case consumes && s.given["RetryDelays"] == c && o.MaxAttempts == 1 && o.deadLetter == "":
		return invalid("RetryDelays", "%v has no effect with MaxAttempts 1, which allows no retry; leave one of the two out", o.RetryDelays)
	case consumes && s.given["DrainBuffered"] == c && full:
		return invalid("DrainBuffered", "has no effect with Prefetch %d and Concurrency %d: no message waits for a handler; raise Prefetch, or leave "+
			"one of them out", o.Prefetch, o.Workers)
	case consumes && s.given["DrainBuffered"] == c && o.DrainTimeout == 0:
		return invalid("DrainBuffered", "has no effect with DrainTimeout 0, which leaves no time for it; leave one of the two out")
	case policy == jetstream.PriorityPolicyNone && t.Group != "":
		return invalid("Group", "%q: consumer %q has no priority groups; leave it out, or create the consumer with PriorityGroups and PriorityPolicy",
			t.Group, cfg.Name)
	case policy != jetstream.PriorityPolicyNone && t.Group == "":
		return invalid("Group", "missing: consumer %q needs one of its priority groups %q", cfg.Name, cfg.PriorityGroups)
	case t.Group != "" && !slices.Contains(cfg.PriorityGroups, t.Group):
		return invalid("Group", "%q is not a group of consumer %q; it has %q", t.Group, cfg.Name, cfg.PriorityGroups)
	case c == callConsume && cfg.AckPolicy == jetstream.AckAllPolicy:
		return invalid("Consume", "consumer %q has ack policy all: one acknowledgement covers all messages before it, also those that a lost "+
			"connection took with it; create the consumer with the explicit policy, or use Messages or Fetch, where you decide what an acknowledgement "+
			"covers", cfg.Name)
	case consumes && cfg.MaxDeliver > 0 && o.MaxAttempts > cfg.MaxDeliver:
		return invalid("MaxAttempts", "%d is more than the consumer's MaxDeliver of %d: the server would stop first and the message would be lost "+
			"without a dead letter; use %d at the most, or raise MaxDeliver", o.MaxAttempts, cfg.MaxDeliver, cfg.MaxDeliver)
	case consumes && cfg.MaxDeliver > 0 && o.crashes != nil && o.crashes.Most+2 > cfg.MaxDeliver:
		return invalid("MaxCrashes", "%d needs a MaxDeliver of %d at least, because the first delivery is not counted and the last one gives up; "+
			"consumer %q has %d: the server would stop first", o.crashes.Most, o.crashes.Most+2, cfg.Name, cfg.MaxDeliver)
	case c == callConsume && o.deadLetter != "" && cfg.HeadersOnly:
		return invalid("DeadLetter", "%q: consumer %q delivers headers only, so the copy would have no payload; create it without HeadersOnly, or "+
			"publish dead letters by OnEvent", o.deadLetter, cfg.Name)
	case c == callConsume && o.deadLetter != "" && o.MaxAttempts == 0 && o.crashes == nil && o.expiresAt == nil:
		return invalid("DeadLetter", "%q needs MaxAttempts, MaxCrashes or ExpiresAt, which say when a message is given up; give one to Consume or to "+
			"Subscribe", o.deadLetter)
	}
	for _, needs := range consumerNeeds {
		switch {
		case s.given[needs.option] == 0:
		case needs.value == nil && needs.policy != policy:
			return invalid(needs.option, "needs a consumer with the priority policy %s; consumer %q has the policy %s; leave the option out, or create "+
				"the consumer with that policy",
				policyNames[needs.policy], cfg.Name, policyNames[policy])
		case needs.value != nil && settles && cfg.AckPolicy == jetstream.AckNonePolicy:
			return invalid(needs.option, "%v has no effect: consumer %q has ack policy none, and nothing is redelivered; leave the option out, or create "+
				"the consumer with the explicit policy", needs.value(o), cfg.Name)
		}
	}
	return nil
}

// fits returns the error that a new call with these settings would return on the changed consumer.
func (s *settings) fits(c callKind, cfg *jetstream.ConsumerConfig) error {
	return cmp.Or(s.check(c, cfg, true), s.run.checkLoop(cfg))
}

// consumerNeeds lists the options that only some consumers support. Options without a value function need the priority policy;
// those with one need acknowledgements.
var consumerNeeds = []struct {
	option string
	policy jetstream.PriorityPolicy
	value  func(*runSettings) any
}{
	{"MinPending", jetstream.PriorityPolicyOverflow, nil},
	{"MinAckPending", jetstream.PriorityPolicyOverflow, nil},
	{"Priority", jetstream.PriorityPolicyPrioritized, nil},
	{"OnPin", jetstream.PriorityPolicyPinned, nil},
	{"OnUnpin", jetstream.PriorityPolicyPinned, nil},
	{"KeepAlive", 0, func(o *runSettings) any { return o.KeepAlive }},
	{"ManualAck", 0, func(o *runSettings) any { return o.ManualAck }},
	{"RetryDelays", 0, func(o *runSettings) any { return o.RetryDelays }},
	{"MaxAttempts", 0, func(o *runSettings) any { return o.MaxAttempts }},
	{"MaxCrashes", 0, func(o *runSettings) any { return o.crashes.Most }},
	{"DeadLetter", 0, func(o *runSettings) any { return o.deadLetter }},
}

var policyNames = map[jetstream.PriorityPolicy]string{
	jetstream.PriorityPolicyNone: "none", jetstream.PriorityPolicyPinned: "pinned_client",
	jetstream.PriorityPolicyOverflow: "overflow", jetstream.PriorityPolicyPrioritized: "prioritized",
}

// OptionError is the error for an option or an argument that cannot be used. It matches [ErrInvalidOption].
type OptionError struct {
	// Option is the name of the option, or of the argument.
	Option string
	// Problem describes what is wrong, with which value, and what to do.
	Problem string
}

// Error returns the name of the option and its problem.
func (e *OptionError) Error() string {
	return fmt.Sprintf("%v: %s: %s", ErrInvalidOption, e.Option, e.Problem)
}

// Unwrap returns ErrInvalidOption.
func (e *OptionError) Unwrap() error { return ErrInvalidOption }

// invalid returns an OptionError.
func invalid(option, format string, args ...any) error {
	return &OptionError{option, fmt.Sprintf(format, args...)}
}

const nilFunction = "the function is nil; leave the option out"

// problem returns the formatted text if bad, and otherwise an empty string.
func problem(bad bool, format string, args ...any) string {
	if !bad {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

func within[T int | time.Duration](v, least, most T, unit string) string {
	return problem(v < least || v > most, "%v is not in %v..%v%s", v, least, most, unit)
}

func positive(v int64, what string) string {
	return problem(v < 1, "%d is less than 1; leave the option out for no %s", v, what)
}
