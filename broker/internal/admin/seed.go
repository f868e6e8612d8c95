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
	if err := seed(ctx, d.Producers, "producer", producers); err != nil {
		return err
	}
	if err := seed(ctx, d.Channels, "channel", channels); err != nil {
		return err
	}
	if err := seed(ctx, d.Consumers, "consumer", consumers); err != nil || !d.HashTokens {
		return err
	}
	if err := hashTokens(ctx, d.Producers, "producer"); err != nil {
		return err
	}
	return hashTokens(ctx, d.Channels, "channel")
}

func seed[T any](ctx context.Context, k *Kind[T], what string, wanted []T) error {
	for _, t := range wanted {
		if _, err := k.table.Find(ctx, k.id(&t)); err == nil {
			continue
		}
		k.Base(&t).Token = cmp.Or(k.Base(&t).Token, domain.NewToken())
		if err := insist(ctx, k, what, t); err != nil {
			return err
		}
	}
	return nil
}

// hashTokens replaces plain stored tokens by hashes. It passes over conflicts: a concurrent change hashes the token too.
func hashTokens[T any](ctx context.Context, k *Kind[T], what string) error {
	for _, t := range k.List("") {
		if domain.Hashed(k.Base(&t).Token) {
			continue
		}
		if err := insist(ctx, k, what, t); err != nil {
			return err
		}
	}
	return nil
}

// insist repeats a put while the store does not answer, as at the start of a cluster. A conflict is passed over: an earlier
// attempt or another node has created the object.
func insist[T any](ctx context.Context, k *Kind[T], what string, t T) error {
	err := jsstream.Insist(ctx, func(ctx context.Context) error {
		_, err := k.Put(ctx, t)
		if errors.Is(err, domain.ErrConflict) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("make or change the %s %q as the configuration wants it: %w", what, k.Base(&t).ID, err)
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
