package jsstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/registry"
)

func consumerID(channel, id string) registry.ID { return registry.ID{Group: channel, Name: id} }

// Consumer implements domain.Directory.
func (s *directory) Consumer(ctx context.Context, channel, id string) (domain.Consumer, error) {
	return s.reg.consumers.Find(ctx, consumerID(channel, id))
}

// RefreshConsumer implements domain.Directory.
func (s *directory) RefreshConsumer(ctx context.Context, channel, id string) (domain.Consumer, error) {
	return refresh(ctx, s.reg.consumers, consumerID(channel, id))
}

// ConsumerByNumber implements domain.Directory.
func (s *directory) ConsumerByNumber(number uint32) (domain.Consumer, bool) {
	return s.reg.numbered(number)
}

// Consumers implements domain.Directory.
func (s *directory) Consumers(channel string) []domain.Consumer {
	items := s.reg.consumers.In(channel)
	if channel == "" {
		items = s.reg.consumers.All()
	}
	return sortedByNumber(items, func(c domain.Consumer) uint32 { return c.Number })
}

// SaveConsumer implements domain.Registrar. A new consumer gets the jobs of the
// messages that are stored from now on. What is stored before has to be on disk
// when the consumer is: else its sequences could be given away again, to
// messages that the consumer would then not get. The same goes for a change of its
// event types.
func (s *directory) SaveConsumer(ctx context.Context, c domain.Consumer) (domain.Consumer, error) {
	if c.Revision == 0 || c.EventTypes != inForce(c.Filters) {
		state, err := jsstream.AskState(ctx, s.messageStream)
		if err != nil {
			return c, err
		}
		if err := s.messageWrites.DurableAt(ctx, state.LastSeq); err != nil {
			return c, err
		}
		if c.Revision == 0 {
			c.Since = state.LastSeq
		}
		if c.Filters, err = filtered(c, state); err != nil {
			return c, err
		}
	}
	c.Stakeholder = stamp(c.Stakeholder)
	revision, err := save(ctx, s, s.reg.consumers, consumerID(c.Channel, c.ID), c, c.Revision)
	c.Stakeholder = c.At(revision)
	return c, err
}

// DeleteConsumer implements domain.Registrar. That the consumer is gone is on disk
// before its records are deleted: one that came back without them would be sent
// everything again.
func (s *directory) DeleteConsumer(ctx context.Context, c domain.Consumer) error {
	if err := s.registryWrites.Failure(); err != nil {
		return err
	}
	// Who asked may hang up; nobody can ask again for what is left to do. For the
	// same reason a slow disk takes none of the time that is for the rest.
	ctx = context.WithoutCancel(ctx)
	replayed := len(s.reg.replays.In(replayGroup(c.Number))) > 0
	if err := s.removeConsumer(ctx, c); err != nil {
		return err
	}
	if err := s.registryWrites.Durable(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, jsstream.CommitTimeout)
	defer cancel()
	if err := s.attemptStream.Purge(ctx, jetstream.WithPurgeSubject(s.cfg.attemptSubject("*", strconv.FormatUint(uint64(c.Number), 10), "*"))); err != nil {
		return fmt.Errorf("%w: delete the attempts of consumer %s: %w", domain.ErrUnavailable, c.ID, err)
	}
	if err := s.jobStream.Purge(ctx, jetstream.WithPurgeSubject(s.cfg.jobSubject(c.Number, "*"))); err != nil {
		return fmt.Errorf("%w: delete the jobs of consumer %s: %w", domain.ErrUnavailable, c.ID, err)
	}
	if replayed {
		if err := s.reg.replays.Purge(ctx, replayGroup(c.Number)); err != nil {
			return fmt.Errorf("%w: delete the replays of consumer %s: %w", domain.ErrUnavailable, c.ID, err)
		}
	}
	return nil
}

func (s *directory) removeConsumer(ctx context.Context, c domain.Consumer) error {
	ctx, cancel := context.WithTimeout(ctx, jsstream.CommitTimeout)
	defer cancel()
	return s.reg.consumers.Delete(ctx, consumerID(c.Channel, c.ID), c.Revision, 0)
}

// inForce are the event types that the last of some filters says.
func inForce(filters []domain.EventFilter) string {
	if len(filters) == 0 {
		return ""
	}
	return filters[len(filters)-1].Types
}

// maxFilters bounds the changes of a consumer's event types while messages from before them are kept.
const maxFilters = 100

// filtered adds the event types that a consumer is to have from now on to its filters, and leaves out those that no
// stored message is under any more.
func filtered(c domain.Consumer, state jetstream.StreamState) ([]domain.EventFilter, error) {
	filters := slices.Clone(c.Filters)
	if c.EventTypes != inForce(filters) {
		filters = append(filters, domain.EventFilter{Since: state.LastSeq, Types: c.EventTypes})
	}
	for len(filters) > 1 && filters[1].Since+1 <= state.FirstSeq {
		filters = filters[1:]
	}
	if len(filters) > maxFilters {
		return nil, fmt.Errorf("%w: eventTypes: changed %d times since the oldest message that is kept: wait until it is pruned", domain.ErrInvalid, maxFilters)
	}
	return filters, nil
}
