package broker

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Broadcast stores a message for every consumer of its channel. Without an ID
// it gets one.
func (b *Broker) Broadcast(ctx context.Context, m Message) (Message, error) {
	m, err := b.prepare(m)
	if err != nil {
		return m, err
	}
	m, err = b.store.Append(ctx, m)
	b.metrics.broadcast(err)
	return m, err
}

// Schedule stores a message that is broadcast at a later time.
func (b *Broker) Schedule(ctx context.Context, m Message, at time.Time) (Message, error) {
	if at.Before(time.Now().Add(b.cfg.Scheduler.MinDelay)) {
		return m, ErrScheduleTooSoon
	}
	m, err := b.prepare(m)
	if err != nil {
		return m, err
	}
	// The server's schedule has whole seconds; a later one is never too early.
	err = b.store.Schedule(ctx, m, at.Add(time.Second-1).Truncate(time.Second))
	b.metrics.broadcast(err)
	if errors.Is(err, ErrDuplicateMessage) {
		err = ErrDuplicateScheduled
	}
	return m, err
}

// CancelScheduled takes a message back that waits for its time. It fails with
// ErrNotFound when there is none.
func (b *Broker) CancelScheduled(ctx context.Context, channel, id string) error {
	return b.store.CancelScheduled(ctx, channel, id)
}

func (b *Broker) prepare(m Message) (Message, error) {
	if err := b.Room(); err != nil {
		return m, err
	}
	if m.ID == "" {
		m.ID = NewID()
	}
	if len(m.Payload) == 0 {
		return m, fmt.Errorf("%w: the body is empty: a message needs a payload", ErrInvalid)
	}
	if limit := b.store.MaxPayload(); len(m.Payload) > limit {
		return m, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, len(m.Payload), limit)
	}
	for name, value := range m.Headers {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return m, fmt.Errorf("%w: metadata header %q is not UTF-8", ErrInvalid, name)
		}
	}
	if !utf8.ValidString(m.ID) {
		return m, fmt.Errorf("%w: message ID %q is not UTF-8", ErrInvalid, m.ID)
	}
	if err := checkEventType(m.EventType); err != nil {
		return m, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if !utf8.ValidString(m.ContentType) {
		return m, fmt.Errorf("%w: content type %q is not UTF-8", ErrInvalid, m.ContentType)
	}
	return m, nil
}
