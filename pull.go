package jetpull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/pull"
	"github.com/jetpull/jetpull/internal/transport"
	"github.com/jetpull/jetpull/internal/wire"
	"github.com/jetpull/jetpull/internal/worker"
)

// Here the packages meet: the driver with its engine brings messages and takes demands, and a run's pool hands
// them to workers.

// start makes the driver.
func (s *Subscription) start(inboxes *transport.Inboxes) {
	s.trip = inboxes.Trip
	cfg, onOrder := s.config(), maxPrefetch
	if cfg.AckPolicy != jetstream.AckNonePolicy {
		onOrder = worker.OnOrder(cfg.MaxAckPending, maxPrefetch, s.trip)
	}
	s.driver = transport.New(s.nc, wire.NextSubject(apiPrefix(s.js), s.stream, s.consumer), limitsOf(cfg), onOrder, inboxes, transport.Hooks{
		Wrap: s.wrap,
		Pin:  s.pinChanged,
		Read: s.read,
	})
	s.notifier = &worker.Notifier{Start: s.driver.Go}
}

func limitsOf(cfg *jetstream.ConsumerConfig) pull.Limits {
	return pull.Limits{
		Batch:   max(0, cfg.MaxRequestBatch),
		Expires: cfg.MaxRequestExpires,
		Bytes:   max(0, cfg.MaxRequestMaxBytes),
		Waiting: max(0, cfg.MaxWaiting),
		AckNone: cfg.AckPolicy == jetstream.AckNonePolicy,
		Pinned:  cfg.PriorityPolicy == jetstream.PriorityPolicyPinned,
		PinTTL:  cfg.PinnedTTL,
	}
}

// wrap makes a message of a frame, and counts the deliveries missing before it, if a gap in their numbers means a loss.
// Each has an allocation of its own: messages that share one keep each other's payloads and headers in memory.
func (s *Subscription) wrap(raw *nats.Msg, size int) pull.Message {
	m := &Msg{raw: raw, sub: s, size: size}
	if s.bound.Load().numbered {
		s.gaps.note(m.ack().ConsumerSeq)
	}
	return m
}

// binding is the consumer as it was read last. It is replaced, not changed.
type binding struct {
	cfg     jetstream.ConsumerConfig
	created time.Time
	ackNone bool
	// numbered is set where a gap between the numbers of deliveries says that one was lost: nothing is redelivered, or no
	// other client gets any.
	numbered bool
}

// bindingOf leaves out the fields that do not matter to a client.
func bindingOf(info *jetstream.ConsumerInfo) *binding {
	b := &binding{cfg: info.Config, created: info.Created}
	b.ackNone = info.Config.AckPolicy == jetstream.AckNonePolicy
	b.numbered = b.ackNone || info.Config.PriorityPolicy == jetstream.PriorityPolicyPinned
	b.cfg.Name, b.cfg.Description, b.cfg.Metadata, b.cfg.PauseUntil = info.Name, "", nil, nil
	return b
}

// config is the consumer's configuration as it was read last.
func (s *Subscription) config() *jetstream.ConsumerConfig { return &s.bound.Load().cfg }

// read reads the consumer. If it has changed, the runs end before a message of the new configuration can arrive. The calls go
// on with others. The driver reads once at a time.
func (s *Subscription) read(ctx context.Context) (lim pull.Limits, gone, err error) {
	c, err := s.js.Consumer(ctx, s.stream, s.consumer)
	if err != nil {
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			gone = fmt.Errorf("%w: consumer %q on stream %q: %w", ErrConsumerDeleted, s.consumer, s.stream, err)
		}
		return lim, gone, err
	}
	old, now := s.bound.Load(), bindingOf(c.CachedInfo())
	if !old.created.Equal(now.created) || !reflect.DeepEqual(old.cfg, now.cfg) {
		s.bound.Store(now)
		for _, r := range s.openRuns() {
			r.reconfigured()
		}
	}
	return limitsOf(&now.cfg), nil, nil
}

// run is a call of Messages or Consume, as long as the consumer's configuration stays as it is: a standing demand, and the pool
// that it fills.
type run struct {
	sub     *Subscription
	kind    callKind
	set     *settings
	handler Handler  // nil: the caller settles what it takes
	bound   *binding // the consumer
	report  *worker.Reporter
	pool    *worker.Pool[*Msg]
	demand  pull.Demand
}

// open starts reading ahead. Without a handler the caller settles what it takes. before is the run of the same call that has
// ended; nil: it is the first.
func (s *Subscription) open(c callKind, set *settings, h Handler, before *run) *run {
	bound := s.bound.Load()
	o, cfg := &set.run, &bound.cfg
	log := set.log().With("stream", s.stream, "consumer", s.consumer)
	r := &run{sub: s, kind: c, set: set, handler: h, bound: bound, report: &worker.Reporter{Log: log, OnError: o.onError, Events: o.onEvent != nil, Notifier: s.notifier}}
	pool := o.Settings
	if pool.Prefetch == 0 {
		pool.PrefetchBytes = cmp.Or(pool.PrefetchBytes, worker.MaxBytes)
	}
	ops := r.ops()
	if h == nil {
		pool.Workers = 1
	} else {
		ops.Handle, ops.Key = h, o.orderedBy
		if o.deadLetter != "" {
			ops.DeadLetter = r.deadLetter
		}
	}
	r.pool = worker.New(ops, pool, s.poolConsumer(cfg, h != nil))
	if before != nil && before.bound.created.Equal(bound.created) {
		r.pool.Remember(before.pool)
	}
	_, _, window := r.pool.Size()
	r.demand.Ref, r.demand.Ask = r, pull.Ask{
		Mode: pull.Standing, Terms: set.terms, MaxBytes: set.maxBytes, Window: window, Workers: pool.Workers, Bytes: pool.PrefetchBytes,
	}
	s.driver.Do(func(e *pull.Engine, now pull.At) { e.Post(now, &r.demand) })
	s.calls.mu.Lock()
	s.calls.runs = append(s.calls.runs, r)
	s.calls.mu.Unlock()
	if s.bound.Load() != bound { // it changed before the run was one of those that are ended for it
		r.reconfigured()
	}
	return r
}

// ops are what the run's pool does with messages.
func (r *run) ops() worker.Ops[*Msg] {
	s := r.sub
	return worker.Ops[*Msg]{
		Now:      s.driver.Now,
		Paused:   func() bool { return s.calls.pinning.Load() > 0 },
		Identify: (*Msg).identify,
		Size:     func(m *Msg) int { return m.size },
		Settled:  func(m *Msg) worker.Settlement { return worker.Settlement(m.how.Load()) },
		Ack:      (*Msg).Ack, Nak: (*Msg).NakWithDelay, Term: (*Msg).TermWithReason, InProgress: (*Msg).InProgress, HandBack: r.handBack,
		Failed: r.failed,
		Credit: func(c pull.Credit) {
			s.driver.Do(func(e *pull.Engine, now pull.At) { e.Credit(now, &r.demand, c) })
		},
		Halt:   func() { s.driver.Do(func(e *pull.Engine, now pull.At) { e.Cancel(now, &r.demand, nil) }) },
		Over:   s.driver.Over,
		Report: r.report,
	}
}

func (m *Msg) identify() (id worker.ID, delivered uint64) {
	a := m.ack()
	return worker.ID{Seq: a.StreamSeq, Stored: a.Timestamp}, a.Delivered
}

// handBack hands back messages that no handler has started. With ack policy none it keeps them for the next call. If it
// fails, the server redelivers the message after AckWait.
func (r *run) handBack(m *Msg) {
	switch {
	case r.sub.bound.Load().ackNone:
		r.sub.driver.Do(func(e *pull.Engine, now pull.At) { e.Return(now, r.demand.Terms, m, m.size) })
	case m.Nak() == nil:
		r.sub.counts.handedBack.Add(1)
	}
}

// poolConsumer is the part of cfg that a pool uses. Only messages that handlers settle are remembered.
func (s *Subscription) poolConsumer(cfg *jetstream.ConsumerConfig, handlers bool) worker.Consumer {
	c := worker.Consumer{AckNone: cfg.AckPolicy == jetstream.AckNonePolicy, WindowMost: maxPrefetch}
	if c.AckNone {
		return c
	}
	c.BackOff, c.MaxDeliver = cfg.BackOff, uint64(max(0, cfg.MaxDeliver))
	c.WindowMost = worker.WindowMost(cfg.MaxAckPending, maxPrefetch, s.trip)
	if handlers {
		c.Remembers = remembered
	}
	c.Shortest = cfg.AckWait
	if c.Shortest <= 0 {
		c.Shortest = defaultAckWait
	}
	c.Longest = c.Shortest
	for _, d := range cfg.BackOff {
		c.Shortest, c.Longest = min(c.Shortest, d), max(c.Longest, d)
	}
	return c
}

const (
	// defaultAckWait is the server's where the consumer has none.
	defaultAckWait = 30 * time.Second
	// remembered is how many settled messages a Consume remembers. A lost acknowledgement shows after AckWait,
	// when many others may have been handled, however small MaxAckPending is.
	remembered = 1000
)

// Deliver takes messages from the driver; with done there are no more.
func (r *run) Deliver(ms []pull.Message, done bool, err error) {
	var arrived [64]*Msg
	for some := range slices.Chunk(ms, len(arrived)) {
		for i, m := range some {
			arrived[i] = m.(*Msg)
			if r.set.run.ManualAck {
				arrived[i].run = r
			}
		}
		r.sub.counts.redelivered.Add(uint64(r.pool.Deliver(arrived[:len(some)])))
	}
	if done && err != nil {
		r.pool.End(r.sub.public(err))
	}
}

// Problem takes the reason for which a pull failed. A deleted consumer ends the call, unless it awaits another.
func (r *run) Problem(err error) {
	err = r.sub.public(err)
	r.report.Problem(err)
	if errors.Is(err, ErrConsumerDeleted) && !r.set.run.awaitConsumer {
		r.pool.End(err)
	}
}

// Healthy logs that pulls are answered again.
func (r *run) Healthy() { r.report.Healthy() }

// reconfigured ends the run, and the call too where a new one would fail.
func (r *run) reconfigured() {
	cfg := r.sub.config()
	err := r.set.check(r.kind, cfg, nil, true) // as a new call is
	if err == nil {
		err = worker.ErrReconfigured
		r.report.Later(slog.LevelInfo, "jetpull: the consumer's configuration has changed",
			"ack_wait", cfg.AckWait, "backoff", cfg.BackOff, "max_deliver", cfg.MaxDeliver, "max_ack_pending", cfg.MaxAckPending)
	} else {
		r.report.Later(slog.LevelWarn, "jetpull: the consumer's configuration has changed, and this call does not fit it", "error", err)
	}
	r.pool.End(err)
}

// next returns the run that follows r, which has ended because the configuration has changed; nil: the call is over.
func (r *run) next(ctx context.Context) *run {
	if !errors.Is(r.pool.Err(), worker.ErrReconfigured) || ctx.Err() != nil {
		return nil
	}
	set := *r.set
	if set.run.StopAfter > 0 {
		if set.run.StopAfter = r.pool.Quota(); set.run.StopAfter == 0 {
			return nil
		}
	}
	r.endPool()
	return r.sub.open(r.kind, &set, r.handler, r)
}

// endPool ends the run's pool and takes the run off the list.
func (r *run) endPool() {
	r.pool.Close()
	s := r.sub
	s.calls.mu.Lock()
	s.calls.runs = slices.DeleteFunc(s.calls.runs, func(o *run) bool { return o == r })
	s.calls.mu.Unlock()
}

// close ends the call. It hands back the messages that were not started. While the connection is up, and within most, it waits
// until messages on the wire have been handed back too. Then it gives up the pin.
func (r *run) close(most time.Duration) {
	r.endPool()
	s := r.sub
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	if !s.nc.IsConnected() {
		return
	}
	if !s.bound.Load().ackNone {
		s.driver.AwaitQuiet(ctx)
	}
	_ = s.nc.FlushWithContext(ctx)
	s.giveUpPin(ctx, r.set.terms.Group)
}

// openRuns are the calls of Messages and Consume that run.
func (s *Subscription) openRuns() []*run {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	return slices.Clone(s.calls.runs)
}
