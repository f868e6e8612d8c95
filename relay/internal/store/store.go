package store

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/stored"
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
	// failedAge is how long a failed message can be redriven.
	failedAge = 30 * 24 * time.Hour
	// duplicates is how far back the queues know that they have an entry.
	duplicates = 2 * time.Minute
)

// Errors of the store.
var (
	ErrNotFound    = stored.ErrNotFound
	ErrConflict    = stored.ErrConflict
	ErrUnavailable = stored.ErrUnavailable
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
	*base
	*Records
	*Queues
	*Failed
	*Registry

	readiness readiness
	stop      context.CancelFunc
}

// Queue is one of the streams between workers.
type Queue string

// The queues.
const (
	FromSender   Queue = "from_sender"
	ToReceiver   Queue = "to_receiver"
	FromReceiver Queue = "pending_from_receiver"
	ToSender     Queue = "to_sender"
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
	b := &base{cfg: cfg, nc: nc, js: js, log: cfg.Logger, reader: jsstream.NewReader(js, cfg.Replicas, func(context.Context) error { return nil })}
	s := &Store{
		base: b, Records: &Records{base: b}, Queues: &Queues{base: b, queues: map[Queue]jetstream.Stream{}},
		Failed: &Failed{base: b, index: newFailedIndex()}, Registry: &Registry{base: b, index: newSenderIndex()},
		readiness: readiness{looking: make(chan struct{}, 1)}, stop: stop,
	}
	openRegistry, err := s.create(ctx)
	if err != nil {
		stop()
		return nil, err
	}
	for _, follow := range []func(ctx, run context.Context) error{s.followClock, openRegistry, s.followFailed} {
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

// create makes the streams. The registry is read when they are there.
func (s *Store) create(ctx context.Context) (openRegistry func(ctx, run context.Context) error, err error) {
	for _, q := range []Queue{FromSender, ToReceiver, FromReceiver, ToSender} {
		c := s.streamConfig(string(q), s.subject(q)+".>")
		c.Retention, c.MaxConsumers = jetstream.WorkQueuePolicy, maxConsumers
		if q == FromSender {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{
				Source:      s.subject(q) + ".>",
				Destination: fmt.Sprintf("%s.{{partition(%d)}}.>", s.subject(q), s.cfg.Partitions),
			}
		}
		stream, err := jsstream.Make(ctx, s.js, c)
		if err != nil {
			return nil, err
		}
		s.queues[q] = stream
	}
	ttl := s.streamConfig("message_ttl", s.cfg.Name+".message_ttl.>")
	ttl.Retention, ttl.AllowMsgSchedules, ttl.AllowMsgTTL = jetstream.LimitsPolicy, true, true
	ttl.Discard = jetstream.DiscardOld // schedules go with no other; a message without its reminder expires when a worker looks at it
	failed := s.streamConfig("failed_messages", s.cfg.Name+".failed_messages.>")
	failed.MaxAge, failed.MaxMsgsPerSubject, failed.AllowMsgTTL = failedAge, 1, true
	records := s.streamConfig("", "$KV."+s.recordBucket()+".>")
	records.Name = "KV_" + s.recordBucket()
	records.MaxMsgsPerSubject, records.AllowMsgTTL, records.AllowRollup, records.DenyDelete = 1, true, true, true
	if s.ttls, err = jsstream.Make(ctx, s.js, ttl); err != nil {
		return nil, err
	}
	if s.failed, err = jsstream.Make(ctx, s.js, failed); err != nil {
		return nil, err
	}
	if s.records, err = jsstream.Make(ctx, s.js, records); err != nil {
		return nil, err
	}
	config, stream, err := jsstream.MakeBucket(ctx, s.js, s.bucketConfig("receiver_config"))
	if err != nil {
		return nil, err
	}
	var stateStream jetstream.Stream
	s.state, stateStream, err = jsstream.MakeBucket(ctx, s.js, s.bucketConfig("state"))
	return func(ctx, run context.Context) error {
		if err := s.openRegistry(ctx, run, config, stream); err != nil {
			return err
		}
		return s.openOperations(ctx, run, s.state, stateStream)
	}, err
}

func (s *Store) bucketConfig(name string) jetstream.StreamConfig {
	c := s.streamConfig(name)
	c.AllowMsgTTL, c.SubjectDeleteMarkerTTL = true, time.Hour
	return c
}
