package jsstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/streams"
)

// takeConsumer is called with r.mu held.
func (r *registry) takeConsumer(k string, revision uint64, s *stored) (notify []func()) {
	old := r.byNumber[r.numbers[k]]
	var c domain.Consumer
	if s != nil {
		c = s.consumer(revision)
	}
	if old.Number != 0 && old.Number != c.Number {
		// Deleted, or deleted and made again before this node saw it.
		delete(r.byNumber, old.Number)
		delete(r.consumers[old.Channel], old.ID)
		delete(r.numbers, k)
		r.replays.forget(old.Number)
		notify = append(notify, func() { r.changed(old, true) })
	}
	if s != nil {
		if r.consumers[c.Channel] == nil {
			r.consumers[c.Channel] = map[string]domain.Consumer{}
		}
		r.consumers[c.Channel][c.ID] = c
		r.byNumber[c.Number] = c
		r.numbers[k] = c.Number
		notify = append(notify, func() { r.changed(c, false) })
	}
	return notify
}

// Consumer implements domain.Directory.
func (s *directory) Consumer(ctx context.Context, channel, id string) (domain.Consumer, error) {
	return lookup(ctx, s.base, consumerKey(channel, id), s.reg.consumer(channel, id))
}

// RefreshConsumer implements domain.Directory.
func (s *directory) RefreshConsumer(ctx context.Context, channel, id string) (domain.Consumer, error) {
	return refresh(ctx, s.base, consumerKey(channel, id), s.reg.consumer(channel, id))
}

// ConsumerByNumber implements domain.Directory.
func (s *directory) ConsumerByNumber(number uint32) (domain.Consumer, bool) {
	return s.reg.numbered(number)
}

// Consumers implements domain.Directory.
func (s *directory) Consumers(channel string) []domain.Consumer {
	s.reg.mu.RLock()
	defer s.reg.mu.RUnlock()
	var items []domain.Consumer
	if channel == "" {
		items = slices.Collect(maps.Values(s.reg.byNumber))
	} else {
		items = slices.Collect(maps.Values(s.reg.consumers[channel]))
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
		state, err := streams.AskState(ctx, s.messageStream)
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
	value := storedConsumer(c)
	revision, err := s.save(ctx, consumerKey(c.Channel, c.ID), value, c.Revision)
	return value.consumer(revision), err
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
	replayed := s.reg.lastReplay(c.Number).Number > 0
	if err := s.removeConsumer(ctx, c); err != nil {
		return err
	}
	if err := s.registryWrites.Durable(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, streams.CommitTimeout)
	defer cancel()
	if err := s.attemptStream.Purge(ctx, jetstream.WithPurgeSubject(s.cfg.attemptSubject("*", strconv.FormatUint(uint64(c.Number), 10), "*"))); err != nil {
		return fmt.Errorf("%w: delete the attempts of consumer %s: %w", domain.ErrUnavailable, c.ID, err)
	}
	if err := s.jobStream.Purge(ctx, jetstream.WithPurgeSubject(s.cfg.jobSubject(c.Number, "*"))); err != nil {
		return fmt.Errorf("%w: delete the jobs of consumer %s: %w", domain.ErrUnavailable, c.ID, err)
	}
	if replayed {
		if err := s.deleteReplays(ctx, c.Number); err != nil {
			return fmt.Errorf("%w: delete the replays of consumer %s: %w", domain.ErrUnavailable, c.ID, err)
		}
	}
	return nil
}

func (s *directory) removeConsumer(ctx context.Context, c domain.Consumer) error {
	ctx, cancel := context.WithTimeout(ctx, streams.CommitTimeout)
	defer cancel()
	return s.reg.remove(ctx, consumerKey(c.Channel, c.ID), c.Revision)
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
