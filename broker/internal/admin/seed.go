package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/jsstream"
)

// Seed creates the wanted objects that do not exist. Existing ones are left unchanged, as they may have been edited since, except
// that plain tokens are hashed if HashTokens is set.
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
		// It is repeated while the store does not answer, as at the start of a cluster. A conflict is passed over: an earlier attempt or
		// another node has created the object.
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

// RoleOf returns the highest role that a token has in a channel. An error says that the role is not known: another node may have
// created the token, and the store cannot be read.
func (d *Directory) RoleOf(channel, token string) (domain.Role, error) {
	best := domain.RoleNone
	if token == "" {
		return best, nil
	}
	for _, t := range d.Accesses.table.In(channel) {
		if t.Role > best && domain.TokenMatches(t.Token, token) {
			best = t.Role
		}
	}
	if best == domain.RoleNone && d.Shared {
		return best, d.Ready()
	}
	return best, nil
}

// sameToken returns the token to store in place of an old one: the old one unchanged, if both are the same token.
func (d *Directory) sameToken(old, token string) string {
	switch {
	case domain.TokenMatches(old, token) && (domain.Hashed(old) || !d.HashTokens):
		return old
	case d.HashTokens && !domain.Hashed(token):
		return domain.HashToken(token)
	}
	return token
}
