package store

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/jsstream"
)

// base is what all parts of the store have: the connection, the clock, and how streams are made and written to.
type base struct {
	cfg     Config
	nc      *nats.Conn
	js      jetstream.JetStream
	log     *slog.Logger
	state   jetstream.KeyValue // rate windows and operations
	clock   clock
	reader  *jsstream.Reader
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
		if jsstream.Refused(err) {
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
