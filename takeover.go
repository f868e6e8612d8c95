package jetpull

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// config is the consumer's configuration as it was read last. What it points to
// does not change. A Subscription that was not made by Subscribe has an empty one.
func (s *Subscription) config() *jetstream.ConsumerConfig {
	if cfg := s.live.Load(); cfg != nil {
		return cfg
	}
	return &jetstream.ConsumerConfig{}
}

// configure makes cfg the configuration, and reports whether it is another one.
func (s *Subscription) configure(cfg jetstream.ConsumerConfig) bool {
	cfg.Name = s.consumer
	if old := s.live.Load(); old != nil && reflect.DeepEqual(*old, cfg) {
		return false
	}
	s.live.Store(&cfg)
	s.ackNone.Store(cfg.AckPolicy == jetstream.AckNonePolicy)
	return true
}

// readWait is how long a reading of the consumer's configuration may take.
const readWait = 2 * time.Second

// checkConsumer reads the consumer's configuration, on a goroutine of the engine's
// group that ends with the engine. Standing claims may depend on it, and a consumer
// that is gone ends calls.
func (e *engine) checkConsumer() {
	e.group.Go(func(ctx context.Context) {
		err := e.readConfig(ctx)
		if err == nil {
			return
		}
		e.mu.Lock()
		e.rules.gone(e.now(), goneError(err, e.sub))
		e.toNudge = true
		e.act()
	})
}

// wonder reads it where nothing depends on it. That it cannot be read says nothing.
func (e *engine) wonder() {
	e.group.Go(func(ctx context.Context) {
		_ = e.readConfig(ctx)
		e.mu.Lock()
		e.rules.wondered()
		e.mu.Unlock()
	})
}

// readConfig takes over what has changed: the streams first, because when the rules
// have heard of it messages can come that are to be handled by it. No lock is held.
func (e *engine) readConfig(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	e.mu.Lock()
	e.readings++
	n, needs := e.readings, e.rules.needs
	e.mu.Unlock()
	info, err := e.sub.handle.Info(ctx)
	if err != nil {
		return err
	}
	e.taking <- struct{}{}
	defer func() { <-e.taking }()
	e.mu.Lock()
	var streams []*stream
	if n > e.lastRead { // or else a later one has been answered
		e.lastRead = n
		if e.sub.configure(info.Config) {
			e.sub.changed.Store(true)
			streams = slices.Clone(e.streams)
		}
	}
	e.mu.Unlock()
	for _, st := range streams {
		st.follow()
	}
	e.mu.Lock()
	e.rules.found(e.now(), limitsOf(e.sub.config()), needs)
	e.toNudge = true
	e.act()
	return nil
}

// strange is told that a message came again that should not have: the server may
// have got other ideas of AckWait.
func (e *engine) strange() {
	e.mu.Lock()
	e.rules.wonder(e.now())
	e.act()
}

// follow lets the stream go by the configuration that the consumer has now, or
// ends it where it cannot.
func (st *stream) follow() {
	st.following.Lock()
	cfg := st.sub.config()
	err := st.fits(cfg)
	if err == nil {
		st.adapt(cfg)
	}
	st.following.Unlock()
	if err != nil {
		st.log.Warn("jetpull: the consumer's configuration has changed, and this call does not fit it", "error", err)
		st.end(err)
		return
	}
	st.resize(st.window.refit())
}

// fits is nil if the stream can go on with cfg.
func (st *stream) fits(cfg *jetstream.ConsumerConfig) error {
	if err := st.set.fits(st.call, cfg); err != nil {
		return err
	}
	if cfg.AckPolicy != st.ackPolicy {
		// What was acknowledged, and how, depends on it throughout.
		return fmt.Errorf("%w: consumer %q was made anew with ack policy %s and had %s; call %s again", ErrConsumerDeleted, consumerName(cfg), ackPolicyName(cfg.AckPolicy), ackPolicyName(st.ackPolicy), st.call)
	}
	return nil
}

func ackPolicyName(p jetstream.AckPolicy) string {
	switch p {
	case jetstream.AckExplicitPolicy:
		return "explicit"
	case jetstream.AckAllPolicy:
		return "all"
	case jetstream.AckNonePolicy:
		return "none"
	}
	return p.String()
}

// fits is nil if the settings would be accepted by a consumer with cfg.
func (s *settings) fits(c call, cfg *jetstream.ConsumerConfig) error {
	own := maps.Clone(s.set)
	// These do not depend on the consumer, and as defaults they are left out
	// where a call has no use for them.
	for _, name := range []string{"MaxWait", "NoWait", "FillBatch", "Heartbeat"} {
		delete(own, name)
	}
	return s.validate(c, cfg, own)
}

// adapt takes over what changed.
func (st *stream) adapt(cfg *jetstream.ConsumerConfig) {
	s := st.sub
	if now := factsOf(cfg); !reflect.DeepEqual(now, st.facts) {
		st.facts = now
		st.log.Info("jetpull: the consumer's configuration has changed", "ack_wait", cfg.AckWait, "backoff", cfg.BackOff,
			"max_deliver", cfg.MaxDeliver, "max_ack_pending", cfg.MaxAckPending, "priority_timeout", cfg.PinnedTTL)
	}
	w := st.window
	w.mu.Lock()
	w.bound, w.patient = s.windowBound(st.fence != nil), s.patience()/4
	w.mu.Unlock()
	d := st.queue
	d.mu.Lock()
	d.most = uint64(max(0, cfg.MaxDeliver))
	if d.grace > 0 {
		d.grace = min(s.patience(), lineGrace)
	}
	d.mu.Unlock()
	st.aside.adapt(newAside(s, 0))
	if st.acks != nil {
		st.acks.mu.Lock()
		st.acks.length = runLength(cfg.MaxAckPending)
		st.acks.mu.Unlock()
	}
	select {
	case st.renewed <- struct{}{}:
	default: // the housekeeper has not seen the last change yet, and will see this
	}
}

// facts are what of a configuration is taken over.
type facts struct {
	ackWait, expires, pinnedTTL                      time.Duration
	backOff                                          []time.Duration
	maxDeliver, maxAckPending, batch, bytes, waiting int
	policy                                           jetstream.PriorityPolicy
}

func factsOf(cfg *jetstream.ConsumerConfig) facts {
	return facts{
		ackWait: cfg.AckWait, expires: cfg.MaxRequestExpires, pinnedTTL: cfg.PinnedTTL,
		backOff: cfg.BackOff, maxDeliver: cfg.MaxDeliver, maxAckPending: cfg.MaxAckPending,
		batch: cfg.MaxRequestBatch, bytes: cfg.MaxRequestMaxBytes, waiting: cfg.MaxWaiting, policy: cfg.PriorityPolicy,
	}
}
