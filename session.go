package jetpull

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/pull"
	"github.com/jetpull/jetpull/internal/worker"
)

// session is the consumer as it was read at one time. It does not change: when the consumer has changed, another session takes its
// place. A message keeps the session in which it arrived.
type session struct {
	cfg     jetstream.ConsumerConfig // the fields that the client uses
	created time.Time
	ackNone bool
	// numbered reports whether a gap in the delivery numbers means a lost delivery: nothing is redelivered, or no other
	// client gets messages.
	numbered bool
}

// sessionOf copies the fields that the client uses. An edit of any other field changes nothing here.
func sessionOf(info *jetstream.ConsumerInfo) *session {
	c := info.Config
	return &session{
		created: info.Created, ackNone: c.AckPolicy == jetstream.AckNonePolicy,
		numbered: c.AckPolicy == jetstream.AckNonePolicy || c.PriorityPolicy == jetstream.PriorityPolicyPinned,
		cfg: jetstream.ConsumerConfig{
			Name: info.Name, AckPolicy: c.AckPolicy, AckWait: c.AckWait, BackOff: c.BackOff, MaxDeliver: c.MaxDeliver, MaxAckPending: c.MaxAckPending,
			FilterSubject: c.FilterSubject, FilterSubjects: c.FilterSubjects, HeadersOnly: c.HeadersOnly,
			MaxWaiting: c.MaxWaiting, MaxRequestBatch: c.MaxRequestBatch, MaxRequestExpires: c.MaxRequestExpires, MaxRequestMaxBytes: c.MaxRequestMaxBytes,
			ReplayPolicy: c.ReplayPolicy, PriorityPolicy: c.PriorityPolicy, PriorityGroups: c.PriorityGroups, PinnedTTL: c.PinnedTTL,
		},
	}
}

// continues reports whether a run of the session before can continue: the consumer was not recreated, and has the same policy and groups.
func (n *session) continues(before *session) bool {
	return n.created.Equal(before.created) && n.cfg.PriorityPolicy == before.cfg.PriorityPolicy &&
		reflect.DeepEqual(n.cfg.PriorityGroups, before.cfg.PriorityGroups)
}

// limits returns the consumer's limits of pulls.
func (n *session) limits() pull.Limits {
	cfg := &n.cfg
	return pull.Limits{
		Batch:   max(0, cfg.MaxRequestBatch),
		Expires: cfg.MaxRequestExpires,
		Bytes:   max(0, cfg.MaxRequestMaxBytes),
		Waiting: max(0, cfg.MaxWaiting),
		AckNone: n.ackNone,
		Pinned:  cfg.PriorityPolicy == jetstream.PriorityPolicyPinned,
		PinTTL:  cfg.PinnedTTL,
		Replay:  cfg.ReplayPolicy == jetstream.ReplayOriginalPolicy,
	}
}

// pool returns the part of the session that a pool uses. Only messages that handlers settle are remembered. trip is the round trip to the server.
func (n *session) pool(handlers bool, trip time.Duration) worker.Consumer {
	cfg, c := &n.cfg, worker.Consumer{AckNone: n.ackNone, WindowMost: maxPrefetch}
	if c.AckNone {
		return c
	}
	c.BackOff, c.MaxDeliver = cfg.BackOff, uint64(max(0, cfg.MaxDeliver))
	c.Alone = cfg.PriorityPolicy == jetstream.PriorityPolicyPinned && c.MaxDeliver == 0
	c.WindowMost = worker.WindowMost(cfg.MaxAckPending, maxPrefetch, trip)
	if handlers {
		c.Remembers = remembered
	}
	waits := append([]time.Duration{cmp.Or(max(0, cfg.AckWait), defaultAckWait)}, cfg.BackOff...)
	c.Shortest, c.Longest = slices.Min(waits), slices.Max(waits)
	return c
}

const (
	// defaultAckWait is the server's default for a consumer without AckWait.
	defaultAckWait = 30 * time.Second
	// remembered is the number of settled messages that a Consume remembers. A lost acknowledgement shows only after
	// AckWait, when many other messages may have been handled, even if MaxAckPending is small.
	remembered = 1000
)

// config returns the consumer's configuration as it was last read.
func (s *Subscription) config() *jetstream.ConsumerConfig { return &s.session.Load().cfg }

const (
	// readMost is the timeout of one reading of the consumer. A consumer without a leader does not answer.
	readMost = time.Second
	// readSoon is the delay of a reading after messages have arrived, or after a reading has not found the consumer.
	readSoon = 500 * time.Millisecond
	// readRarely is the longest pause between two readings while messages are held and none arrive. When none are held, there are no readings.
	readRarely = 4 * time.Second
	// proofGap is the pause between two readings while the engine is Proving.
	proofGap = 20 * time.Millisecond
	// freshFor is the maximum age of the reading by which a failed attempt is judged.
	freshFor = 250 * time.Millisecond
	// goneAfter is how long readings must not find the consumer before it counts as gone. A server that has just started may not know it yet.
	goneAfter = 3 * time.Second
)

// watcher schedules readings of the consumer: at once if it may have changed or be gone, or if the engine needs proof, and periodically
// while messages arrive or are held, because the server does not report edits.
type watcher struct {
	mu        sync.Mutex
	timer     *time.Timer  // of watch
	due       pull.At      // when timer fires; 0: it is stopped
	arrivedAt atomic.Int64 // when messages last arrived

	turn    chan struct{} // a semaphore: the goroutine that reads the consumer holds it, and owns the fields below
	readAt  pull.At       // when the last reading began
	err     error         // its result; matches ErrConsumerDeleted if the consumer is gone
	missing pull.At       // since when readings do not find the consumer; 0: the last answer found it
}

// readWithin schedules a reading of the consumer in d at the latest.
func (s *Subscription) readWithin(d time.Duration) {
	w := &s.watcher
	w.mu.Lock()
	defer w.mu.Unlock()
	if due := s.driver.Now() + d; w.due == 0 || due < w.due {
		w.due = due
		w.timer.Reset(d)
	}
}

// arrived schedules a reading of the consumer, because messages have arrived.
func (s *Subscription) arrived() {
	s.watcher.arrivedAt.Store(int64(s.driver.Now()))
	s.readWithin(readSoon)
}

// watch reads the consumer, and schedules the next reading. Without a connection it does nothing: a reconnect causes a reading.
func (s *Subscription) watch(ctx context.Context) {
	w := &s.watcher
	w.mu.Lock()
	w.due = 0
	w.mu.Unlock()
	if !s.nc.IsConnected() {
		return
	}
	err := s.read(ctx, s.driver.Now())
	proving := false
	s.driver.Do(func(e *pull.Engine, _ pull.At) { proving = e.Proving() })
	switch {
	case ctx.Err() != nil:
	case proving && err == nil:
		s.readWithin(proofGap)
	case proving, errors.Is(err, errMissing):
		s.readWithin(readSoon)
	case slices.ContainsFunc(s.openRuns(), func(r *run) bool { return r.pool.Holds() }):
		s.readWithin(min(max(readSoon, (s.driver.Now()-pull.At(w.arrivedAt.Load()))/4), readRarely))
	}
}

// fresh reads the consumer if the last reading is too old to judge a failed attempt by: MaxDeliver may be lower by now, and
// then a message that is handed back is not delivered again. fresh reports whether MaxDeliver is known.
func (s *Subscription) fresh(ctx context.Context) (known bool) {
	ctx, cancel := context.WithTimeout(ctx, readSoon)
	defer cancel()
	if s.nc.IsConnected() {
		err := s.read(ctx, s.driver.Now()-freshFor)
		known = err == nil || errors.Is(err, ErrConsumerDeleted)
	}
	return known
}

// errMissing says that a reading did not find the consumer, which proves nothing until goneAfter has passed.
var errMissing = errors.New("not found, for now")

// read reads the consumer and makes it the session. If a reading has begun after since, read returns its result instead.
func (s *Subscription) read(ctx context.Context, since pull.At) error {
	w := &s.watcher
	limited, cancel := context.WithTimeout(ctx, readMost)
	defer cancel()
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-limited.Done():
		return limited.Err()
	}
	before := w.readAt
	if before > since {
		return w.err
	}
	now := s.driver.Now()
	c, err := s.js.Consumer(limited, s.stream, s.consumer)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.readAt = now
	switch {
	case err == nil:
		w.missing = 0
		s.replaceSession(sessionOf(c.CachedInfo()))
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		if w.missing == 0 || now-before > goneAfter {
			w.missing = now
		}
		if now-w.missing < goneAfter {
			err = fmt.Errorf("%w: %w", errMissing, err)
			break
		}
		err = fmt.Errorf("%w: consumer %q on stream %q: %w", ErrConsumerDeleted, s.consumer, s.stream, err)
		s.driver.Do(func(e *pull.Engine, now pull.At) { e.Fail(now, err, false) })
	}
	if err == nil || errors.Is(err, errMissing) || errors.Is(err, ErrConsumerDeleted) {
		s.driver.Do(func(e *pull.Engine, done pull.At) { e.Answered(done, now) })
	}
	w.err = err
	return err
}

// replaceSession makes n the session if it differs from the current one. It applies n to the runs, and then to the limits of pulls.
func (s *Subscription) replaceSession(n *session) {
	before := s.session.Load()
	if n.created.Equal(before.created) && reflect.DeepEqual(n.cfg, before.cfg) {
		return
	}
	s.session.Store(n)
	for _, r := range s.openRuns() {
		r.follow(n)
	}
	s.driver.Do(func(e *pull.Engine, _ pull.At) { e.SetLimits(n.limits()) })
}

// follow applies another session to the run. Changed limits also apply to the messages that the run holds, and end nothing. The run
// ends if it cannot continue in n, and the call ends if a new call would fail.
func (r *run) follow(n *session) {
	r.report.Later(slog.LevelInfo, "jetpull: the consumer's configuration has changed",
		"ack_wait", n.cfg.AckWait, "backoff", n.cfg.BackOff, "max_deliver", n.cfg.MaxDeliver, "max_ack_pending", n.cfg.MaxAckPending)
	if !n.continues(r.session) {
		r.pool.End(worker.ErrReconfigured) // next checks whether the call fits the consumer
		return
	}
	r.pool.Follow(n.pool(r.handler != nil, r.sub.trip))
	if err := r.set.fits(r.kind, &n.cfg); err != nil {
		r.pool.End(err)
	}
}
