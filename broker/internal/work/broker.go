// Package work is what a node does: it takes broadcasts, hands jobs to workers, makes the callbacks of the shards that are
// its own, ends claims that are over, replays, prunes, and tells operators. It knows neither configuration nor HTTP nor NATS.
package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Rules are what a node works by.
type Rules struct {
	// MaxWorkers bounds the callbacks of one consumer at a time, and Concurrency is their number where it has none of its own.
	MaxWorkers  int
	Concurrency int
	MaxRetry    int
	Backoff     domain.Backoff
	// ClaimLimit is how long a claim lasts without an incremental timeout.
	ClaimLimit time.Duration
	// Recovery lets this process end claims that are over.
	Recovery bool

	Breaker domain.BreakerRules
	// PauseAfter is how long callbacks fail before the consumer is paused. 0: never.
	PauseAfter time.Duration
	// EventURL gets a request for each change, if it is not empty.
	EventURL string

	// TokenHeader and UserAgent are in callbacks.
	TokenHeader string
	UserAgent   string

	// MinDelay is how far away the time of a scheduled message has to be.
	MinDelay time.Duration

	// Retention is how long finished messages are kept. 0 keeps them for ever.
	Retention     time.Duration
	PruneInterval time.Duration
	// ExportPath is a folder for what is pruned, in files with NodeName in their names; empty: it is not exported.
	ExportPath string
	NodeName   string

	// HashTokens has the tokens of producers and channels stored as hashes.
	HashTokens bool
	// Shared says that other processes may work on the same store.
	Shared bool
}

// Parts are what a broker works with.
type Parts struct {
	Store  domain.Store
	Rules  Rules
	Seed   domain.Seed
	Poster Poster
	// NewSigner makes a signer from a consumer's signing secret.
	NewSigner func(secret string) (Signer, error)
	// EventPoster sends what operators are told of. Nil: nothing is sent.
	EventPoster Poster
	Logger      *slog.Logger
	Metrics     *Metrics
	// Room reports why no other message is to be stored now. Nil: there is always room.
	Room func() error
	// Usage tells how much of the store is used. Nil: that is not known.
	Usage func(ctx context.Context) (Usage, error)
}

// Broker is one node. Its methods may be called by several goroutines.
type Broker struct {
	store   domain.Store
	rules   Rules
	seeded  domain.Seed
	poster  Poster
	signer  func(secret string) (Signer, error)
	log     *slog.Logger
	metrics *Metrics
	room    func() error
	usage   func(ctx context.Context) (Usage, error)

	eventPoster Poster
	told        chan operatorEvent // to be sent

	due      *dueQueue
	expiring chan struct{} // holds a token for each claim that is being ended
	// offset keeps the nodes of a cluster from doing the same at the same time.
	offset time.Duration

	mu      sync.RWMutex
	lanes   map[uint32]*lane // of all push consumers
	closing bool

	id      string // of this process, among those on the same store
	replays replayRuns

	run     context.Context // ends when nothing more is to be begun
	stop    context.CancelFunc
	running sync.WaitGroup

	work  context.Context // ends when callbacks in progress are to be cut
	cut   context.CancelFunc
	calls sync.WaitGroup // goroutines of lanes
}

// maxExpiring is how many claims are ended at a time.
const maxExpiring = 256

// timerReach bounds how long the timer of a claim is kept that has ended meanwhile.
const timerReach = time.Minute

// storePause is how often a store that is not ready is looked at.
const storePause = 250 * time.Millisecond

// New makes a broker. It does nothing by itself until Start.
func New(p Parts) *Broker {
	if p.Logger == nil {
		p.Logger = slog.New(slog.DiscardHandler)
	}
	if p.Metrics == nil {
		p.Metrics = NewMetrics()
	}
	b := &Broker{
		store: p.Store, rules: p.Rules, seeded: p.Seed, poster: p.Poster, signer: p.NewSigner, log: p.Logger, metrics: p.Metrics, room: p.Room, usage: p.Usage,
		id: domain.NewID(), replays: replayRuns{here: map[string]context.CancelFunc{}},
		eventPoster: p.EventPoster, told: make(chan operatorEvent, heldEvents),
		due: newDueQueue(), expiring: make(chan struct{}, maxExpiring), lanes: map[uint32]*lane{}, offset: time.Duration(rand.Int64N(int64(50 * time.Millisecond))),
	}
	p.Metrics.Registry.MustRegister(gauges{b})
	b.run, b.stop = context.WithCancel(context.Background())
	b.work, b.cut = context.WithCancel(context.Background())
	return b
}

// Store is what the broker keeps, for reading.
func (b *Broker) Store() domain.View { return b.store }

// Rules are what the broker works by.
func (b *Broker) Rules() Rules { return b.rules }

// Metrics are the broker's metrics.
func (b *Broker) Metrics() *Metrics { return b.metrics }

// Start makes what the seed wants and starts dispatching.
func (b *Broker) Start(ctx context.Context) error {
	b.store.Notify(domain.Events{Job: b.jobChanged, Consumer: b.consumerChanged, Queued: b.jobQueued})
	if err := errors.Join(b.seed(ctx), b.hashTokens(ctx)); err != nil {
		b.stop()
		return err
	}
	b.running.Go(func() { b.due.run(b.run, b.fire) })
	b.running.Go(func() { b.pruneLoop(b.run) })
	b.running.Go(func() { b.sendEvents(b.run) })
	b.running.Go(func() { b.watchReplays(b.run) })
	for _, c := range b.store.Consumers("") {
		b.consumerChanged(c, false)
	}
	b.recall()
	b.running.Go(func() { b.store.Own(b.run, domain.Ownership{Gained: b.gained, Lost: b.lost, Breaker: b.breakerHere}) })
	return nil
}

// Close stops dispatching and waits until what is in progress is done, or ctx
// ends. Callbacks that were not started are left to other nodes, or to the
// next start.
func (b *Broker) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closing = true
	b.mu.Unlock()
	for _, l := range b.lanesOf(anyShard) {
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

// recall puts jobs that have a record and something to happen on the schedule.
func (b *Broker) recall() {
	var jobs []domain.Job
	b.store.Recorded(func(j domain.Job) bool {
		jobs = append(jobs, j)
		return true
	})
	for _, j := range jobs {
		b.jobChanged(j)
	}
}

// jobChanged puts on the schedule what has to happen to a job by itself.
func (b *Broker) jobChanged(j domain.Job) {
	switch {
	case j.Status == domain.Inflight && b.rules.Recovery:
		at := j.Due.Add(b.offset)
		if reach := time.Now().Add(timerReach); at.After(reach) {
			at = reach // it is looked at then, and comes back
		}
		b.due.add(dueItem{at: at, id: j.ID, revision: j.Revision})
	case j.Status == domain.Queued && !j.Due.IsZero():
		b.due.add(dueItem{at: j.Due, id: j.ID, revision: j.Revision})
	}
}

// fire does what was due, unless the job has changed since.
func (b *Broker) fire(ctx context.Context, item dueItem) {
	b.awaitStore(ctx)
	if item.id.Seq == 0 {
		if l := b.lane(item.id.Consumer); l != nil {
			l.resume()
		}
		return
	}
	j, err := b.store.Job(ctx, item.id)
	if err != nil || j.Revision != item.revision {
		return
	}
	switch j.Status {
	case domain.Inflight:
		select {
		case b.expiring <- struct{}{}:
		case <-ctx.Done():
			return
		}
		b.running.Go(func() {
			defer func() { <-b.expiring }()
			b.expire(ctx, j)
		})
	case domain.Queued:
		b.store.Enqueue(j.ID)
	}
}

// awaitStore waits while the store takes no records of jobs, so that an outage costs a line in
// the log and not one for each job that is due in it.
func (b *Broker) awaitStore(ctx context.Context) {
	err := b.store.Recordable()
	if err == nil {
		return
	}
	b.log.Warn("what is due waits for the store", "error", err)
	for b.store.Recordable() != nil {
		select {
		case <-time.After(storePause):
		case <-ctx.Done():
			return
		}
	}
	b.log.Info("the store is ready again, what is due goes on")
}

// troubleLevel is for what goes wrong with one job. While the store is down, that is
// said once and not for each of them.
func (b *Broker) troubleLevel() slog.Level {
	if b.store.Ready() != nil {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// expire ends a claim that is over. If the store does not take it, it is tried
// again later.
func (b *Broker) expire(ctx context.Context, j domain.Job) {
	next, changed := domain.Expire(j, time.Now(), b.rules.MaxRetry)
	if !changed {
		b.jobChanged(j)
		return
	}
	switch _, err := b.store.PutJob(ctx, next); {
	case err == nil:
		b.metrics.expired(next.Status)
	case errors.Is(err, domain.ErrConflict):
	default:
		b.log.Log(ctx, b.troubleLevel(), "claim that is over could not be ended, trying again", "job", j.ID, "error", err)
		b.due.add(dueItem{at: time.Now().Add(time.Second), id: j.ID, revision: j.Revision})
	}
}

// maxTries bounds how often a change is decided again because others were
// faster.
const maxTries = 100

// change decides on a job as it is, and writes the decision if it is still so.
func (b *Broker) change(ctx context.Context, id domain.JobID, decide func(domain.Job) (domain.Job, bool, error)) (domain.Job, error) {
	for range maxTries {
		j, err := b.store.Job(ctx, id)
		if err == nil && j.Status.Settled() {
			j, err = b.store.Refresh(ctx, id)
		}
		if err != nil {
			return j, err
		}
		if j.Status == domain.Removed {
			// That is told once it cannot come back.
			now, err := b.store.Refresh(ctx, id)
			if err == nil && now.Status != domain.Removed {
				continue
			}
			return notRemoved(now, err)
		}
		next, changed, err := decide(j)
		if err != nil || !changed {
			// Nothing is refused on what this node thinks: another may have
			// changed the job a moment ago.
			now, refreshErr := b.store.Refresh(ctx, id)
			if refreshErr != nil {
				return j, refreshErr
			}
			if now.Revision != j.Revision {
				continue
			}
			return j, err
		}
		next, err = b.store.PutJob(ctx, next)
		if !errors.Is(err, domain.ErrConflict) {
			return next, err
		}
	}
	return domain.Job{}, fmt.Errorf("%w: job %s changed %d times in a row", domain.ErrConflict, id, maxTries)
}
