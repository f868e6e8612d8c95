package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Seed makes what is wanted and is not there. What is there is left alone, as it may have been changed since, but that tokens are hashed
// which are to be.
func (d *Directory) Seed(ctx context.Context, wanted domain.Seed) error {
	if err := seed(ctx, d.Producers, "producer", wanted.Producers); err != nil {
		return err
	}
	if err := seed(ctx, d.Channels, "channel", wanted.Channels); err != nil {
		return err
	}
	if err := seed(ctx, d.Consumers, "consumer", wanted.Consumers); err != nil || !d.HashTokens {
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
		k.base(&t).Token = cmp.Or(k.base(&t).Token, domain.NewToken())
		if err := insist(ctx, k, what, t); err != nil {
			return err
		}
	}
	return nil
}

// hashTokens replaces tokens that were stored plain. Whoever changes an object at the same time has its token hashed too.
func hashTokens[T any](ctx context.Context, k *Kind[T], what string) error {
	for _, t := range k.List("") {
		if domain.Hashed(k.base(&t).Token) {
			continue
		}
		if err := insist(ctx, k, what, t); err != nil {
			return err
		}
	}
	return nil
}

const (
	// seedTimeout bounds one attempt at a write, and seedPause is the wait before the next.
	seedTimeout = 2 * time.Second
	seedPause   = 250 * time.Millisecond
)

// insist tries to put an object again while the store has no answer, as at the start of a cluster. One that was put all the same, or by
// a faster node, is a conflict then, which is passed over.
func insist[T any](ctx context.Context, k *Kind[T], what string, t T) error {
	for {
		attempt, done := context.WithTimeout(ctx, seedTimeout)
		_, err := k.Put(attempt, t)
		done()
		switch noAnswer := errors.Is(err, domain.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded); {
		case noAnswer && ctx.Err() == nil:
		case err == nil || errors.Is(err, domain.ErrConflict):
			return nil
		default:
			return fmt.Errorf("make or change the %s %q as the configuration wants it: %w", what, k.base(&t).ID, err)
		}
		select {
		case <-time.After(seedPause):
		case <-ctx.Done():
		}
	}
}

// RoleOf is the highest role that a token has in a channel. An error says that it is not known whether the token has
// one: another node may have made it, and the store cannot be asked.
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

// keptToken is a token as it is to be stored in place of an old one: that one as it is, if it is the same.
func (d *Directory) keptToken(old, token string) string {
	switch {
	case domain.TokenMatches(old, token) && (domain.Hashed(old) || !d.HashTokens):
		return old
	case d.HashTokens && !domain.Hashed(token):
		return domain.HashToken(token)
	}
	return token
}
