// Package work does the work of a node. It stores broadcasts, hands jobs to workers, makes the callbacks of this node's shards, ends expired claims,
// runs replays, prunes, and notifies operators. It does not depend on configuration, HTTP or NATS.
package work

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/metrics"
	"github.com/jetpull/jetpull/internal/service/webhook/breaker"
	"github.com/jetpull/jetpull/internal/service/webhook/events"
)

// Rules configure the work of a node.
type Rules struct {
	DispatchRules
	BreakerRules
	CallbackRules
	PruneRules
	// MinDelay is the minimum time from now to the time of a scheduled message.
	MinDelay time.Duration
	// Shared specifies whether other processes may use the same store.
	Shared bool
}

// DispatchRules configure jobs and their retries.
type DispatchRules struct {
	// MaxWorkers limits the concurrent callbacks of one consumer. Concurrency is the default for consumers that do not set their own.
	MaxWorkers    int
	Concurrency   int
	MaxRetry      int
	RationalDelay time.Duration
	Backoff       []time.Duration
	// Recovery specifies whether this process ends expired claims.
	Recovery bool
}

// BreakerRules configure the handling of consumers whose callbacks fail.
type BreakerRules struct {
	breaker.Rules
	// PauseAfter is how long all callbacks must fail in one process before the consumer is paused. 0 means never.
	PauseAfter time.Duration
	// EventURL gets a request for each change of a consumer's state. Empty means no requests.
	EventURL string
}

// CallbackRules configure the callbacks of push consumers.
type CallbackRules struct {
	// TokenHeader is the name of the header with the consumer's token. It must not be a header that the broker sets in callbacks anyway.
	TokenHeader    string
	UserAgent      string
	Timeout        time.Duration
	service.Egress // of callbacks
}

// PruneRules configure the pruning of finished messages.
type PruneRules struct {
	// Retention is how long finished messages are kept. DeadRetention is how long messages with a dead job are kept after the job's death. 0 means
	// forever.
	Retention     time.Duration
	DeadRetention time.Duration
	Interval      time.Duration
	// ExportPath is a folder to which pruned messages are exported. Empty means no export. NodeName is the prefix of the files' names.
	ExportPath string
	NodeName   string
}

// ClaimLimit returns how long a claim lasts without an incremental timeout: the broker's timeout for callbacks, a quarter of a second for the
// network, and the rational delay.
func (r Rules) ClaimLimit() time.Duration { return r.Timeout + 250*time.Millisecond + r.RationalDelay }

// Parts are the dependencies of a broker.
type Parts struct {
	Settings Settings
	Messages Messages
	Records  Records
	Index    *jobindex.Index // the consumers and jobs in memory, with the store's clock
	Replays  Replayed
	Shards   Shards
	Health   Health

	Rules  Rules
	Poster Poster
	// Events sends changes of consumers to the operator's URL. nil means no events.
	Events *events.Sender
	Log    *slog.Logger
	// Full returns why no more messages can be stored now, or nil.
	Full func() error
	// Permitted returns an error that names a missing permission on the store's server, or nil.
	Permitted func() error
	// Usage returns how much of the store is used.
	Usage func(ctx context.Context) (Usage, error)
}

// core is the part that all parts of a broker share.
type core struct {
	Parts
	Metrics *Metrics

	run     context.Context // ends when nothing new may begin
	stop    context.CancelFunc
	running sync.WaitGroup

	work  context.Context // ends when callbacks in progress are cancelled
	cut   context.CancelFunc
	calls sync.WaitGroup // callbacks of lanes
}

// Now returns the time of the store's clock, for times that are stored, sent, or compared with such times.
func (c *core) Now() time.Time { return c.Index.Clock.Now() }

// troubleLevel returns the log level for problems with one job. While the store is down, which is logged once, it is debug.
func (c *core) troubleLevel() slog.Level {
	if c.Health.Ready() != nil {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// died logs that a job is dead. Only an operator can queue the job again.
func (c *core) died(j domain.Job, reason string) {
	k, _ := c.Index.Consumer(j.ID.Consumer)
	c.Log.Warn("a job is dead", "channel", k.Channel, "consumer", k.ID, "job", j.ID, "retries", j.Retries, "reason", reason)
}

// Broker is one node. Its parts are safe for concurrent use.
type Broker struct {
	*core
	Broadcasts *Broadcasts
	Jobs       *Jobs
	Dispatch   *Dispatch
	Replays    *Replays
	Pruner     *Pruner
}

// New returns a broker. The caller must call Start.
func New(p Parts) *Broker {
	c := &core{Parts: p, Metrics: NewMetrics()}
	c.run, c.stop = context.WithCancel(context.Background())
	c.work, c.cut = context.WithCancel(context.Background())
	b := &Broker{core: c, Broadcasts: &Broadcasts{c}, Jobs: &Jobs{core: c}, Pruner: &Pruner{c}}
	b.Dispatch = &Dispatch{core: c, jobs: b.Jobs, handOver: domain.NewToken(), lanes: map[uint32]*lane{}, gainedAt: map[int]time.Time{}}
	b.Replays = newReplays(c, b.Jobs)
	c.Metrics.Registry.MustRegister(metrics.Gauges(gauges{c, b.Dispatch}.collect))
	return b
}

// Ready returns why the broker cannot accept messages now, or nil.
func (c *core) Ready() error { return errors.Join(c.Health.Ready(), c.Full(), c.Permitted()) }

// Start starts dispatching.
func (b *Broker) Start() {
	b.running.Go(func() { b.Jobs.expireClaims(b.run) })
	b.running.Go(func() { b.Dispatch.dispatch(b.run) })
	b.running.Go(func() { b.Pruner.pruneLoop(b.run) })
	b.running.Go(func() { b.Replays.Operations.Run(b.run) })
	b.running.Go(func() {
		b.Shards.Own(b.run, b.Dispatch.gained, b.Dispatch.lost)
	})
}

// Close stops dispatching and waits until the work in progress is done or ctx ends. It leaves callbacks that have not started to other nodes, or to
// the next start.
func (b *Broker) Close(ctx context.Context) error {
	b.Dispatch.mu.Lock()
	b.Dispatch.closing = true
	b.Dispatch.mu.Unlock()
	for _, l := range b.Dispatch.lanesOf(anyShard) {
		l.close()
	}
	b.stop()
	cutter := context.AfterFunc(ctx, b.cut)
	b.calls.Wait()
	cutter()
	b.cut()
	b.running.Wait()
	return context.Cause(ctx)
}

// Settings reads and changes the stored consumers.
type Settings interface {
	Refresh(ctx context.Context, channel, id string) (domain.Consumer, error)
	// Put returns once the consumer is on disk, also if it changes nothing. It fails with ErrConflict if the stored revision is another.
	Put(ctx context.Context, c domain.Consumer) (domain.Consumer, error)
}

// Messages stores, finds and deletes broadcasts and schedules. A stored message is on disk when a call returns, as far as the
// server's settings provide for that.
type Messages interface {
	Append(ctx context.Context, m domain.Message) (domain.Message, error)
	Schedule(ctx context.Context, m domain.Message, at time.Time) error
	MaxPayload() int
	// InOrder loads messages by sequence, in that order. Deleted ones are missing in the result. With ErrUnavailable it returns those
	// that could be read.
	InOrder(ctx context.Context, seqs []uint64) ([]domain.Message, error)
	Message(ctx context.Context, channel, id string) (domain.Message, error)
	Scheduled(ctx context.Context, channel, id string) (domain.Scheduled, error)
	CancelScheduled(ctx context.Context, channel, id string) error
	// Prune deletes messages and the records of their jobs.
	Prune(ctx context.Context, seqs []uint64) (deleted int, err error)
}

// Records stores the states of jobs and their attempts.
type Records interface {
	// Job returns a job in memory, including a removed one, or ErrNotFound. A settled job may have only its state, time and
	// revision.
	Job(ctx context.Context, id domain.JobID) (domain.Job, error)
	// Refresh is like Job, with all fields, and reads the store if another node may have written the job. A removed job is ErrNotFound.
	Refresh(ctx context.Context, id domain.JobID) (domain.Job, error)
	// PutJob writes a job's new state. It fails with ErrConflict if the stored revision is not job.Revision. The current state
	// can then be read with Job.
	PutJob(ctx context.Context, job domain.Job) (domain.Job, error)
	// KeepAttempt stores an attempt and replaces one with the same number. It does not wait for its sync.
	KeepAttempt(ctx context.Context, id domain.JobID, a domain.Attempt) error
	// AttemptAt returns a stored attempt, or ErrNotFound.
	AttemptAt(ctx context.Context, id domain.JobID, number int) (domain.Attempt, error)
	// Complete fills in the fields of jobs that the index lacks.
	Complete(ctx context.Context, jobs []domain.Job) error
}

// Shards assigns the dispatching to push consumers. Each channel belongs to one shard, and each shard to one node. For a moment
// two nodes may both own a shard. Then the records of jobs decide.
type Shards interface {
	Shard(channel string) int
	Shards() int
	// Own takes part in the ownership until ctx ends. Then it hands over. gained is called when this node has gained a shard, or has
	// confirmed it after a moment of doubt, and knows all that others have recorded. lost is called when another node is to dispatch,
	// which waits a moment for it. The two are never called at the same time for one shard.
	Own(ctx context.Context, gained, lost func(shard int))
	// Owns reports whether a callback of a shard may begin on this node now.
	Owns(shard int) bool
}

// Health reports the state of the store.
type Health interface {
	// Ready returns why the store cannot serve now, or nil.
	Ready() error
	// Recordable returns why the outcome of a callback cannot be stored now, or nil.
	Recordable() error
}
