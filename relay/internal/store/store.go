package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// Partitions is how many workers the messages from senders are divided among, by source.
	defaultPartitions = 10
	// maxConsumers is for the streams that have a consumer for each receiver or sender; the server's own limit is 1,000.
	maxConsumers = 100_000
	// maxPending bounds the writes that wait for the server's answer.
	maxPending = 16 << 10
	// writeTimeout is how long a write waits for the server. One that took longer may have been stored.
	writeTimeout = 5 * time.Second
	// createTimeout bounds one try to make a stream: on a cluster without a leader the server does not answer.
	createTimeout = 5 * time.Second
	createPause   = 250 * time.Millisecond
	// failedAge is how long a failed message can be redriven.
	failedAge = 30 * 24 * time.Hour
	// duplicates is how far back the queues know that they have an entry.
	duplicates = 2 * time.Minute
)

// Errors of the store.
var (
	ErrNotFound    = errors.New("not found")
	ErrConflict    = errors.New("changed meanwhile")
	ErrUnavailable = errors.New("the store is not available")
)

// Config says how the store keeps its data.
type Config struct {
	// Name is the front part of all streams, buckets and subjects.
	Name string
	// Replicas is the number of copies of each stream, at least 1.
	Replicas int
	// Embedded says that this process alone uses the server, which it has started itself.
	Embedded bool
	// Tombstone is how long the record of a message that is done is kept.
	Tombstone time.Duration
	// Partitions is how many workers the messages from senders are divided among, by source; 0: 10.
	Partitions int
	// Storage is where streams and consumers are; its zero value is a file.
	Storage jetstream.StorageType
	Logger  *slog.Logger
}

// Store is the state of a relay. Its methods may be called from several goroutines.
type Store struct {
	cfg Config
	nc  *nats.Conn
	js  jetstream.JetStream
	log *slog.Logger

	records jetstream.Stream
	failed  jetstream.Stream
	ttls    jetstream.Stream
	queues  map[Queue]jetstream.Stream
	config  jetstream.KeyValue
	state   jetstream.KeyValue

	registry *registry
	index    *failedIndex
	// failedReader reads what index has.
	failedReader jetstream.Consumer
	clock        clock
	// failing counts messages whose record says FAILED, or is about to, and which are not on the list yet.
	failing atomic.Int64
	// awaiting counts requests of this process that wait for the end of a message.
	awaiting  atomic.Int64
	readiness readiness

	stop    context.CancelFunc
	running sync.WaitGroup
}

// Queue is one of the streams between workers.
type Queue string

// The queues.
const (
	FromSender   Queue = "from_sender"
	ToReceiver   Queue = "to_receiver"
	FromReceiver Queue = "pending_from_receiver"
	ToSender     Queue = "to_sender"
	Operations   Queue = "operations"
)

// Open makes what is missing and reads registry and list of failed messages.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Store, error) {
	if most := nc.MaxPayload(); most <= EntryRoom {
		return nil, fmt.Errorf("the server's max_payload is %d bytes, and each entry has up to %d beside its payload: set max_payload of the server to more, such as its default of 1MB", most, EntryRoom)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(maxPending), jetstream.WithPublishAsyncTimeout(writeTimeout))
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	cfg.Partitions = cmp.Or(cfg.Partitions, defaultPartitions)
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Store{cfg: cfg, nc: nc, js: js, log: cfg.Logger, queues: map[Queue]jetstream.Stream{}, stop: stop}
	s.registry, s.index = newRegistry(), newFailedIndex()
	if err := s.create(ctx); err != nil {
		stop()
		return nil, err
	}
	for _, follow := range []func(ctx, run context.Context) error{s.followClock, s.followRegistry, s.followFailed} {
		if err := follow(ctx, run); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Close ends what the store does by itself.
func (s *Store) Close() {
	s.stop()
	s.running.Wait()
}

// JetStream is what workers subscribe with.
func (s *Store) JetStream() jetstream.JetStream { return s.js }

// Partitions is how many partitions messages from senders have.
func (s *Store) Partitions() int { return s.cfg.Partitions }

// Embedded tells whether this process alone uses the server.
func (s *Store) Embedded() bool { return s.cfg.Embedded }

const (
	// readyTimeout bounds the write that shows whether the store takes any, and readyEvery is how often there is one, at most.
	readyTimeout = time.Second
	readyEvery   = 500 * time.Millisecond
)

// readiness is what the last look at the store has found.
type readiness struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

// Ready returns why the store takes nothing, or nil. It writes: a server without a quorum, and one whose disk is full, answer
// everything else.
func (s *Store) Ready(ctx context.Context) error {
	if !s.nc.IsConnected() {
		return fmt.Errorf("%w: not connected to NATS (%s)", ErrUnavailable, s.nc.Status())
	}
	r := &s.readiness
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) < readyEvery {
		return r.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	_, r.err = s.publish(ctx, &nats.Msg{Subject: "$KV." + s.state.Bucket() + ".ready"})
	r.at = time.Now()
	return r.err
}

// StreamName is the name of a queue's stream.
func (s *Store) StreamName(q Queue) string { return s.cfg.Name + "_" + string(q) }

func (s *Store) subject(q Queue, tokens ...string) string {
	subject := s.cfg.Name + "." + string(q)
	for _, token := range tokens {
		subject += "." + token
	}
	return subject
}

func (s *Store) create(ctx context.Context) error {
	base := func(name string, subjects ...string) jetstream.StreamConfig {
		return jetstream.StreamConfig{
			Name: s.cfg.Name + "_" + name, Subjects: subjects, Storage: s.cfg.Storage, Replicas: s.cfg.Replicas,
			Duplicates: duplicates,
			// Where an operator limits it, a full stream refuses what comes: nothing that was accepted is dropped.
			Discard: jetstream.DiscardNew,
			// A follower's answer may be old, and decisions are made on what is read.
			AllowDirect: s.cfg.Replicas == 1,
		}
	}
	for _, q := range []Queue{FromSender, ToReceiver, FromReceiver, ToSender, Operations} {
		c := base(string(q), s.subject(q)+".>")
		c.Retention, c.MaxConsumers = jetstream.WorkQueuePolicy, maxConsumers
		if q == FromSender {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{
				Source:      s.subject(q) + ".>",
				Destination: fmt.Sprintf("%s.{{partition(%d)}}.>", s.subject(q), s.cfg.Partitions),
			}
		}
		stream, err := s.createStream(ctx, c)
		if err != nil {
			return err
		}
		s.queues[q] = stream
	}
	ttl := base("message_ttl", s.cfg.Name+".message_ttl.>")
	ttl.Retention, ttl.AllowMsgSchedules, ttl.AllowMsgTTL = jetstream.LimitsPolicy, true, true
	ttl.Discard = jetstream.DiscardOld // schedules go with no other; a message without its reminder expires when a worker looks at it
	failed := base("failed_messages", s.cfg.Name+".failed_messages.>")
	failed.MaxAge, failed.MaxMsgsPerSubject, failed.AllowMsgTTL = failedAge, 1, true
	records := base("", "$KV."+s.recordBucket()+".>")
	records.Name = "KV_" + s.recordBucket()
	records.MaxMsgsPerSubject, records.AllowMsgTTL, records.AllowRollup, records.DenyDelete = 1, true, true, true
	var err error
	if s.ttls, err = s.createStream(ctx, ttl); err != nil {
		return err
	}
	if s.failed, err = s.createStream(ctx, failed); err != nil {
		return err
	}
	if s.records, err = s.createStream(ctx, records); err != nil {
		return err
	}
	if s.config, err = s.createBucket(ctx, base("receiver_config")); err != nil {
		return err
	}
	s.state, err = s.createBucket(ctx, base("state"))
	return err
}

// createStream tries until ctx ends: two processes that start together, or a cluster without a leader, are no errors. It
// leaves the limits of a stream that is there to the operator, and refuses to take copies of it away, as a process would that
// was started without --replicas.
func (s *Store) createStream(ctx context.Context, c jetstream.StreamConfig) (stream jetstream.Stream, err error) {
	var fewer error
	err = s.persist(ctx, func(ctx context.Context) (err error) {
		// First as if it were not there: the server leaves one alone that is as it should be.
		if stream, err = s.js.CreateStream(ctx, c); !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return err
		}
		if stream, err = s.js.Stream(ctx, c.Name); err != nil {
			return err
		}
		was := stream.CachedInfo().Config
		if was.Replicas > c.Replicas {
			fewer = fmt.Errorf("the stream %s has %d replicas and this process is told %d: give --replicas %d, or change the streams first with `nats stream edit`", c.Name, was.Replicas, c.Replicas, was.Replicas)
			return nil
		}
		c.MaxBytes, c.MaxMsgs, c.MaxMsgSize = was.MaxBytes, was.MaxMsgs, was.MaxMsgSize
		stream, err = s.js.UpdateStream(ctx, c)
		return err
	})
	if err = cmp.Or(err, fewer); err != nil {
		return nil, fmt.Errorf("make stream %s: %w", c.Name, err)
	}
	return stream, nil
}

// createBucket makes a bucket as a stream: one of the client's would be read from followers.
func (s *Store) createBucket(ctx context.Context, c jetstream.StreamConfig) (kv jetstream.KeyValue, err error) {
	bucket := c.Name
	c.Name, c.Subjects = "KV_"+bucket, []string{"$KV." + bucket + ".>"}
	c.MaxMsgsPerSubject, c.AllowMsgTTL, c.AllowRollup, c.DenyDelete = 1, true, true, true
	c.SubjectDeleteMarkerTTL = time.Hour
	if _, err := s.createStream(ctx, c); err != nil {
		return nil, err
	}
	err = s.persist(ctx, func(ctx context.Context) (err error) {
		kv, err = s.js.KeyValue(ctx, bucket)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", bucket, err)
	}
	return kv, nil
}

func (s *Store) persist(ctx context.Context, try func(context.Context) error) error {
	for {
		once, cancel := context.WithTimeout(ctx, createTimeout)
		err := try(once)
		cancel()
		var refused *jetstream.APIError
		if err == nil || ctx.Err() != nil || errors.As(err, &refused) && refused.Code < 500 {
			return err
		}
		s.log.Info("the server does not take a stream yet, trying again", "error", err)
		select {
		case <-time.After(createPause):
		case <-ctx.Done():
			return err
		}
	}
}

// EnsureConsumer makes a durable consumer, or changes it to what it should be. On a server of its own a process makes
// it anew: what the process before it had not acknowledged is then delivered at once, not after AckWait. So its state
// need not be written to disk there.
func (s *Store) EnsureConsumer(ctx context.Context, stream string, cfg jetstream.ConsumerConfig, anew bool) error {
	cfg.MemoryStorage = s.cfg.Embedded || s.cfg.Storage == jetstream.MemoryStorage
	if anew && s.cfg.Embedded {
		if err := s.js.DeleteConsumer(ctx, stream, cfg.Durable); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("%w: remake consumer %s: %w", ErrUnavailable, cfg.Durable, err)
		}
	}
	if _, err := s.js.CreateOrUpdateConsumer(ctx, stream, cfg); err != nil {
		return fmt.Errorf("%w: make consumer %s of %s: %w", ErrUnavailable, cfg.Durable, stream, err)
	}
	return nil
}

// ResetConsumers removes the consumers of a queue on a server of its own: what the run before had not acknowledged is delivered
// at once to those who make them again.
func (s *Store) ResetConsumers(ctx context.Context, q Queue) error {
	if !s.cfg.Embedded {
		return nil
	}
	list := s.queues[q].ConsumerNames(ctx)
	for name := range list.Name() {
		if err := s.queues[q].DeleteConsumer(ctx, name); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("%w: remake consumer %s: %w", ErrUnavailable, name, err)
		}
	}
	if err := list.Err(); err != nil {
		return fmt.Errorf("%w: list the consumers of %s: %w", ErrUnavailable, q, err)
	}
	return nil
}

// publish stores a message and returns its sequence. ErrConflict: an expectation of it was not met.
func (s *Store) publish(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (uint64, error) {
	future, err := s.js.PublishMsgAsync(m, opts...)
	if err != nil {
		return 0, fmt.Errorf("%w: publish to %s: %w", ErrUnavailable, m.Subject, err)
	}
	return s.published(ctx, m, future)
}

// published waits for the end of a publish.
func (s *Store) published(ctx context.Context, m *nats.Msg, future jetstream.PubAckFuture) (uint64, error) {
	select {
	case ack := <-future.Ok():
		return ack.Sequence, nil
	case err := <-future.Err():
		var refused *jetstream.APIError
		if errors.As(err, &refused) && (refused.ErrorCode == 10071 || refused.ErrorCode == 10164) {
			return 0, ErrConflict
		}
		return 0, fmt.Errorf("%w: publish to %s: %w", ErrUnavailable, m.Subject, err)
	case <-ctx.Done():
		return 0, fmt.Errorf("%w: publish to %s: %w", ErrUnavailable, m.Subject, context.Cause(ctx))
	}
}

// EntryRoom is what a message in a queue has beside its payload or response: record, history, headers.
const EntryRoom = 256 << 10

// MaxPayload is the largest payload that all queues take, in bytes.
func (s *Store) MaxPayload() int { return max(1, int(s.nc.MaxPayload())-EntryRoom) }
