package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Registry makes, changes and removes producers, channels, consumers and access tokens.
type Registry struct {
	*core
	store  Stakeholders
	access AccessTokens
	seeded domain.Seed
}

// seed makes what is wanted and is not there. What is there is left alone: it may have
// been changed since.
func (r *Registry) seed(ctx context.Context) error {
	for _, p := range r.seeded.Producers {
		if _, err := r.store.Producer(ctx, p.ID); err == nil {
			continue
		}
		p.Token = cmp.Or(p.Token, domain.NewToken())
		if err := insist(ctx, "producer", p.ID, func(ctx context.Context) error { _, err := r.PutProducer(ctx, p); return err }); err != nil {
			return err
		}
	}
	for _, c := range r.seeded.Channels {
		if _, err := r.store.Channel(ctx, c.ID); err == nil {
			continue
		}
		c.Token = cmp.Or(c.Token, domain.NewToken())
		if err := insist(ctx, "channel", c.ID, func(ctx context.Context) error { _, err := r.PutChannel(ctx, c); return err }); err != nil {
			return err
		}
	}
	for _, c := range r.seeded.Consumers {
		if _, err := r.store.Consumer(ctx, c.Channel, c.ID); err == nil {
			continue
		}
		c.Token = cmp.Or(c.Token, domain.NewToken())
		if err := insist(ctx, "consumer", c.ID, func(ctx context.Context) error { _, err := r.store.SaveConsumer(ctx, c); return err }); err != nil {
			return err
		}
	}
	return nil
}

// seedTimeout bounds one attempt at a write.
const seedTimeout = 2 * time.Second

// insist tries a write again while the store has no answer, as at the start of a cluster. One that was made all the same, or by
// a faster node, is a conflict then, which is passed over.
func insist(ctx context.Context, what, id string, write func(ctx context.Context) error) error {
	for {
		attempt, done := context.WithTimeout(ctx, seedTimeout)
		err := write(attempt)
		done()
		switch noAnswer := errors.Is(err, domain.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded); {
		case noAnswer && ctx.Err() == nil:
		case err == nil || errors.Is(err, domain.ErrConflict):
			return nil
		default:
			return fmt.Errorf("make or change the %s %q as the configuration wants it: %w", what, id, err)
		}
		select {
		case <-time.After(storePause):
		case <-ctx.Done():
		}
	}
}

// PutProducer makes or changes a producer. One that is changed must come as it
// was read. A call that changes nothing writes nothing, but what it finds is on
// disk too when it returns.
func (r *Registry) PutProducer(ctx context.Context, p domain.Producer) (domain.Producer, error) {
	old, err := r.store.Producer(ctx, p.ID)
	if err != nil && !errors.Is(err, domain.ErrNotFound) {
		return p, err
	}
	if p.Token = r.keptToken(old.Token, p.Token); err == nil && old == p {
		return old, r.store.Kept(ctx, old.Revision)
	}
	return r.store.SaveProducer(ctx, p)
}

// PutChannel is PutProducer for a channel.
func (r *Registry) PutChannel(ctx context.Context, c domain.Channel) (domain.Channel, error) {
	old, err := r.store.Channel(ctx, c.ID)
	if err != nil && !errors.Is(err, domain.ErrNotFound) {
		return c, err
	}
	if c.Token = r.keptToken(old.Token, c.Token); err == nil && old == c {
		return old, r.store.Kept(ctx, old.Revision)
	}
	return r.store.SaveChannel(ctx, c)
}

// PutConsumer is PutProducer for a consumer. It checks the signing secret.
func (r *Registry) PutConsumer(ctx context.Context, c domain.Consumer) (domain.Consumer, error) {
	if c.SigningSecret != "" {
		if _, err := r.signer(c.SigningSecret); err != nil {
			return c, fmt.Errorf("%w: signingSecret: %w", domain.ErrInvalid, err)
		}
	}
	if old, err := r.store.Consumer(ctx, c.Channel, c.ID); err == nil && reflect.DeepEqual(old, c) {
		return old, r.store.Kept(ctx, old.Revision)
	}
	return r.store.SaveConsumer(ctx, c)
}

// DeleteConsumer removes a consumer and all of its jobs.
func (r *Registry) DeleteConsumer(ctx context.Context, c domain.Consumer) error {
	return r.store.DeleteConsumer(ctx, c)
}

// PutAccess makes or changes an access token, of which the hash is stored.
func (r *Registry) PutAccess(ctx context.Context, t domain.AccessToken) (domain.AccessToken, error) {
	t.Token = domain.HashToken(t.Token)
	return r.access.SaveAccess(ctx, t)
}

// DeleteAccess removes an access token.
func (r *Registry) DeleteAccess(ctx context.Context, t domain.AccessToken) error {
	return r.access.DeleteAccess(ctx, t)
}

// RoleOf is the highest role that a token has in a channel. An error says that it is not known whether the token has
// one: another node may have made it, and the store cannot be asked.
func (r *Registry) RoleOf(channel, token string) (domain.Role, error) {
	best := domain.RoleNone
	if token == "" {
		return best, nil
	}
	for _, t := range r.access.Accesses(channel) {
		if t.Role > best && domain.TokenMatches(t.Token, token) {
			best = t.Role
		}
	}
	if best == domain.RoleNone && r.rules.Shared {
		return best, r.health.Ready()
	}
	return best, nil
}

// keptToken is a token as it is to be stored in place of an old one: that one as it is, if it is the same.
func (r *Registry) keptToken(old, token string) string {
	switch {
	case domain.TokenMatches(old, token) && (domain.Hashed(old) || !r.rules.HashTokens):
		return old
	case r.rules.HashTokens && !domain.Hashed(token):
		return domain.HashToken(token)
	}
	return token
}

// hashTokens replaces tokens of producers and channels that were stored plain, if they are to be hashed. Whoever changes one
// at the same time has it hashed too.
func (r *Registry) hashTokens(ctx context.Context) error {
	if !r.rules.HashTokens {
		return nil
	}
	for _, p := range r.store.Producers() {
		if domain.Hashed(p.Token) {
			continue
		}
		if err := insist(ctx, "producer", p.ID, func(ctx context.Context) error { _, err := r.PutProducer(ctx, p); return err }); err != nil {
			return err
		}
	}
	for _, c := range r.store.Channels() {
		if domain.Hashed(c.Token) {
			continue
		}
		if err := insist(ctx, "channel", c.ID, func(ctx context.Context) error { _, err := r.PutChannel(ctx, c); return err }); err != nil {
			return err
		}
	}
	return nil
}
