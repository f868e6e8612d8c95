package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// EnsureConsumer makes a durable consumer, or changes it to what it should be. On a server of its own a process makes
// it anew: what the process before it had not acknowledged is then delivered at once, not after AckWait. So its state
// need not be written to disk there.
func (s *Queues) EnsureConsumer(ctx context.Context, stream string, cfg jetstream.ConsumerConfig, anew bool) error {
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
func (s *Queues) ResetConsumers(ctx context.Context, q Queue) error {
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
