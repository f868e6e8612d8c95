package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/registry"
	"github.com/jetpull/jetpull/internal/webhook"
)

// stored is the form of every object in the bucket. The first revision of a key is the object's number. It is not known before
// the write, so the first value carries 0, which means "this revision".
type stored struct {
	Number    uint32
	ID        string
	Name      string
	Token     string
	CreatedAt time.Time
	ChangedAt time.Time

	Channel       string              `json:",omitempty"`
	CallbackURL   string              `json:",omitempty"`
	Type          domain.ConsumerType `json:",omitempty"`
	Since         uint64              `json:",omitempty"`
	Concurrency   int                 `json:",omitempty"`
	RateLimit     float64             `json:",omitempty"`
	SigningSecret string              `json:",omitempty"`
	Headers       map[string]string   `json:",omitempty"`
	Pause         domain.Pause        `json:",omitzero"`
	FailingSince  time.Time           `json:",omitzero"`

	EventTypes string               `json:",omitempty"`
	Filters    []domain.EventFilter `json:",omitempty"`
	Role       domain.Role          `json:",omitempty"`
}

// key returns a key without the prefix of its kind.
func key(id registry.ID) string {
	if id.Group == "" {
		return domain.SubjectToken(id.Name)
	}
	return domain.SubjectToken(id.Group) + "." + domain.SubjectToken(id.Name)
}

func (k *Kind[T]) encode(t T) any {
	b := k.base(&t)
	s := stored{Number: b.Number, ID: b.ID, Name: b.Name, Token: b.Token, CreatedAt: b.CreatedAt, ChangedAt: b.ChangedAt, Channel: k.id(&t).Group}
	if k.write != nil {
		k.write(t, &s)
	}
	return s
}

func (k *Kind[T]) decode(e registry.Entry) (id registry.ID, t T, err error) {
	var s stored
	err = json.Unmarshal(e.Value, &s)
	b := domain.Stakeholder{ID: s.ID, Name: s.Name, Token: s.Token, CreatedAt: s.CreatedAt, ChangedAt: s.ChangedAt, Number: s.Number}
	*k.base(&t) = b.At(e.Revision)
	if k.channel != nil {
		*k.channel(&t) = s.Channel
	}
	if k.read != nil {
		k.read(s, &t)
	}
	return k.id(&t), t, err
}

func readConsumer(s stored, c *domain.Consumer) {
	c.CallbackURL, c.Type, c.Since = s.CallbackURL, s.Type, s.Since
	c.Concurrency, c.RateLimit, c.SigningSecret = s.Concurrency, s.RateLimit, s.SigningSecret
	c.Headers, c.Pause, c.FailingSince = s.Headers, s.Pause, s.FailingSince
	c.EventTypes, c.Filters = s.EventTypes, s.Filters
}

func writeConsumer(c domain.Consumer, s *stored) {
	s.CallbackURL, s.Type, s.Since = c.CallbackURL, c.Type, c.Since
	s.Concurrency, s.RateLimit, s.SigningSecret = c.Concurrency, c.RateLimit, c.SigningSecret
	s.Headers, s.Pause, s.FailingSince = c.Headers, c.Pause, c.FailingSince
	s.EventTypes, s.Filters = c.EventTypes, c.Filters
}

func checkSecret(_ domain.Consumer, c *domain.Consumer) error {
	if c.SigningSecret == "" {
		return nil
	}
	if _, err := webhook.NewSigner(c.SigningSecret); err != nil {
		return fmt.Errorf("%w: signingSecret: %w", domain.ErrInvalid, err)
	}
	return nil
}

// begin sets the sequence after which a new consumer gets jobs. The messages up to that sequence must be on disk first. Otherwise
// a crash could lose them, their sequences would be assigned again, and the consumer would miss the new messages. The same holds
// for a change of its event types.
func (d *Directory) begin(ctx context.Context, c *domain.Consumer) error {
	if c.Revision != 0 && c.EventTypes == inForce(c.Filters) {
		return nil
	}
	first, last, err := d.Messages.Stored(ctx)
	if err != nil {
		return err
	}
	if c.Revision == 0 {
		c.Since = last
	}
	c.Filters, err = filtered(*c, first, last)
	return err
}

// inForce returns the event types of the last filter.
func inForce(filters []domain.EventFilter) string {
	if len(filters) == 0 {
		return ""
	}
	return filters[len(filters)-1].Types
}

// maxFilters bounds the changes of a consumer's event types that still apply to stored messages.
const maxFilters = 100

// filtered appends the event types that a consumer gets from now on to its filters, and drops the filters that no stored message
// is subject to any more.
func filtered(c domain.Consumer, first, last uint64) ([]domain.EventFilter, error) {
	filters := slices.Clone(c.Filters)
	if c.EventTypes != inForce(filters) {
		filters = append(filters, domain.EventFilter{Since: last, Types: c.EventTypes})
	}
	for len(filters) > 1 && filters[1].Since+1 <= first {
		filters = filters[1:]
	}
	if len(filters) > maxFilters {
		return nil, fmt.Errorf("%w: eventTypes: changed %d times since the oldest message that is kept: wait until it is pruned", domain.ErrInvalid, maxFilters)
	}
	return filters, nil
}
