package jetpull

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/wire"
)

const (
	defaultMaxWait      = 5 * time.Second
	defaultDrainTimeout = 30 * time.Second
	// expiresMargin is how much earlier than the caller's deadline the server
	// ends a pull (ADR-13), so that its status arrives in time.
	expiresMargin = 100 * time.Millisecond
	minWait       = time.Millisecond
	// maxWait bounds waits and delays: what is longer is a mistake in units.
	maxWait = 365 * 24 * time.Hour
	// heartbeatFrom is the shortest wait that asks for heartbeats by itself.
	heartbeatFrom    = 10 * time.Second
	defaultHeartbeat = 5 * time.Second
	maxBatch         = math.MaxInt32
)

// call is a set of the operations that an option can be used for.
type call uint8

const (
	callNext call = 1 << iota
	callFetch
	callMessages
	callConsume
	callSubscribe

	callPull   = callNext | callFetch
	callStream = callMessages | callConsume
	callAll    = callPull | callStream
)

func (c call) String() string {
	switch c {
	case callNext:
		return "Next"
	case callFetch:
		return "Fetch"
	case callMessages:
		return "Messages"
	case callConsume:
		return "Consume"
	}
	return "Subscribe"
}

// Option changes how a call works. Given to [Subscribe] it is the default of
// all calls on the Subscription that can use it; given to a call it holds for
// that call. An option that a call cannot use is refused with
// [ErrInvalidOption].
type Option struct {
	name  string
	uses  call
	apply func(*settings)
}

// settings is what the options of a call add up to.
type settings struct {
	maxWait   time.Duration // 0: context deadline, else 5 s
	noWait    bool
	fillBatch bool
	maxBytes  int
	heartbeat time.Duration // 0: by the length of the wait
	terms     groupTerms
	onPin     func(PinEvent)
	onUnpin   func(PinEvent)
	set       map[string]bool // the options that were given, by name
	// hooks is set where a call has pin callbacks or a logger of its own.
	hooks     bool
	streaming streamSettings
	logger    *slog.Logger
}

// streamSettings are those of Messages and Consume.
type streamSettings struct {
	concurrency   int
	orderedBy     func(*Msg) string
	prefetch      int // 0: adaptive
	prefetchBytes int // 0: no limit
	keepAlive     bool
	retryDelays   []time.Duration
	maxAttempts   int
	deadLetter    string
	drainTimeout  time.Duration
	onError       func(error)
	awaitConsumer bool
}

func defaultSettings() *settings {
	return &settings{
		set:    map[string]bool{},
		logger: slog.New(slog.DiscardHandler),
		streaming: streamSettings{
			concurrency:  1,
			keepAlive:    true,
			drainTimeout: defaultDrainTimeout,
		},
	}
}

// with returns the settings of one call: the defaults, changed by opts, and
// validated against what the consumer allows.
func (s *settings) with(c call, cfg *jetstream.ConsumerConfig, opts []Option) (*settings, error) {
	if len(opts) == 0 && c != callSubscribe {
		return s, s.streaming.complete(c)
	}
	n := *s
	n.set = make(map[string]bool, len(s.set)+len(opts))
	for k := range s.set {
		n.set[k] = true
	}
	own := make(map[string]bool, len(opts))
	for _, o := range opts {
		if o.apply == nil {
			return nil, invalid("Option", "an empty Option was given to %s; use one of the package's options", c)
		}
		if c != callSubscribe && o.uses&c == 0 {
			return nil, invalid(o.name, "cannot be used by %s", c)
		}
		o.apply(&n)
		n.set[o.name], own[o.name] = true, true
	}
	if c != callSubscribe {
		n.override(own)
		n.hooks = own["OnPin"] || own["OnUnpin"] || own["Logger"]
	}
	if err := n.validate(c, cfg, own); err != nil {
		return nil, err
	}
	return &n, nil
}

// override lets NoWait and FillBatch of a call take the place of the other one
// among the defaults; only together they are a contradiction.
func (s *settings) override(own map[string]bool) {
	switch {
	case own["NoWait"] && !own["FillBatch"]:
		s.fillBatch = false
	case own["FillBatch"] && !own["NoWait"]:
		s.noWait = false
	}
}

func (s *settings) validate(c call, cfg *jetstream.ConsumerConfig, own map[string]bool) error {
	if err := s.validateWaits(c, own); err != nil {
		return err
	}
	if own["MaxBytes"] && (s.maxBytes < 1 || s.maxBytes > math.MaxInt32) {
		return invalid("MaxBytes", "%d is not in 1..%d bytes", s.maxBytes, math.MaxInt32)
	}
	if err := s.terms.validate(cfg); err != nil {
		return err
	}
	if err := s.validatePinCallbacks(cfg, own); err != nil {
		return err
	}
	if s.noWait && s.fillBatch {
		return invalid("FillBatch", "excludes NoWait: one waits for the batch, the other never waits")
	}
	if c&callPull != 0 && s.noWait && own["Heartbeat"] {
		return invalid("Heartbeat", "excludes NoWait: %v is how often the server is heard of while a pull waits, and this one never waits; leave one of the two out", s.heartbeat)
	}
	if own["Logger"] && s.logger == nil {
		return invalid("Logger", "the logger is nil; leave the option out to discard the log")
	}
	return s.streaming.validate(c, cfg, own)
}

// validatePinCallbacks refuses those that would never be called.
func (s *settings) validatePinCallbacks(cfg *jetstream.ConsumerConfig, own map[string]bool) error {
	for _, o := range []struct {
		name string
		f    func(PinEvent)
	}{{"OnPin", s.onPin}, {"OnUnpin", s.onUnpin}} {
		if !own[o.name] {
			continue
		}
		if o.f == nil {
			return invalid(o.name, "the function is nil; leave the option out")
		}
		if cfg.PriorityPolicy != jetstream.PriorityPolicyPinned {
			return invalid(o.name, "would never be called: consumer %q has the priority policy %s, and pins are of pinned_client; leave the option out, or create the consumer with that policy", consumerName(cfg), policyName(cfg.PriorityPolicy))
		}
	}
	return nil
}

func (s *settings) validateWaits(c call, own map[string]bool) error {
	if own["MaxWait"] {
		if err := checkDuration("MaxWait", s.maxWait, minWait); err != nil {
			return err
		}
	}
	if own["Heartbeat"] {
		if err := checkDuration("Heartbeat", s.heartbeat, minWait); err != nil {
			return err
		}
	}
	if own["Heartbeat"] && c&callStream != 0 && s.heartbeat > streamExpires/2 {
		return invalid("Heartbeat", "%v is more than half of the %v for which a pull of %s waits; the server refuses that", s.heartbeat, streamExpires, c)
	}
	if s.maxWait > 0 && (own["MaxWait"] || own["Heartbeat"] && c&callPull != 0) {
		return s.checkHeartbeat(s.maxWait)
	}
	return nil
}

// checkHeartbeat refuses a heartbeat that is too long for a wait.
func (s *settings) checkHeartbeat(wait time.Duration) error {
	if s.heartbeat > 0 && 2*s.heartbeat > wait-expiresMargin {
		return invalid("Heartbeat", "%v is more than half of the wait of %v less %v; the server refuses that", s.heartbeat, wait, expiresMargin)
	}
	return nil
}

func checkDuration(option string, d, least time.Duration) error {
	if d < least || d > maxWait {
		return invalid(option, "%v is not in %v..%v", d, least, maxWait)
	}
	return nil
}

// wait is how long a call may take and whether the user said so by MaxWait.
func (s *settings) wait() (d time.Duration, explicit bool) {
	if s.maxWait > 0 {
		return s.maxWait, true
	}
	return defaultMaxWait, false
}

// MaxWait sets how long Next and Fetch wait for a message, at least 1 ms. The
// server is asked to end the pull 100 ms earlier (ADR-13), so a deadline on the
// consumer's MaxRequestExpires is told as [ErrLimitExceeded]. Without it, a
// call waits until the deadline of its context, and 5 s if that has none. The
// context still ends the call if it is done first.
func MaxWait(d time.Duration) Option {
	return Option{"MaxWait", callPull, func(s *settings) { s.maxWait = d }}
}

// NoWait makes Next and Fetch return what is there now, and [ErrNoMessages] if
// that is nothing. Off by default. A call without a wait has no use for a
// [Heartbeat]: as a default that is left out, and in the same call it is refused.
func NoWait() Option {
	return Option{"NoWait", callPull, func(s *settings) { s.noWait = true }}
}

// FillBatch makes Fetch wait until it has all messages it asked for or its
// deadline has passed. Off by default: Fetch returns with what arrives first.
func FillBatch() Option {
	return Option{"FillBatch", callFetch, func(s *settings) { s.fillBatch = true }}
}

// MaxBytes limits a pull to n bytes, at least 1, counting subject, reply,
// headers and payload of each message. No limit by default. A call with it
// shares its pulls with no other call. If the next message alone is larger,
// the call fails with [ErrMaxBytes].
func MaxBytes(n int) Option {
	return Option{"MaxBytes", callAll, func(s *settings) { s.maxBytes = n }}
}

// Heartbeat asks the server for a sign of life every d, at least 1 ms, while
// a pull waits; after two are missed the pull is sent again. At most half of
// the wait. By default 5 s for waits of 10 s and more; Consume and Messages ask
// for one every 400 ms, and for fewer where the server is too busy to send them.
func Heartbeat(d time.Duration) Option {
	return Option{"Heartbeat", callAll, func(s *settings) { s.heartbeat = d }}
}

// Group names the priority group that pulls belong to (ADR-42). A consumer
// with priority groups needs one.
func Group(name string) Option {
	return Option{"Group", callAll, func(s *settings) { s.terms.group = name }}
}

// MinPending makes pulls wait until the consumer has at least n messages
// pending, n ≥ 1; only for the overflow policy. With MinAckPending, either is
// enough.
func MinPending(n int64) Option {
	return Option{"MinPending", callAll, func(s *settings) { s.terms.minPending, s.terms.given = n, s.terms.given|givenMinPending }}
}

// MinAckPending makes pulls wait until the consumer has at least n messages
// that are delivered and not acknowledged, n ≥ 1; only for the overflow policy.
func MinAckPending(n int64) Option {
	return Option{"MinAckPending", callAll, func(s *settings) {
		s.terms.minAckPending, s.terms.given = n, s.terms.given|givenMinAckPending
	}}
}

// Priority sets the priority of pulls, 0 (first, the default) to 9 (last);
// only for the prioritized policy.
func Priority(p int) Option {
	return Option{"Priority", callAll, func(s *settings) { s.terms.priority, s.terms.given = p, s.terms.given|givenPriority }}
}

// OnPin sets what is called when this client becomes the pinned one of its
// group, once per change and on a goroutine of its own. It must not block, because
// later callbacks wait for it. A consumer without the pinned_client policy refuses
// it. None by default.
func OnPin(f func(PinEvent)) Option {
	return Option{"OnPin", callAll, func(s *settings) { s.onPin = f }}
}

// OnUnpin sets what is called when this client learns that it is no longer
// the pinned one of its group, once per change and on a goroutine of its own. It must
// not block, because later callbacks wait for it. A consumer without the
// pinned_client policy refuses it. None by default.
func OnUnpin(f func(PinEvent)) Option {
	return Option{"OnUnpin", callAll, func(s *settings) { s.onUnpin = f }}
}

// Logger sets where changes of state and warnings are logged. They are
// discarded by default.
func Logger(l *slog.Logger) Option {
	return Option{"Logger", callStream, func(s *settings) { s.logger = l }}
}

// groupTerms are the terms of a pull in a priority group. Pulls with the same
// terms serve each other's callers.
type groupTerms struct {
	group         string
	minPending    int64
	minAckPending int64
	priority      int
	given         given
}

// lane is what t says of the pull itself.
func (t groupTerms) lane() groupTerms {
	t.given = 0
	return t
}

// given tells a threshold of zero that was asked for from one that was not.
type given uint8

const (
	givenMinPending given = 1 << iota
	givenMinAckPending
	givenPriority
)

// validate checks the terms against the consumer's policy, so that the caller
// reads what is wrong instead of the server's 400.
func (t *groupTerms) validate(cfg *jetstream.ConsumerConfig) error {
	if t.given&givenMinPending != 0 && t.minPending < 1 {
		return invalid("MinPending", "%d is less than 1; leave the option out for no threshold", t.minPending)
	}
	if t.given&givenMinAckPending != 0 && t.minAckPending < 1 {
		return invalid("MinAckPending", "%d is less than 1; leave the option out for no threshold", t.minAckPending)
	}
	if t.priority < 0 || t.priority > 9 {
		return invalid("Priority", "%d is not in 0..9", t.priority)
	}
	if t.group != "" {
		if err := wire.ValidGroup(t.group); err != nil {
			return invalid("Group", "%v", err)
		}
	}
	if err := t.checkGroup(cfg); err != nil {
		return err
	}
	return t.checkPolicy(cfg.PriorityPolicy)
}

func (t *groupTerms) checkGroup(cfg *jetstream.ConsumerConfig) error {
	if cfg.PriorityPolicy == jetstream.PriorityPolicyNone {
		if t.group != "" {
			return invalid("Group", "%q: consumer %q has no priority groups; leave Group out, or create the consumer with PriorityGroups and PriorityPolicy", t.group, consumerName(cfg))
		}
		return nil
	}
	if t.group == "" {
		return invalid("Group", "missing: consumer %q needs one of its priority groups %q", consumerName(cfg), cfg.PriorityGroups)
	}
	for _, g := range cfg.PriorityGroups {
		if g == t.group {
			return nil
		}
	}
	return invalid("Group", "%q is not a group of consumer %q; it has %q", t.group, consumerName(cfg), cfg.PriorityGroups)
}

func (t *groupTerms) checkPolicy(p jetstream.PriorityPolicy) error {
	if p != jetstream.PriorityPolicyOverflow {
		if t.given&givenMinPending != 0 {
			return invalid("MinPending", "needs a consumer with the overflow policy; this one has %s", policyName(p))
		}
		if t.given&givenMinAckPending != 0 {
			return invalid("MinAckPending", "needs a consumer with the overflow policy; this one has %s", policyName(p))
		}
	}
	if p != jetstream.PriorityPolicyPrioritized && t.given&givenPriority != 0 {
		return invalid("Priority", "needs a consumer with the prioritized policy; this one has %s", policyName(p))
	}
	return nil
}

func policyName(p jetstream.PriorityPolicy) string {
	switch p {
	case jetstream.PriorityPolicyNone:
		return "none"
	case jetstream.PriorityPolicyPinned:
		return "pinned_client"
	case jetstream.PriorityPolicyOverflow:
		return "overflow"
	case jetstream.PriorityPolicyPrioritized:
		return "prioritized"
	}
	return fmt.Sprintf("policy %d", p)
}

func consumerName(cfg *jetstream.ConsumerConfig) string {
	if cfg.Durable != "" {
		return cfg.Durable
	}
	return cfg.Name
}
