package work

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Broadcasts stores messages to broadcast now or later.
type Broadcasts struct{ *core }

// Broadcast stores a message for every consumer of its channel. It generates the ID if there is none.
func (b *Broadcasts) Broadcast(ctx context.Context, m domain.Message) (domain.Message, error) {
	m, err := b.prepare(m)
	if err == nil {
		m, err = b.Messages.Append(ctx, m)
	}
	b.Metrics.broadcast(err)
	return m, err
}

// latestSchedule is close to the latest time that fits into the server's 64-bit nanoseconds. The server takes a later time for one in the past.
var latestSchedule = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)

// Schedule stores a message to broadcast at a later time.
func (b *Broadcasts) Schedule(ctx context.Context, m domain.Message, at time.Time) (domain.Message, error) {
	if at.Before(b.Now().Add(b.Rules.MinDelay)) {
		return m, domain.ErrScheduleTooSoon
	}
	if at.After(latestSchedule) {
		return m, fmt.Errorf("%w: scheduled for %s: the latest time is %s", domain.ErrInvalid, at.Format(time.RFC3339), latestSchedule.Format(time.RFC3339))
	}
	m, err := b.prepare(m)
	if err == nil {
		// The time is rounded up, because the server's schedule has whole seconds.
		err = b.Messages.Schedule(ctx, m, at.Add(time.Second-1).Truncate(time.Second))
	}
	b.Metrics.broadcast(err)
	if errors.Is(err, domain.ErrDuplicateMessage) {
		err = domain.ErrDuplicateScheduled
	}
	return m, err
}

func (b *Broadcasts) prepare(m domain.Message) (domain.Message, error) {
	if err := b.Full(); err != nil {
		return m, err
	}
	if m.ID == "" {
		m.ID = domain.NewID()
	}
	if m.ID == "/" { // no path can address it: http.ServeMux takes such a segment for the end
		return m, fmt.Errorf("%w: message ID %q cannot be a part of a path", domain.ErrInvalid, m.ID)
	}
	if len(m.Payload) == 0 {
		return m, fmt.Errorf("%w: the body is empty: a message needs a payload", domain.ErrInvalid)
	}
	if limit := b.Messages.MaxPayload(); len(m.Payload) > limit {
		return m, fmt.Errorf("%w: the payload has %d bytes, at most %d are allowed", domain.ErrTooLarge, len(m.Payload), limit)
	}
	for what, text := range map[string]string{"message ID": m.ID, "content type": m.ContentType} {
		if err := checkText(text, domain.MaxText); err != nil {
			return m, fmt.Errorf("%w: %s: %w", domain.ErrInvalid, what, err)
		}
	}
	for name, value := range m.Headers {
		if err := checkText(name+value, domain.MaxLongText); err != nil {
			return m, fmt.Errorf("%w: metadata header %.64q: %w", domain.ErrInvalid, name, err)
		}
	}
	if err := domain.CheckEventType(m.EventType); err != nil {
		return m, fmt.Errorf("%w: %w", domain.ErrInvalid, err)
	}
	return m, nil
}

// checkText refuses a text that is too long or that JSON cannot carry unchanged.
func checkText(text string, limit int) error {
	if !utf8.ValidString(text) {
		return errors.New("it is not UTF-8")
	}
	return domain.CheckSize(text, limit)
}
