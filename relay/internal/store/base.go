package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// base is what all parts of the store have: the connection, the clock, and how streams are made and written to.
type base struct {
	cfg     Config
	nc      *nats.Conn
	js      jetstream.JetStream
	log     *slog.Logger
	state   jetstream.KeyValue // rate windows and operations
	clock   clock
	running sync.WaitGroup
}

// JetStream is what workers subscribe with.
func (s *base) JetStream() jetstream.JetStream { return s.js }

// Partitions is how many partitions messages from senders have.
func (s *base) Partitions() int { return s.cfg.Partitions }

// Embedded tells whether this process alone uses the server.
func (s *base) Embedded() bool { return s.cfg.Embedded }

// StreamName is the name of a queue's stream.
func (s *base) StreamName(q Queue) string { return s.cfg.Name + "_" + string(q) }

func (s *base) subject(q Queue, tokens ...string) string {
	subject := s.cfg.Name + "." + string(q)
	for _, token := range tokens {
		subject += "." + token
	}
	return subject
}

// streamConfig is what all streams have.
func (s *base) streamConfig(name string, subjects ...string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: s.cfg.Name + "_" + name, Subjects: subjects, Storage: s.cfg.Storage, Replicas: s.cfg.Replicas,
		Duplicates: duplicates,
		// Where an operator limits it, a full stream refuses what comes: nothing that was accepted is dropped.
		Discard: jetstream.DiscardNew,
		// A follower's answer may be old, and decisions are made on what is read.
		AllowDirect: s.cfg.Replicas == 1,
	}
}

// createStream tries until ctx ends: two processes that start together, or a cluster without a leader, are no errors. It
// leaves the limits of a stream that is there to the operator, and refuses to take copies of it away, as a process would that
// was started without --replicas.
func (s *base) createStream(ctx context.Context, c jetstream.StreamConfig) (stream jetstream.Stream, err error) {
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
func (s *base) createBucket(ctx context.Context, c jetstream.StreamConfig) (kv jetstream.KeyValue, err error) {
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

func (s *base) persist(ctx context.Context, try func(context.Context) error) error {
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

// publish stores a message and returns its sequence. ErrConflict: an expectation of it was not met.
func (s *base) publish(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (uint64, error) {
	future, err := s.js.PublishMsgAsync(m, opts...)
	if err != nil {
		return 0, fmt.Errorf("%w: publish to %s: %w", ErrUnavailable, m.Subject, err)
	}
	return s.published(ctx, m, future)
}

// published waits for the end of a publish.
func (s *base) published(ctx context.Context, m *nats.Msg, future jetstream.PubAckFuture) (uint64, error) {
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
func (s *base) MaxPayload() int { return max(1, int(s.nc.MaxPayload())-EntryRoom) }
