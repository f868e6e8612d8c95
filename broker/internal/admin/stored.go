package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/registry"
)

// key returns a key without the prefix of its kind.
func key(id registry.ID) string {
	if id.Group == "" {
		return domain.SubjectToken(id.Name)
	}
	return domain.SubjectToken(id.Group) + "." + domain.SubjectToken(id.Name)
}

// decode reads an entry. One that names another object than its key is not the broker's: it would take the place of that object.
func (k *Kind[T]) decode(e registry.Entry) (id registry.ID, t T, err error) {
	err = json.Unmarshal(e.Value, &t)
	b := k.Base(&t)
	*b = b.At(e.Revision)
	id = k.id(&t)
	if _, named, _ := strings.Cut(e.Key, "."); err == nil && named != key(id) {
		err = fmt.Errorf("it names %q of %q", id.Name, id.Group)
	}
	return id, t, err
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
		return nil, fmt.Errorf("%w: eventTypes: changed %d times since the oldest message that is kept: wait until it is pruned", domain.ErrInvalid,
			maxFilters)
	}
	return filters, nil
}
