// Package store keeps the relay's state in JetStream: a record of each message, the queues between the workers, the registry of
// receivers and senders, and the list of failed messages.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/clock"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/stored"
	"github.com/jetpull/jetpull/internal/systems"
)

const (
	// maxConsumers is for the streams with a consumer for each receiver or sender. The server's own limit is 1,000.
	maxConsumers = 100_000
	// maxPending bounds the writes that wait for the server's answer.
	maxPending = 16 << 10
	// writeTimeout bounds the wait for the answer to a write. A write that timed out may be stored.
	writeTimeout = 5 * time.Second
	// failedAge is how long a failed message can be redriven.
	failedAge = 30 * 24 * time.Hour
	// duplicates is the time in which the queues detect a duplicate entry.
	duplicates = 2 * time.Minute
	// leastDuplicates is the shortest such time that the server accepts.
	leastDuplicates = 100 * time.Millisecond
)

// Errors of the store.
var (
	ErrNotFound    = stored.ErrNotFound
	ErrConflict    = stored.ErrConflict
	ErrTooLarge    = stored.ErrTooLarge
	ErrUnavailable = stored.ErrUnavailable
	ErrUnreadable  = errors.New("what is stored cannot be decoded, or is changed again and again: remove the entry that the log names, or use the " +
		"build that wrote it")
)

// Config configures the store.
type Config struct {
	// Name is the prefix of all streams, buckets and subjects.
	Name string
	// Replicas is the number of copies of each stream, at least 1.
	Replicas int
	// Embedded specifies that this process has started the server and is its only user.
	Embedded bool
	// Tombstone is how long the record of a completed message is kept.
	Tombstone time.Duration
	// Partitions is the number of partitions of messages from senders, by source. Each has a worker. 0 means 10.
	Partitions int
	// Storage is the storage of streams and consumers. The zero value is a file.
	Storage jetstream.StorageType
	// Disk syncs stored data before the relay answers or continues. If it is nil, the server decides when to sync.
	Disk   jsstream.Disk
	Logger *slog.Logger
}

// Store is the state of a relay. It is safe for concurrent use.
type Store struct {
	*base
	*Records
	*Queues
	*Failed
	*Registry

	looked atomic.Pointer[look]
	stop   context.CancelFunc
}

// Queue is one of the streams between workers.
type Queue string

// The queues.
const (
	FromSender     Queue = systems.RelayFromSender
	ToReceiver     Queue = systems.RelayToReceiver
	FromReceiver   Queue = systems.RelayFromReceiver
	ToSender       Queue = systems.RelayToSender
	FailedMessages Queue = systems.RelayFailed // not a queue, but its stream is named like one
)

// Open creates missing streams, and reads the registry and the list of failed messages.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Store, error) {
	if most := nc.MaxPayload(); most <= EntryOverhead {
		return nil, fmt.Errorf("the server's max_payload is %d bytes, and each entry has up to %d beside its payload: set max_payload of the server to "+
			"more, such as its default of 1MB", most, EntryOverhead)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(maxPending), jetstream.WithPublishAsyncTimeout(writeTimeout))
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	cfg.Partitions = cmp.Or(cfg.Partitions, 10)
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	b := &base{Config: cfg, nc: nc, js: js, reader: jsstream.NewReader(js, cfg.Replicas, func(context.Context) error { return nil })}
	s := &Store{
		base: b, Records: &Records{base: b}, Queues: &Queues{base: b, queues: map[Queue]jetstream.Stream{}},
		Failed: &Failed{base: b}, Registry: &Registry{base: b}, stop: stop,
	}
	for _, step := range []func(ctx, run context.Context) error{
		s.create, s.syncStored, s.checkMarks, s.followClock, s.openRegistry, s.openOperations, s.followFailed,
	} {
		if err := step(ctx, run); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

func (s *Store) syncStored(ctx, _ context.Context) error {
	return jsstream.SyncStored(ctx, s.Disk, s.records, s.queues[ToReceiver], s.queues[FromReceiver], s.queues[ToSender], s.failed, s.config, s.state)
}

// Close stops the goroutines of the store and waits for them.
func (s *Store) Close() {
	s.stop()
	s.running.Wait()
}

func (s *Store) create(ctx, _ context.Context) (err error) {
	for _, q := range []Queue{FromSender, ToReceiver, FromReceiver, ToSender} {
		c := s.streamConfig(string(q), s.Subjects(q))
		c.Retention, c.MaxConsumers = jetstream.WorkQueuePolicy, maxConsumers
		if q == FromSender {
			// The server compares the IDs of all senders, so one sender could make it drop the messages of another.
			c.Duplicates = leastDuplicates
			c.SubjectTransform = &jetstream.SubjectTransformConfig{
				Source:      s.Subjects(q),
				Destination: fmt.Sprintf("%s.{{partition(%d)}}.>", s.subject(q), s.Partitions),
			}
		}
		if s.queues[q], err = jsstream.Make(ctx, s.js, c); err != nil {
			return err
		}
	}
	failed := s.streamConfig(string(FailedMessages), s.Subjects(FailedMessages))
	failed.MaxAge, failed.MaxMsgsPerSubject, failed.AllowMsgTTL = failedAge, 1, true
	records := s.streamConfig(systems.RelayRecords)
	records.AllowMsgTTL = true
	if s.failed, err = jsstream.Make(ctx, s.js, failed); err != nil {
		return err
	}
	if _, s.records, err = jsstream.MakeBucket(ctx, s.js, records); err != nil {
		return err
	}
	if s.configKV, s.config, err = jsstream.MakeBucket(ctx, s.js, s.bucketConfig(systems.RelayConfig)); err != nil {
		return err
	}
	s.stateKV, s.state, err = jsstream.MakeBucket(ctx, s.js, s.bucketConfig(systems.RelayState))
	return err
}

// checkMarks detects streams that were set back while no relay ran. It omits records and queues: a worker that misses a record creates it again.
func (s *Store) checkMarks(ctx, run context.Context) error {
	if s.Embedded {
		return nil
	}
	marks := jsstream.Marks{
		JS: s.js, Log: s.Logger, Streams: []jetstream.Stream{s.failed, s.config, s.state},
		Places: []jsstream.Place{
			{Stream: s.config, Subject: s.kvSubject(systems.RelayConfig, "seen")}, {Stream: s.state, Subject: s.kvSubject(systems.RelayState, "seen")},
		},
	}
	return marks.Follow(ctx, run, &s.running)
}

func (s *Store) bucketConfig(name string) jetstream.StreamConfig {
	c := s.streamConfig(name)
	c.AllowMsgTTL, c.SubjectDeleteMarkerTTL = true, time.Hour
	return c
}

// base is shared by all parts of the store: the connection, the clock, and the functions that create streams and write to them.
type base struct {
	Config
	nc      *nats.Conn
	js      jetstream.JetStream
	state   jetstream.Stream // of the bucket of rate windows and operations
	stateKV jetstream.KeyValue
	clock   clock.Clock // the server's
	reader  *jsstream.Reader
	running sync.WaitGroup
}

// JetStream returns the JetStream with which workers subscribe.
func (s *base) JetStream() jetstream.JetStream { return s.js }

// StreamName returns the name of a queue's stream.
func (s *base) StreamName(q Queue) string { return s.Name + "_" + string(q) }

// kvSubject returns the subject of a key in a bucket.
func (s *base) kvSubject(bucket, key string) string {
	return "$KV." + s.Name + "_" + bucket + "." + key
}

func (s *base) subject(q Queue, tokens ...string) string {
	return strings.Join(append([]string{s.Name, string(q)}, tokens...), ".")
}

// Subjects returns the subject of all messages of a queue.
func (s *base) Subjects(q Queue) string { return s.subject(q, ">") }

// streamConfig returns the settings that all streams share.
func (s *base) streamConfig(name string, subjects ...string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: s.Name + "_" + name, Subjects: subjects, Storage: s.Storage, Replicas: s.Replicas,
		Duplicates: duplicates,
		// A stream that an operator limits refuses new messages when it is full. Nothing that was accepted is dropped.
		Discard: jetstream.DiscardNew,
		// A follower's answer may be outdated, and decisions depend on reads.
		AllowDirect: s.Replicas == 1,
	}
}

// beginWrite is [jsstream.BeginWrite], but a message over a stream's limit is ErrUnavailable: it can be stored when an operator raises the limit.
func (s *base) beginWrite(m *nats.Msg, opts ...jetstream.PublishOpt) (written func(context.Context) (uint64, error)) {
	begun := jsstream.BeginWrite(s.js, m, opts...)
	return func(ctx context.Context) (uint64, error) {
		seq, err := begun(ctx)
		if errors.Is(err, ErrTooLarge) {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return seq, err
	}
}

// write stores a message and returns its sequence. It returns ErrConflict if an expectation in opts is not met.
func (s *base) write(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (uint64, error) {
	return s.beginWrite(m, opts...)(ctx)
}

// durable returns when a message of a stream is on disk, as far as this process controls that. Sequence 0 means all messages.
func (s *base) durable(ctx context.Context, stream string, seq uint64) error {
	return jsstream.DurableAt(ctx, s.Disk, stream, seq)
}

// EntryOverhead bounds the bytes of an entry in addition to its payload or response: record, history, headers.
const EntryOverhead = 256 << 10

// MaxPayload returns the largest payload that all queues accept, in bytes.
func (s *base) MaxPayload() int { return max(1, int(s.nc.MaxPayload())-EntryOverhead) }

// Now returns the time by the server's clock, which the times in the streams use.
func (s *base) Now() time.Time { return s.clock.Now() }

func (s *base) followClock(ctx, run context.Context) error {
	return jsstream.FollowClock(ctx, run, &s.running, s.js, "KV_"+s.Name+"_"+systems.RelayState, &s.clock)
}

const (
	// readyTimeout bounds the write that checks the store. readyEvery is how long its result is reused.
	readyTimeout = time.Second
	readyEvery   = 500 * time.Millisecond
)

// look is the result of a check of the store.
type look struct {
	at  time.Time
	err error
}

// Ready returns nil if the store accepts writes, or the reason why not. It makes a write, because a server without a quorum, or
// with a full disk, answers all other requests.
func (s *Store) Ready(ctx context.Context) error {
	if !s.nc.IsConnected() {
		return fmt.Errorf("%w: not connected to NATS (%s)", ErrUnavailable, s.nc.Status())
	}
	if last := s.looked.Load(); last != nil && time.Since(last.at) < readyEvery {
		return last.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	_, err := s.write(ctx, &nats.Msg{Subject: s.kvSubject(systems.RelayState, "ready")})
	err = cmp.Or(jsstream.SyncFailure(s.Disk, s.state.CachedInfo().Config.Name), err)
	s.looked.Store(&look{time.Now(), err})
	return err
}
