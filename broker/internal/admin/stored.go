package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/registry"
)

// Seed creates the given objects that do not exist. It does not change existing objects, which may have been edited since, except that it hashes
// their plain tokens if HashTokens is set.
func (d *Directory) Seed(ctx context.Context, producers []domain.Producer, channels []domain.Channel, consumers []domain.Consumer) error {
	if err := seed(ctx, d.Producers, "producer", append(d.Producers.List(""), producers...)); err != nil {
		return err
	}
	if err := seed(ctx, d.Channels, "channel", append(d.Channels.List(""), channels...)); err != nil {
		return err
	}
	return seed(ctx, d.Consumers, "consumer", consumers)
}

func seed[T any](ctx context.Context, k *Kind[T], what string, wanted []T) error {
	for _, t := range wanted {
		if stored, err := k.table.Find(ctx, k.id(&t)); err == nil {
			if domain.Hashed(k.Base(&stored).Token) || !k.d.HashTokens {
				continue
			}
			t = stored
		}
		k.Base(&t).Token = cmp.Or(k.Base(&t).Token, domain.NewToken())
		// Insist retries while the store does not answer, as at the start of a cluster. A conflict is not an error: an earlier attempt or another
		// node has created the object.
		err := jsstream.Insist(ctx, func(ctx context.Context) error {
			if _, err := k.Put(ctx, t); !errors.Is(err, domain.ErrConflict) {
				return err
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("make or change the %s %q as the configuration wants it: %w", what, k.Base(&t).ID, err)
		}
	}
	return nil
}

// RoleOf returns the highest role that a token has in a channel. It returns an error if the role is unknown: another node may have created the token,
// and the store cannot be read.
func (d *Directory) RoleOf(channel, token string) (domain.Role, error) {
	best := domain.RoleNone
	if token == "" || channel == "" {
		return best, nil
	}
	for _, t := range d.Accesses.table.In(channel) {
		if t.Role > best && domain.TokenMatches(t.Token, token) {
			best = min(t.Role, domain.RoleManage) // another build may have stored a role that this one does not know
		}
	}
	if best == domain.RoleNone && d.Shared {
		return best, d.Ready()
	}
	return best, nil
}

// sameToken returns the token to store in place of old. It returns old unchanged if both are the same token.
func (d *Directory) sameToken(old, token string) string {
	switch {
	case domain.TokenMatches(old, token) && (domain.Hashed(old) || !d.HashTokens):
		return old
	case d.HashTokens:
		return domain.HashToken(token)
	}
	return token
}

// key returns the key of an object, without the prefix of its kind.
func key(id registry.ID) string {
	if id.Group == "" {
		return domain.SubjectToken(id.Name)
	}
	return domain.SubjectToken(id.Group) + "." + domain.SubjectToken(id.Name)
}

// decode reads an entry. It refuses an entry that names another object than its key does, because it would replace that object.
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

// begin sets the sequence after which a new consumer gets jobs. The messages up to that sequence must be on disk first. Otherwise a crash could lose
// them and reassign their sequences, and the consumer would miss the new messages. The same applies to a change of its event types.
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

// filtered appends the consumer's new event types to its filters. It drops the filters that no longer apply to any stored message.
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
