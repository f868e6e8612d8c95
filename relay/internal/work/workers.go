// Package work has the relay's workers: FromSender, ToReceiver, FromReceiverAsync, ToSender and FailedMessages. Each is a Consume of the jetpull
// client. A worker that may run in only one process at a time is pinned.
package work

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/internal/service/webhook/events"
	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// group is the priority group of every pinned worker.
	group = "relay"
	// restartPause is the pause before a worker that ended by itself is restarted.
	restartPause = time.Second
	// firstPause and lastPause bound the pauses between polls, callbacks and probes of an open breaker.
	firstPause = 250 * time.Millisecond
	lastPause  = 10 * time.Second
	// maxRetryAfter bounds the pause that a receiver or sender may request.
	maxRetryAfter = time.Hour
	// maxAckPending bounds the delivered but unacknowledged entries of a consumer. Most of them wait for a retry.
	maxAckPending = 100_000
)

// Reporter receives errors that an operator should see.
type Reporter interface {
	// Report reports an error. about are its attributes, in pairs of key and value.
	Report(ctx context.Context, err error, about ...any)
}

// Client makes requests to receivers and senders, as [webhook.Client] does.
type Client interface {
	Exchange(ctx context.Context, r webhook.Request) (*webhook.Answer, error)
}

// Rules are the operator's settings.
type Rules struct {
	Concurrency      int           // messages of one receiver, sender or partition at a time
	Takeover         time.Duration // how long others wait before they take over the work of a process that died
	Drain            time.Duration // how long a stop waits for requests in flight
	Tombstone        time.Duration // how long the record of a completed message is kept
	MaxResponse      int           // maximum bytes of a response that are kept
	PollDeadline     time.Duration // how long a pending response is polled for
	CallbackDeadline time.Duration // how long a callback is repeated
	CallbackTimeout  time.Duration // how long one callback may take
	AutoRedrive      []time.Duration
	service.Egress          // of POSTs and callbacks
	EventURL         string // gets a request for each event that operators should know about; empty: none are sent
}

// Config configures the workers.
type Config struct {
	Rules
	Client   Client
	Logger   *slog.Logger
	Reporter Reporter
	Events   *events.Sender // to the operator; nil: none are sent
}

// core is shared by all workers.
type core struct {
	Metrics *Metrics
	Node    string // a name that identifies these workers among all processes and all earlier runs of this one

	cfg   Config
	store *store.Store
	log   *slog.Logger
	lanes *lanes

	lost     atomic.Int64 // records that the store has lost, since the last report
	mu       sync.Mutex
	failures map[event]int // guarded by mu: number of messages that failed since the last report

	ctx     context.Context // ends when the workers are to stop
	stop    context.CancelFunc
	running sync.WaitGroup
}

// Workers are the workers of one process.
type Workers struct {
	*core
	ingest
	answers
	operator
}

// Start starts all workers.
func Start(ctx context.Context, s *store.Store, cfg Config) *Workers {
	c := &core{cfg: cfg, store: s, log: cfg.Logger, Node: nuid.Next(), failures: map[event]int{}}
	w := &Workers{core: c, ingest: ingest{c}, answers: answers{c}, operator: newOperator(c)}
	c.lanes = &lanes{start: w.startLane, running: map[laneKey]*lane{}}
	w.ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	c.Metrics = newMetrics(w)
	for partition := range s.Partitions {
		w.running.Go(func() { w.consume(w.ctx, w.fromSender(partition)) })
	}
	w.running.Go(func() { w.consume(w.ctx, w.failedMessages()) })
	w.running.Go(func() { w.Operations.Run(w.ctx) })
	s.OnChange(w.changed)
	w.running.Go(func() { w.followQueues(w.ctx) })
	w.running.Go(func() { watch.Every(w.ctx, failedEvery, w.reportCounts) })
	return w
}

// Close stops all workers. It hands messages that no handler has begun back at once, and waits for requests in flight.
func (w *Workers) Close() {
	w.lanes.close()
	w.stop()
	w.running.Wait()
	w.reportCounts()
}

// worker is a consumer and the handler of its messages.
type worker struct {
	stream   string
	consumer jetstream.ConsumerConfig
	handle   func(ctx context.Context, m *jetpull.Msg, meta *jetstream.MsgMetadata) error
	opts     []jetpull.SubscribeOption
}

func (w *core) newWorker(q store.Queue, durable, filter string, pinned bool) worker {
	c := jetstream.ConsumerConfig{
		Durable: durable, FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy, AckWait: w.cfg.Takeover,
		MaxDeliver: -1, MaxAckPending: maxAckPending, MaxWaiting: 512,
	}
	opts := []jetpull.SubscribeOption{
		jetpull.Concurrency(w.cfg.Concurrency), jetpull.DrainTimeout(w.cfg.Drain),
		jetpull.Logger(w.log.With("worker", durable)),
	}
	if pinned {
		c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{group}, w.cfg.Takeover
		// Consume ends its pulls in time without MaxWait, which only prevents a warning of Subscribe.
		opts = append(opts, jetpull.Group(group), jetpull.MaxWait(w.cfg.Takeover/2))
	}
	return worker{stream: w.store.StreamName(q), consumer: c, opts: opts}
}

// entryWorker returns the worker of a queue's entries for one receiver or sender. It puts an entry that cannot be decoded on the list of failed
// messages.
func (w *core) entryWorker(q store.Queue, owner string, pinned bool,
	deliver func(context.Context, *jetpull.Msg, *jetstream.MsgMetadata, *store.Entry) error,
) worker {
	worker := w.newWorker(q, w.store.Durable(q, owner), w.store.Filter(q, owner), pinned)
	worker.handle = func(ctx context.Context, m *jetpull.Msg, meta *jetstream.MsgMetadata) error {
		e, err := store.DecodeEntry(m.Data())
		if err != nil {
			w.cfg.Reporter.Report(ctx, err, "subject", m.Subject())
			return w.store.Quarantine(ctx, m.Subject(), meta.Sequence.Stream, m.Data(), err)
		}
		return deliver(ctx, m, meta, &e)
	}
	return worker
}

// consume runs a worker until ctx ends.
func (w *core) consume(ctx context.Context, worker worker) {
	for ctx.Err() == nil {
		err := w.store.EnsureConsumer(ctx, worker.stream, worker.consumer)
		if err == nil {
			err = w.consumeOnce(ctx, worker)
		}
		if again := ctx.Err() == nil; again || err != nil && !errors.Is(err, context.Canceled) { // a cancelled worker is not an error
			w.log.Warn("a worker ended", "worker", worker.consumer.Durable, "error", err, "started again", again)
		}
		_ = watch.Sleep(ctx, restartPause)
	}
}

func (w *core) consumeOnce(ctx context.Context, worker worker) error {
	sub, err := jetpull.Subscribe(ctx, w.store.JetStream(), worker.stream, worker.consumer.Durable, worker.opts...)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.Takeover)
		defer cancel()
		if err := sub.Close(closing); err != nil {
			w.log.Info("closing a worker's subscription", "worker", worker.consumer.Durable, "error", err)
		}
	}()
	return sub.Consume(ctx, func(work context.Context, m *jetpull.Msg) error {
		meta, err := m.Metadata()
		if err == nil {
			err = worker.handle(work, m, meta)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return jetpull.Retry(0, err) // another process can have it at once
		case errors.Is(err, store.ErrUnavailable):
			return jetpull.Retry(firstPause, err)
		}
		return err
	})
}

// policy returns the policy for a message. If this process does not know the sender, another one may, so Callback is set: the worker that makes the
// callback reads the sender again.
func (w *core) policy(r store.Receiver, sender string) machine.Policy {
	s := w.store.Senders.Get(sender)
	return machine.Policy{
		MaxAttempts: r.MaxRetries + 1, RetryAfter: r.RetryAfter, StatusEndpoint: r.StatusEndpoint != "",
		AtMostOnce: r.UnknownOutcome == store.AtMostOnce, Callback: sender != "" && (s.Gone() || s.CallbackEndpoint != ""),
	}
}

// pause returns the n-th pause, with n from 1. Each is twice as long as the one before.
func pause(n int) time.Duration {
	return min(firstPause<<min(n-1, 10), lastPause)
}

// pauseAsked returns the Retry-After of an answer, or pause if it has none. A very short Retry-After would keep a worker busy with the message, so
// the result is at least 1 s, or pause if that is shorter.
func pauseAsked(pause time.Duration, answer *webhook.Answer) time.Duration {
	if answer == nil || retryAfter(answer.Header) == 0 {
		return pause
	}
	return max(retryAfter(answer.Header), min(pause, time.Second))
}

// retryAfter returns the Retry-After of an answer, at most maxRetryAfter, or 0.
func retryAfter(h http.Header) time.Duration {
	asked, _ := webhook.RetryAfter(h, wall())
	return min(asked, maxRetryAfter)
}

// Set by tests only.
var (
	wallClock    atomic.Pointer[func() time.Time]
	onCrashpoint atomic.Pointer[func(node, point string)]
)

// SetClock sets the wall clock, for tests.
func SetClock(f func() time.Time) { wallClock.Store(&f) }

// wall returns the wall clock's time. Only times that are sent to or received from other systems use it. Stored times, and times that are compared
// with them, are those of [store.Store.Now]. The monotonic clock measures durations within the process.
func wall() time.Time {
	if f := wallClock.Load(); f != nil {
		return (*f)().Round(0).UTC()
	}
	return time.Now().Round(0).UTC()
}

// OnCrashpoint sets the function that is called at each point between a write and a request, for tests that end a process there.
// node is the [Workers.Node] of the process.
func OnCrashpoint(f func(node, point string)) { onCrashpoint.Store(&f) }

func (w *core) crashpoint(point string) {
	if f := onCrashpoint.Load(); f != nil {
		(*f)(w.Node, point)
	}
}
