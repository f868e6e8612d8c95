// Package work has the relay's workers, one file each: FromSender, ToReceiver, FromReceiverAsync, ToSender,
// FailedMessages and MessageTTL. Each is a Consume of the jetpull client; what has one partition is pinned.
package work

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/internal/webhook"
	"github.com/jetpull/jetpull/internal/webhook/events"
	"github.com/jetpull/jetpull/relay/internal/machine"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// group is the priority group of every pinned worker.
	group = "relay"
	// restartPause is the wait before a worker that ended by itself is started again.
	restartPause = time.Second
	// firstPause and lastPause bound the pauses between polls, callbacks and probes of an open breaker.
	firstPause = 250 * time.Millisecond
	lastPause  = 10 * time.Second
	// maxRetryAfter bounds what a receiver or sender may ask for.
	maxRetryAfter = time.Hour
	// maxAckPending is how many entries of a queue may wait for their next try in the server.
	maxAckPending = 100_000
)

// Reporter is told of what somebody should look at.
type Reporter interface {
	// Report gets an error with what it was about, in pairs of key and value.
	Report(ctx context.Context, err error, about ...any)
}

// Client makes requests to receivers and senders. A [webhook.Client] does.
type Client interface {
	Exchange(ctx context.Context, r webhook.Request) (*webhook.Answer, error)
}

// Config says how the workers work.
type Config struct {
	Concurrency      int           // messages of one receiver, sender or partition at a time
	Takeover         time.Duration // how long a process that died keeps its work from others
	Drain            time.Duration // how long a stop waits for requests in flight
	MaxResponse      int           // bytes of a response that are kept
	PollDeadline     time.Duration // how long a pending response is asked for
	CallbackDeadline time.Duration // how long a sender is called
	AutoRedrive      []time.Duration
	Client           Client
	Logger           *slog.Logger
	Reporter         Reporter
	Metrics          *Metrics
	Events           *events.Sender // to the operator; nil: to nobody
}

// core is what all workers have.
type core struct {
	cfg   Config
	store *store.Store
	log   *slog.Logger
	node  string
	alone bool // nobody else uses the server
	lanes *lanes

	failures failures

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
	c := &core{cfg: cfg, store: s, log: cfg.Logger, node: nuid.Next(), alone: s.Embedded()}
	w := &Workers{core: c, ingest: ingest{c}, answers: answers{c}, operator: newOperator(c)}
	c.lanes = &lanes{w: w, running: map[laneKey]*lane{}}
	w.ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	cfg.Metrics.observe(w)
	for partition := range s.Partitions() {
		w.run(w.fromSender(partition))
	}
	w.run(w.messageTTL())
	w.run(w.failedMessages())
	w.running.Go(func() { w.Operations.Run(w.ctx) })
	s.OnChange(w.lanes.receiverChanged, w.lanes.senderChanged)
	w.running.Go(func() { w.lanes.follow(w.ctx) })
	w.running.Go(func() { watch.Every(w.ctx, failedEvery, w.notifyFailed) })
	return w
}

// Node names these workers, as opposed to those of other processes and of earlier runs of this one.
func (w *Workers) Node() string { return w.node }

// Close stops all workers: what no handler has begun is handed back at once, requests in flight are waited for.
func (w *Workers) Close() {
	w.stop()
	w.lanes.close()
	w.running.Wait()
	w.notifyFailed()
}

// worker is a consumer and what is done with its messages.
type worker struct {
	stream   string
	consumer jetstream.ConsumerConfig
	handle   func(ctx context.Context, m *jetpull.Msg) error
	opts     []jetpull.Option
	// ended is called when the worker has stopped; it may be nil.
	ended func()
}

func (w *core) newWorker(stream, durable, filter string, pinned bool) worker {
	c := jetstream.ConsumerConfig{
		Durable: durable, FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy, AckWait: w.cfg.Takeover,
		MaxDeliver: -1, MaxAckPending: maxAckPending, MaxWaiting: 512,
	}
	opts := []jetpull.Option{jetpull.Concurrency(w.cfg.Concurrency), jetpull.DrainTimeout(w.cfg.Drain), jetpull.Logger(w.log.With("worker", durable))}
	if pinned {
		c.PriorityPolicy, c.PriorityGroups, c.PinnedTTL = jetstream.PriorityPolicyPinned, []string{group}, w.cfg.Takeover
		// MaxWait is not for Consume, which ends its pulls in time; it is what Subscribe would warn of otherwise.
		opts = append(opts, jetpull.Group(group), jetpull.MaxWait(w.cfg.Takeover/2))
	}
	return worker{stream: stream, consumer: c, opts: opts}
}

// entryWorker is the worker of what a queue has for one receiver or sender. An entry that cannot be read goes to the list of failed
// messages.
func (w *core) entryWorker(q store.Queue, owner string, pinned bool, deliver func(context.Context, *jetpull.Msg, *jetstream.MsgMetadata, *store.Entry) error) worker {
	worker := w.newWorker(w.store.StreamName(q), w.store.Durable(q, owner), w.store.QueueFilter(q, owner), pinned)
	worker.handle = func(ctx context.Context, m *jetpull.Msg) error {
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		e, err := store.DecodeEntry(m.Data())
		if err != nil {
			w.cfg.Reporter.Report(ctx, err, "subject", m.Subject())
			return w.store.Quarantine(ctx, m.Subject(), strconv.FormatUint(meta.Sequence.Stream, 10), m.Data(), err)
		}
		return deliver(ctx, m, meta, &e)
	}
	return worker
}

// again has a message handled again soon if its error does not say when.
func (w *core) again(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		return jetpull.Retry(firstPause, err)
	}
	return err
}

func (w *core) run(worker worker) {
	w.running.Go(func() { w.consume(w.ctx, worker) })
}

// consume runs a worker until ctx ends.
func (w *core) consume(ctx context.Context, worker worker) {
	for ctx.Err() == nil {
		err := w.store.EnsureConsumer(ctx, worker.stream, worker.consumer)
		if err == nil {
			err = w.consumeOnce(ctx, worker)
		}
		if ctx.Err() != nil {
			// That it was ended is no problem.
			if err != nil && !errors.Is(err, context.Canceled) {
				w.log.Warn("a worker ended", "worker", worker.consumer.Durable, "error", err)
			}
			return
		}
		w.log.Warn("a worker ended by itself and is started again", "worker", worker.consumer.Durable, "error", err)
		select {
		case <-time.After(restartPause):
		case <-ctx.Done():
		}
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
	if worker.ended != nil {
		defer worker.ended()
	}
	return sub.Consume(ctx, func(work context.Context, m *jetpull.Msg) error {
		err := w.again(worker.handle(work, m))
		if err != nil && ctx.Err() != nil {
			// Another process shall have it at once.
			return jetpull.Retry(0, err)
		}
		return err
	})
}

// policy is what the configuration says about a message. A sender that is not known here, or not any more, may be known to
// another process: whoever is to call it looks again.
func (w *core) policy(r store.Receiver, sender string) machine.Policy {
	s, ok := w.store.Senders.Get(sender)
	return machine.Policy{
		MaxAttempts: r.MaxRetries + 1, RetryAfter: r.RetryAfter, StatusEndpoint: r.StatusEndpoint != "",
		AtMostOnce: r.UnknownOutcome == store.AtMostOnce, Callback: sender != "" && (!ok || s.Deleted || s.CallbackEndpoint != ""),
	}
}

// pause is the n-th pause, n from 1: it doubles.
func pause(n int) time.Duration {
	d := firstPause
	for range min(n-1, 10) {
		d *= 2
	}
	return min(d, lastPause)
}

// pauseAsked is a pause, or what the answer, if there was one, asks for. Less than a second, of which HTTP knows nothing, would
// keep a worker busy with the message.
func pauseAsked(pause time.Duration, answer *webhook.Answer) time.Duration {
	if answer == nil || retryAfter(answer.Header) == 0 {
		return pause
	}
	return max(retryAfter(answer.Header), min(pause, time.Second))
}

// retryAfter is what an answer asks for, bounded; 0: nothing.
func retryAfter(h http.Header) time.Duration {
	asked, _ := webhook.RetryAfter(h, wall())
	return min(asked, maxRetryAfter)
}

// What tests set; nil outside of them.
var (
	wallClock    atomic.Pointer[func() time.Time]
	onCrashpoint atomic.Pointer[func(node, point string)]
)

// SetClock sets the wall clock, for tests.
func SetClock(f func() time.Time) { wallClock.Store(&f) }

// wall is the time that others on the network are told, or tell. What is stored, or compared with what is, goes by
// [store.Store.Now], and what is measured within the process by the monotonic clock.
func wall() time.Time {
	if f := wallClock.Load(); f != nil {
		return (*f)().Round(0).UTC()
	}
	return time.Now().Round(0).UTC()
}

// OnCrashpoint sets what is called at each point between a write and a request, for tests that end a process there. node
// is the [Workers.Node] that has come to it.
func OnCrashpoint(f func(node, point string)) { onCrashpoint.Store(&f) }

func (w *core) crashpoint(point string) {
	if f := onCrashpoint.Load(); f != nil {
		(*f)(w.node, point)
	}
}
