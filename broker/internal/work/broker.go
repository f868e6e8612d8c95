// Package work is what a node does: it takes broadcasts, hands jobs to workers, makes the callbacks of the shards that are
// its own, ends claims that are over, replays, prunes, and tells operators. It knows neither configuration nor HTTP nor NATS.
package work

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
	"github.com/jetpull/jetpull/internal/webhook/breaker"
	"github.com/jetpull/jetpull/internal/webhook/events"
)

// Rules are what a node works by.
type Rules struct {
	DispatchRules
	BreakerRules
	CallbackRules
	PruneRules
	// MinDelay is how far away the time of a scheduled message has to be.
	MinDelay time.Duration
	// Shared says that other processes may work on the same store.
	Shared bool
}

// DispatchRules are about jobs and their retries.
type DispatchRules struct {
	// MaxWorkers bounds the callbacks of one consumer at a time, and Concurrency is their number where it has none of its own.
	MaxWorkers    int
	Concurrency   int
	MaxRetry      int
	RationalDelay time.Duration
	Backoff       []time.Duration
	// Recovery lets this process end claims that are over.
	Recovery bool
}

// BreakerRules are about consumers whose callbacks fail.
type BreakerRules struct {
	breaker.Rules
	// PauseAfter is how long callbacks fail before the consumer is paused. 0: never.
	PauseAfter time.Duration
	// EventURL gets a request for each change, if it is not empty.
	EventURL string
}

// CallbackRules are about the callbacks of push consumers.
type CallbackRules struct {
	// TokenHeader is the name of the header with the consumer's token; none that callbacks have anyway.
	TokenHeader string
	UserAgent   string
	Timeout     time.Duration
	// Networks says where callbacks may be: auto, public, any, or networks.
	Networks string
}

// PruneRules are about finished messages.
type PruneRules struct {
	// Retention is how long they are kept. 0 keeps them for ever.
	Retention time.Duration
	Interval  time.Duration
	// ExportPath is a folder for what is pruned, in files whose names NodeName begins. Empty: it is not exported.
	ExportPath string
	NodeName   string
}

// ClaimLimit is how long a claim lasts without an incremental timeout: as long as the broker itself would wait for a callback, a quarter
// of a second for the way, and the rational delay.
func (r Rules) ClaimLimit() time.Duration { return r.Timeout + 250*time.Millisecond + r.RationalDelay }

// Parts are what a broker works with.
type Parts struct {
	Consumers Consumers
	Messages  Messages
	Records   Records
	// Index is what is known of jobs. Nil: nothing is.
	Index   *jobindex.Index
	Replays Replayed
	Shards  Shards
	Health  Health

	Rules  Rules
	Poster Poster
	// Events sends changes of consumers to the operator's URL. Nil: there is none.
	Events  *events.Sender
	Log     *slog.Logger
	Metrics *Metrics
	// Full reports why no other message is to be stored now. Nil: there is always space.
	Full func() error
	// Usage reports how much of the store is used. Nil: that is not known.
	Usage func(ctx context.Context) (Usage, error)
}

// core is what all parts of a broker work with.
type core struct {
	Parts

	run     context.Context // ends when nothing more is to be begun
	stop    context.CancelFunc
	running sync.WaitGroup

	work  context.Context // ends when callbacks in progress are to be cut
	cut   context.CancelFunc
	calls sync.WaitGroup // goroutines of lanes
}

// storePause is how often a store that is not ready is looked at.
const storePause = 250 * time.Millisecond

// troubleLevel is for what goes wrong with one job. While the store is down, that is
// said once and not for each of them.
func (c *core) troubleLevel() slog.Level {
	if c.Health.Ready() != nil {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// died says that a job is dead: nothing more happens to it by itself.
func (c *core) died(j domain.Job, reason string) {
	k, _ := c.Consumers.ConsumerByNumber(j.ID.Consumer)
	c.Log.Warn("a job is dead", "channel", k.Channel, "consumer", k.ID, "job", j.ID, "retries", j.Retries, "reason", reason)
}

// full reports why no other message can be stored now, or nil.
func (c *core) full() error {
	if c.Full == nil {
		return nil
	}
	return c.Full()
}

// Broker is one node. Its parts may be used by several goroutines.
type Broker struct {
	Broadcasts *Broadcasts
	Jobs       *Jobs
	Dispatch   *Dispatch
	Replays    *Replays
	Pruner     *Pruner
	core       *core
	events     *notifier
}

// New makes a broker. It does nothing by itself until Start.
func New(p Parts) *Broker {
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if p.Metrics == nil {
		p.Metrics = NewMetrics()
	}
	if p.Index == nil {
		p.Index = jobindex.New()
	}
	c := &core{Parts: p}
	c.run, c.stop = context.WithCancel(context.Background())
	c.work, c.cut = context.WithCancel(context.Background())
	b := &Broker{core: c, Broadcasts: &Broadcasts{c}, Jobs: &Jobs{core: c}, Pruner: &Pruner{c}}
	b.events = &notifier{c}
	b.Dispatch = &Dispatch{core: c, jobs: b.Jobs, events: b.events, handOver: domain.NewToken(), lanes: map[uint32]*lane{}}
	b.Replays = newReplays(c, b.Jobs)
	p.Metrics.Registry.MustRegister(gauges{c, b.Dispatch})
	return b
}

// Ready reports why the broker cannot take messages now, or nil.
func (b *Broker) Ready() error { return errors.Join(b.core.Health.Ready(), b.core.full()) }

// Rules are what the broker works by.
func (b *Broker) Rules() Rules { return b.core.Rules }

// Metrics are the broker's metrics.
func (b *Broker) Metrics() *Metrics { return b.core.Metrics }

// Start starts dispatching.
func (b *Broker) Start() {
	b.core.running.Go(func() { b.Jobs.expireClaims(b.core.run) })
	b.core.running.Go(func() { b.Dispatch.dispatch(b.core.run) })
	b.core.running.Go(func() { b.Pruner.pruneLoop(b.core.run) })
	b.core.running.Go(func() { b.Replays.operations.Run(b.core.run) })
	b.core.running.Go(func() {
		b.core.Shards.Own(b.core.run, domain.Ownership{Gained: b.Dispatch.gained, Lost: b.Dispatch.lost})
	})
}

// Close stops dispatching and waits until what is in progress is done, or ctx
// ends. Callbacks that were not started are left to other nodes, or to the
// next start.
func (b *Broker) Close(ctx context.Context) error {
	b.Dispatch.mu.Lock()
	b.Dispatch.closing = true
	b.Dispatch.mu.Unlock()
	for _, l := range b.Dispatch.lanesOf(anyShard) {
		l.close()
	}
	b.core.stop()
	cutter := context.AfterFunc(ctx, b.core.cut)
	b.core.calls.Wait()
	cutter()
	b.core.cut()
	b.core.running.Wait()
	return context.Cause(ctx)
}

// Consumers finds consumers, and changes one while its callbacks are made.
type Consumers interface {
	// ConsumerByNumber finds one in memory.
	ConsumerByNumber(number uint32) (domain.Consumer, bool)
	// RefreshConsumer finds one after a look at what is stored.
	RefreshConsumer(ctx context.Context, channel, id string) (domain.Consumer, error)
	SaveConsumer(ctx context.Context, c domain.Consumer) (domain.Consumer, error)
	Kept(ctx context.Context, revision uint64) error
}

// Messages takes what is broadcast, now or later, and finds and deletes it. What is taken is on disk when a call returns, as far as the server's
// settings go.
type Messages interface {
	Append(ctx context.Context, m domain.Message) (domain.Message, error)
	Schedule(ctx context.Context, m domain.Message, at time.Time) error
	MaxPayload() int
	// MessagesAt loads messages by sequence; those that are gone are missing. With ErrUnavailable it returns those that could
	// be read now.
	MessagesAt(ctx context.Context, seqs []uint64) (map[uint64]domain.Message, error)
	// Prune deletes messages and the records of their jobs.
	Prune(ctx context.Context, seqs []uint64) error
}

// Records keeps the states of jobs, and what was tried.
type Records interface {
	// Job returns a job as it is known here, removed or not, or ErrNotFound. Of one that is settled it may have the state, time
	// and revision only.
	Job(ctx context.Context, id domain.JobID) (domain.Job, error)
	// Refresh is Job, whole, after a look at what is stored if another node may have written it.
	Refresh(ctx context.Context, id domain.JobID) (domain.Job, error)
	// PutJob writes a job's new state. It fails with ErrConflict when the stored revision is not job.Revision; the job as it is
	// now can then be read with Job.
	PutJob(ctx context.Context, job domain.Job) (domain.Job, error)
	// KeepAttempt stores an attempt, in place of one with its number. It waits for no disk.
	KeepAttempt(ctx context.Context, id domain.JobID, a domain.Attempt) error
	// AttemptAt returns one that was stored, or ErrNotFound.
	AttemptAt(ctx context.Context, id domain.JobID, number int) (domain.Attempt, error)
}

// Shards gives the dispatching to push consumers to one node at a time: each channel belongs to one shard, and each shard to one
// node. For a moment two nodes may both own one; then the records of jobs decide.
type Shards interface {
	Shard(channel string) int
	Shards() int
	// Own takes part in the ownership until ctx ends; then it hands over.
	Own(ctx context.Context, o domain.Ownership)
	// Owns tells whether a callback of a shard may begin on this node now.
	Owns(shard int) bool
}

// Health is what the store can do now.
type Health interface {
	// Ready reports why the store cannot serve now, or nil.
	Ready() error
	// Recordable reports why the outcome of a callback could not be kept now, or nil.
	Recordable() error
}
