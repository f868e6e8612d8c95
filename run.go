package jetpull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/crash"
	"github.com/jetpull/jetpull/internal/pull"
	"github.com/jetpull/jetpull/internal/transport"
	"github.com/jetpull/jetpull/internal/wire"
	"github.com/jetpull/jetpull/internal/worker"
)

// This file connects the packages. The driver, with its engine, takes demands and delivers messages. A run's
// pool hands the messages to workers.

// start creates and starts the driver. took is the time in which the consumer's server answered the first reading.
func (s *Subscription) start(inboxes *transport.Inboxes, took time.Duration) {
	s.trip = inboxes.Trip
	cfg, onOrder := s.config(), maxPrefetch
	if cfg.AckPolicy != jetstream.AckNonePolicy {
		onOrder = worker.OnOrder(cfg.MaxAckPending, maxPrefetch, s.trip)
	}
	pulls := wire.ConsumerSubject(apiPrefix(s.js), "MSG.NEXT", s.stream, s.consumer)
	s.driver = transport.New(s.nc, pulls, s.session.Load().limits(), onOrder, inboxes, transport.Hooks{
		Wrap:  s.wrap,
		Pin:   s.pinChanged,
		Doubt: func() { s.readWithin(0) },
	})
	s.watcher.turn = make(chan struct{}, 1)
	s.watcher.timer = time.AfterFunc(time.Hour, func() { s.driver.Go(s.watch) })
	s.watcher.timer.Stop()
	s.driver.Do(func(e *pull.Engine, now pull.At) { e.Answered(now, now-took) })
	s.notifier = &worker.Notifier{Start: s.driver.Go}
	s.driver.Start()
}

// wrap returns the Msg of a frame. If a gap in the delivery numbers means a loss, it counts the deliveries missing before.
// Each Msg is allocated alone: messages that share an allocation keep each other's payloads and headers in memory.
func (s *Subscription) wrap(raw *nats.Msg, size int) pull.Message {
	m := &Msg{raw: raw, sub: s, session: s.session.Load(), size: size}
	if m.session.numbered {
		s.gaps.note(m.ack().ConsumerSeq)
	}
	return m
}

var _ transport.Sink = (*run)(nil)

// run is a call of Messages or Consume for as long as its consumer stays the same. It has a standing demand and the pool that the demand fills,
// and is the demand's sink.
type run struct {
	sub     *Subscription
	kind    callKind
	set     *settings
	handler BatchHandler // nil: the caller settles the messages
	session *session     // in which the run began
	report  *worker.Reporter
	pool    *worker.Pool[*Msg]
	demand  pull.Demand

	pending    atomic.Int64 // messages pending at the consumer when it delivered the last one
	confirming atomic.Bool  // ackAgain waits for a confirmation
}

// open starts a run, which reads ahead. If h is nil, the caller settles the messages.
func (s *Subscription) open(c callKind, set *settings, h BatchHandler) *run {
	session := s.session.Load()
	o, cfg := &set.run, &session.cfg
	log := set.log().With("stream", s.stream, "consumer", s.consumer)
	r := &run{
		sub: s, kind: c, set: set, handler: h, session: session,
		report: &worker.Reporter{Log: log, OnError: o.onError, Events: o.onEvent != nil, Notifier: s.notifier},
	}
	pool := o.Settings
	if pool.Prefetch == 0 {
		pool.PrefetchBytes = cmp.Or(pool.PrefetchBytes, worker.MaxBytes)
	}
	ops := r.ops()
	if h == nil {
		pool.Workers = 1
	} else {
		ops.Handle, ops.Key = h, o.orderedBy
		if o.expiresAt != nil {
			ops.Checks = append(ops.Checks, r.expire)
		}
		if o.crashes != nil {
			ops.Checks = append(ops.Checks, r.begin)
		}
		if o.limiter != nil {
			ops.Checks = append(ops.Checks, r.limit)
		}
		if o.Batch > 0 {
			ops.Failure, ops.Confirm = failureOf, r.confirm
		}
		if o.deadLetter != "" {
			ops.DeadLetter = r.deadLetter
		}
	}
	if d := cfg.MaxRequestExpires; d > 0 && d < pull.LeastLife {
		r.report.Later(slog.LevelWarn, "jetpull: the consumer's MaxRequestExpires is short, so a message can wait for the next pull; raise it",
			"max_request_expires", d, "pull_every", pull.LeastLife)
	}
	r.pool = worker.New(ops, pool, session.pool(h != nil, s.trip))
	_, _, window := r.pool.Size()
	r.demand.Ref, r.demand.Ask = r, pull.Ask{
		Mode: pull.Standing, Terms: set.terms, MaxBytes: set.maxBytes, Window: window, Workers: pool.Workers, Bytes: pool.PrefetchBytes,
	}
	s.driver.Do(func(e *pull.Engine, now pull.At) { e.Post(now, &r.demand) })
	s.calls.mu.Lock()
	s.calls.runs = append(s.calls.runs, r)
	s.calls.mu.Unlock()
	for n := session; n != s.session.Load(); { // the session changed before the run was in the list that follows it
		n = s.session.Load()
		r.follow(n)
	}
	return r
}

// ops returns the operations that the run's pool calls.
func (r *run) ops() worker.Ops[*Msg] {
	s, before := r.sub, r.sub.nc.LastError()
	return worker.Ops[*Msg]{
		Now:      s.driver.Now,
		Paused:   func() bool { return s.calls.pinning.Load() > 0 },
		Identify: (*Msg).identify,
		Size:     func(m *Msg) int { return m.size },

		Redelivered: &s.counts.redelivered,

		Verdict: verdict,
		Settled: (*Msg).settlement,
		Ack:     (*Msg).Ack, AckAgain: r.ackAgain, Nak: (*Msg).NakWithDelay, Term: (*Msg).TermWithReason, InProgress: (*Msg).InProgress,
		HandBack: r.handBack,
		Fresh:    s.fresh,
		Failed:   r.failed,
		Credit: func(c pull.Credit) {
			c.Pending = int(r.pending.Load())
			s.driver.Do(func(e *pull.Engine, now pull.At) { e.Credit(now, &r.demand, c) })
		},
		Halt:    func() { s.driver.Do(func(e *pull.Engine, now pull.At) { e.Cancel(now, &r.demand, nil) }) },
		Refused: func() error { return s.refusedAck(before) },
		Over:    s.driver.Over,
		Report:  r.report,
	}
}

// errExpired is the refusal of a message that ExpiresAt gives up.
var errExpired = &worker.Refusal{Reason: "expired"}

// A message passes the checks of ExpiresAt, MaxCrashes and Limited before its handler starts.

// expire is the check of ExpiresAt.
func (r *run) expire(ctx context.Context, m *Msg) (begun context.Context, end func(), err error) {
	if at := r.set.run.expiresAt(m); !at.IsZero() && !time.Now().Before(at) {
		err = errExpired
	}
	return ctx, nil, err
}

// begin is the check of MaxCrashes.
func (r *run) begin(ctx context.Context, m *Msg) (begun context.Context, end func(), err error) {
	if !crash.WasDelivered(ctx, m.Sequence(), m.Delivered()) {
		return ctx, nil, nil
	}
	id, _, _ := m.identify()
	end, err = r.set.run.crashes.Begin(ctx, crash.Message{Stream: r.sub.stream, Consumer: r.sub.consumer, ID: id})
	return ctx, end, err
}

// limit is the check of Limited.
func (r *run) limit(ctx context.Context, m *Msg) (begun context.Context, end func(), err error) {
	limiter, key := r.set.run.limiter, r.set.run.limitKey(m)
	release, err := limiter.TryAcquire(key)
	if err != nil { // the limiter is closed
		return ctx, nil, &worker.Wait{Until: worker.For(time.Second), Err: fmt.Errorf("jetpull: Limited: %w", err)}
	}
	if release == nil {
		return ctx, nil, &worker.Wait{Until: func(ctx context.Context) { _ = limiter.Await(ctx, key) }}
	}
	limited, done := limiter.Context(ctx, key)
	if limited == ctx { // saves a closure for each message
		return ctx, release, nil
	}
	return limited, func() { done(); release() }, nil
}

// failureOf returns the error of one message from that of its batch.
func failureOf(err error, m *Msg) error {
	if some, ok := errors.AsType[BatchError](err); ok {
		return some[m]
	}
	return err
}

// confirm acknowledges the messages of a batch.
func (r *run) confirm(ctx context.Context, ms []*Msg) error {
	err := ConfirmAcks(ctx, ms...)
	if err != nil && r.sub.nc.IsClosed() {
		err = errors.Join(err, worker.ErrFinal)
	}
	return err
}

func (m *Msg) identify() (id worker.ID, delivered, number uint64) {
	a := m.ack()
	return worker.ID{Seq: a.StreamSeq, Stored: a.Timestamp}, a.Delivered, a.ConsumerSeq
}

// handBack hands back a message that no handler has started, once the pulls of the run are gone. With ack policy none it keeps the
// message for the next call. If it fails, the server redelivers the message after AckWait.
func (r *run) handBack(m *Msg) {
	r.sub.driver.Do(func(e *pull.Engine, now pull.At) { e.Return(now, r.demand.Terms, m, m.size) })
}

// Deliver takes messages from the driver. If done, no more follow; err is the reason, if it is not the end of the call.
func (r *run) Deliver(ms []pull.Message, done bool, err error) {
	if len(ms) > 0 {
		r.pending.Store(int64(ms[len(ms)-1].(*Msg).ack().Pending))
		if r.set.run.ManualAck {
			for _, m := range ms {
				m.(*Msg).run = r
			}
		}
		r.pool.Deliver(ms)
		r.sub.arrived()
	}
	if !done || err == nil {
		return
	}
	if err = r.sub.public(context.Background(), err); errors.Is(err, ErrConsumerDeleted) {
		r.report.Problem(err)
		r.sub.driver.Do(func(e *pull.Engine, now pull.At) { e.Fail(now, err, false) }) // so that the other calls end too
		if r.set.run.awaitConsumer {
			err = worker.ErrReconfigured
		}
	}
	r.pool.End(err)
}

// Problem reports why a pull failed. If err is nil, pulls are answered again.
func (r *run) Problem(err error) { r.report.Problem(r.sub.public(context.Background(), err)) }

// next returns the run that follows r, if r ended because the consumer was replaced, or deleted and is awaited. Otherwise it returns nil.
func (r *run) next(ctx context.Context) (*run, error) {
	if err := r.pool.Err(); !errors.Is(err, worker.ErrReconfigured) {
		return nil, err
	}
	set := *r.set
	if set.run.StopAfter > 0 {
		if set.run.StopAfter = r.pool.Quota(); set.run.StopAfter == 0 {
			return nil, nil
		}
	}
	s := r.sub
	for s.read(ctx, s.driver.Now()) != nil || ctx.Err() != nil { // the consumer is gone, or the call is over
		select {
		case <-time.After(readSoon):
		case <-s.driver.Over.Done():
			return nil, context.Cause(s.driver.Over)
		case <-ctx.Done():
			return nil, nil
		}
	}
	r.report.Problem(nil)
	if err := set.fits(r.kind, s.config()); err != nil {
		return nil, err
	}
	r.endPool()
	return s.open(r.kind, &set, r.handler), nil
}

// endPool closes the run's pool and removes the run from the list.
func (r *run) endPool() {
	r.pool.Close()
	s := r.sub
	s.calls.mu.Lock()
	s.calls.runs = slices.DeleteFunc(s.calls.runs, func(o *run) bool { return o == r })
	s.calls.mu.Unlock()
}

// close ends the call. It hands back the messages that were not started. While the connection is up, and within most, it waits
// until messages in flight have been handed back too. Then it gives up the pin. With a reading in progress, all this takes five round trips at most.
func (r *run) close(most time.Duration) {
	r.endPool()
	s := r.sub
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	if !s.nc.IsConnected() {
		return
	}
	if !r.session.ackNone {
		s.driver.AwaitQuiet(ctx)
	}
	if !s.giveUpPin(ctx, r.set.terms.Group) {
		_ = s.nc.FlushWithContext(ctx)
	}
}

// openRuns returns the runs of Messages and Consume that have not ended.
func (s *Subscription) openRuns() []*run {
	s.calls.mu.Lock()
	defer s.calls.mu.Unlock()
	return slices.Clone(s.calls.runs)
}
