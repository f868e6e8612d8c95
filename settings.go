package jetpull

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/pull"
	"github.com/jetpull/jetpull/internal/transport"
	"github.com/jetpull/jetpull/internal/worker"
)

const (
	defaultMaxWait      = 5 * time.Second
	defaultDrainTimeout = 30 * time.Second
	minWait             = time.Millisecond
	// maxWait bounds waits and delays: what is longer is a mistake in units.
	maxWait     = 365 * 24 * time.Hour
	maxBatch    = math.MaxInt32
	maxPrefetch = transport.MaxOnOrder
)

// call is a set of the operations that an option can be used for.
type call uint8

const (
	callNext call = 1 << iota
	callFetch
	callMessages
	callConsume
	callSubscribe

	callPull = callNext | callFetch
	callRun  = callMessages | callConsume
	callAll  = callPull | callRun
)

func (c call) String() string {
	return map[call]string{callNext: "Next", callFetch: "Fetch", callMessages: "Messages", callConsume: "Consume", callSubscribe: "Subscribe"}[c]
}

// settings is what the options of a call add up to.
type settings struct {
	maxWait   time.Duration // 0: context deadline, else 5 s
	noWait    bool
	fillBatch bool
	maxBytes  int
	terms     pull.Terms
	onPin     func(PinEvent)
	onUnpin   func(PinEvent)
	logger    *slog.Logger    // nil: see log
	given     map[string]bool // the options that were given, by name
	// hooks is set where a call has pin callbacks or a logger of its own.
	hooks bool
	run   runSettings
}

// runSettings are those of Messages and Consume.
type runSettings struct {
	worker.Settings
	orderedBy     func(*Msg) string
	deadLetter    string
	use           []Middleware
	onError       func(error)
	onEvent       func(Event)
	onStart       func()
	awaitConsumer bool
}

func defaultSettings() *settings {
	return &settings{
		given: map[string]bool{},
		run: runSettings{
			Settings: worker.Settings{Workers: 1, KeepAlive: true, DrainTimeout: defaultDrainTimeout},
			onStart:  func() {},
		},
	}
}

// log is where a call logs: by default to slog's default logger, as it is when the call begins.
func (s *settings) log() *slog.Logger {
	if s.logger != nil {
		return s.logger
	}
	return slog.New(worker.Warnings{Handler: slog.Default().Handler()})
}

// with returns the settings of one call: the defaults, changed by opts, and validated against what the consumer
// allows.
func (s *settings) with(c call, cfg *jetstream.ConsumerConfig, opts []Option) (*settings, error) {
	if len(opts) == 0 && c != callSubscribe {
		return s, s.complete(c, cfg)
	}
	n := *s
	n.given = maps.Clone(s.given)
	own := make(map[string]bool, len(opts))
	for _, o := range opts {
		if o.apply == nil {
			return nil, invalid("Option", "an empty Option was given to %s; use one of the package's options", c)
		}
		if c != callSubscribe && o.uses&c == 0 {
			return nil, invalid(o.name, "cannot be used by %s", c)
		}
		if o.problem != "" {
			return nil, invalid(o.name, "%s", o.problem)
		}
		o.apply(&n)
		n.given[o.name], own[o.name] = true, true
	}
	if c != callSubscribe {
		// NoWait and FillBatch of a call take the place of the other one among the defaults; only together they
		// are a contradiction.
		n.fillBatch = n.fillBatch && (own["FillBatch"] || !own["NoWait"])
		n.noWait = n.noWait && (own["NoWait"] || !own["FillBatch"])
		n.hooks = own["OnPin"] || own["OnUnpin"] || own["Logger"]
	}
	if err := n.validate(c, own); err != nil {
		return nil, err
	}
	return &n, n.suits(c, cfg, own)
}

// fits is nil if the settings would be accepted by a consumer with cfg.
func (s *settings) fits(c call, cfg *jetstream.ConsumerConfig) error { return s.suits(c, cfg, s.given) }

// suits refuses what a consumer with cfg has no use for, among the options that are in own.
func (s *settings) suits(c call, cfg *jetstream.ConsumerConfig, own map[string]bool) error {
	if err := s.validateTerms(cfg, own); err != nil {
		return err
	}
	if err := s.run.validateRetries(cfg, own); err != nil {
		return err
	}
	return s.complete(c, cfg)
}

// complete refuses what a call cannot do with the options that it has, its own and the defaults.
func (s *settings) complete(c call, cfg *jetstream.ConsumerConfig) error {
	if c != callConsume {
		return nil
	}
	if cfg.AckPolicy == jetstream.AckAllPolicy {
		return invalid("Consume", "consumer %q has ack policy all: one acknowledgement covers all messages before it, also those that a lost connection took with it; create the consumer with the explicit policy, or use Messages or Fetch, where you decide what an acknowledgement covers", cfg.Name)
	}
	o := &s.run
	if o.deadLetter != "" && o.MaxAttempts == 0 {
		return invalid("DeadLetter", "%q needs MaxAttempts, which says when a message is given up; give it to Consume or to Subscribe", o.deadLetter)
	}
	return nil
}

// validate refuses options that contradict each other.
func (s *settings) validate(c call, own map[string]bool) error {
	o, beat := &s.run, s.terms.Heartbeat
	switch {
	case own["Heartbeat"] && c&callRun != 0 && beat > pull.StandingExpires/2:
		return invalid("Heartbeat", "%v is more than half of the %v for which a pull of %s waits; the server refuses that", beat, pull.StandingExpires, c)
	case s.noWait && s.fillBatch:
		return invalid("FillBatch", "excludes NoWait: one waits for the batch, the other never waits")
	case c&callPull != 0 && s.noWait && own["Heartbeat"]:
		return invalid("Heartbeat", "excludes NoWait: %v is how often the server sends one while a pull waits, and this one never waits; leave one of the two out", beat)
	case c&(callConsume|callSubscribe) != 0 && o.Prefetch > 0 && o.Prefetch < o.Workers:
		return invalid("Prefetch", "%d is below Concurrency %d: messages being handled count too, so %d handlers would never run; raise Prefetch, or leave it out", o.Prefetch, o.Workers, o.Workers-o.Prefetch)
	case s.maxWait > 0 && (own["MaxWait"] || own["Heartbeat"] && c&callPull != 0):
		return s.checkHeartbeat(s.maxWait)
	}
	return nil
}

// checkHeartbeat refuses a heartbeat that is too long for a wait.
func (s *settings) checkHeartbeat(wait time.Duration) error {
	if beat := s.terms.Heartbeat; beat > 0 && 2*beat > wait-pull.ExpiresMargin {
		return invalid("Heartbeat", "%v is more than half of the wait of %v less %v; the server refuses that", beat, wait, pull.ExpiresMargin)
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

// validateTerms checks the terms against the consumer's policy, so that the caller reads what is wrong instead
// of the server's 400.
func (s *settings) validateTerms(cfg *jetstream.ConsumerConfig, own map[string]bool) error {
	t, policy := &s.terms, cfg.PriorityPolicy
	switch {
	case policy == jetstream.PriorityPolicyNone && t.Group != "":
		return invalid("Group", "%q: consumer %q has no priority groups; leave it out, or create the consumer with PriorityGroups and PriorityPolicy", t.Group, cfg.Name)
	case policy != jetstream.PriorityPolicyNone && t.Group == "":
		return invalid("Group", "missing: consumer %q needs one of its priority groups %q", cfg.Name, cfg.PriorityGroups)
	case t.Group != "" && !slices.Contains(cfg.PriorityGroups, t.Group):
		return invalid("Group", "%q is not a group of consumer %q; it has %q", t.Group, cfg.Name, cfg.PriorityGroups)
	}
	for _, o := range []struct {
		name  string
		needs jetstream.PriorityPolicy
	}{
		{"MinPending", jetstream.PriorityPolicyOverflow},
		{"MinAckPending", jetstream.PriorityPolicyOverflow},
		{"Priority", jetstream.PriorityPolicyPrioritized},
		{"OnPin", jetstream.PriorityPolicyPinned},
		{"OnUnpin", jetstream.PriorityPolicyPinned},
	} {
		if own[o.name] && policy != o.needs {
			fix := ""
			if o.needs == jetstream.PriorityPolicyPinned { // a callback, which no command has
				fix = "; leave the option out, or create the consumer with that policy"
			}
			return invalid(o.name, "needs a consumer with the priority policy %s; consumer %q has the policy %s%s", policyName(o.needs), cfg.Name, policyName(policy), fix)
		}
	}
	return nil
}

func policyName(p jetstream.PriorityPolicy) string {
	name := map[jetstream.PriorityPolicy]string{
		jetstream.PriorityPolicyNone: "none", jetstream.PriorityPolicyPinned: "pinned_client",
		jetstream.PriorityPolicyOverflow: "overflow", jetstream.PriorityPolicyPrioritized: "prioritized",
	}[p]
	if name == "" {
		return fmt.Sprintf("%d", p)
	}
	return name
}

func (s *runSettings) validateRetries(cfg *jetstream.ConsumerConfig, own map[string]bool) error {
	if cfg.MaxDeliver > 0 && s.MaxAttempts > cfg.MaxDeliver {
		return invalid("MaxAttempts", "%d is more than the consumer's MaxDeliver of %d: the server would stop first and the message would be lost without a dead letter; use %d at the most, or raise MaxDeliver", s.MaxAttempts, cfg.MaxDeliver, cfg.MaxDeliver)
	}
	if cfg.AckPolicy != jetstream.AckNonePolicy {
		return nil
	}
	for name, value := range map[string]any{"KeepAlive": s.KeepAlive, "ManualAck": s.ManualAck, "RetryDelays": s.RetryDelays, "MaxAttempts": s.MaxAttempts, "DeadLetter": s.deadLetter} {
		if own[name] {
			return invalid(name, "%v has no effect: consumer %q has ack policy none, and nothing is redelivered; leave the option out, or create the consumer with the explicit policy", value, cfg.Name)
		}
	}
	return nil
}

const nilFunction = "the function is nil; leave the option out"

// problem is what is wrong with the value of an option if it is bad.
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

// publishable reports whether subject can be published to: tokens between dots, without spaces and wildcards.
func publishable(subject string) bool {
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" || strings.ContainsAny(token, " \t\r\n\f*>") {
			return false
		}
	}
	return true
}
