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

// seed makes what is wanted and is not there. What is there is left alone: it may have
// been changed since.
func (b *Broker) seed(ctx context.Context) error {
	for _, p := range b.seeded.Producers {
		if _, ok := b.store.Producer(p.ID); ok {
			continue
		}
		p.Token = cmp.Or(p.Token, domain.NewToken())
		err := insist(ctx, func(ctx context.Context) error { _, err := b.PutProducer(ctx, p); return err })
		if err := seeded("producer", p.ID, err); err != nil {
			return err
		}
	}
	for _, c := range b.seeded.Channels {
		if _, ok := b.store.Channel(c.ID); ok {
			continue
		}
		c.Token = cmp.Or(c.Token, domain.NewToken())
		err := insist(ctx, func(ctx context.Context) error { _, err := b.PutChannel(ctx, c); return err })
		if err := seeded("channel", c.ID, err); err != nil {
			return err
		}
	}
	for _, c := range b.seeded.Consumers {
		if _, ok := b.store.Consumer(c.Channel, c.ID); ok {
			continue
		}
		c.Token = cmp.Or(c.Token, domain.NewToken())
		err := insist(ctx, func(ctx context.Context) error { _, err := b.store.SaveConsumer(ctx, c); return err })
		if err := seeded("consumer", c.ID, err); err != nil {
			return err
		}
	}
	return nil
}

// seedTimeout bounds one attempt at a write.
const seedTimeout = 2 * time.Second

// insist tries a write again while the store has no answer, as at the start of a
// cluster. One that was made all the same is a conflict then.
func insist(ctx context.Context, write func(ctx context.Context) error) error {
	for {
		attempt, done := context.WithTimeout(ctx, seedTimeout)
		err := write(attempt)
		done()
		if ctx.Err() != nil || !errors.Is(err, domain.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		select {
		case <-time.After(storePause):
		case <-ctx.Done():
		}
	}
}

// seeded passes over the case that another node was faster.
func seeded(what, id string, err error) error {
	if err == nil || errors.Is(err, domain.ErrConflict) {
		return nil
	}
	return fmt.Errorf("make or change the %s %q as the configuration wants it: %w", what, id, err)
}

// PutProducer makes or changes a producer. One that is changed must come as it
// was read. A call that changes nothing writes nothing, but what it finds is on
// disk too when it returns.
func (b *Broker) PutProducer(ctx context.Context, p domain.Producer) (domain.Producer, error) {
	old, ok := b.store.Producer(p.ID)
	if p.Token = b.keptToken(old.Token, p.Token); ok && old == p {
		return old, b.store.Kept(ctx, old.Revision)
	}
	return b.store.SaveProducer(ctx, p)
}

// PutChannel is PutProducer for a channel.
func (b *Broker) PutChannel(ctx context.Context, c domain.Channel) (domain.Channel, error) {
	old, ok := b.store.Channel(c.ID)
	if c.Token = b.keptToken(old.Token, c.Token); ok && old == c {
		return old, b.store.Kept(ctx, old.Revision)
	}
	return b.store.SaveChannel(ctx, c)
}

// PutConsumer is PutProducer for a consumer. It checks the signing secret.
func (b *Broker) PutConsumer(ctx context.Context, c domain.Consumer) (domain.Consumer, error) {
	if c.SigningSecret != "" {
		if _, err := b.signer(c.SigningSecret); err != nil {
			return c, fmt.Errorf("%w: signingSecret: %w", domain.ErrInvalid, err)
		}
	}
	if old, ok := b.store.Consumer(c.Channel, c.ID); ok && reflect.DeepEqual(old, c) {
		return old, b.store.Kept(ctx, old.Revision)
	}
	return b.store.SaveConsumer(ctx, c)
}

// DeleteConsumer removes a consumer and all of its jobs.
func (b *Broker) DeleteConsumer(ctx context.Context, c domain.Consumer) error {
	return b.store.DeleteConsumer(ctx, c)
}

// PutAccess makes or changes an access token, of which the hash is stored.
func (b *Broker) PutAccess(ctx context.Context, t domain.AccessToken) (domain.AccessToken, error) {
	t.Token = domain.HashToken(t.Token)
	return b.store.SaveAccess(ctx, t)
}

// DeleteAccess removes an access token.
func (b *Broker) DeleteAccess(ctx context.Context, t domain.AccessToken) error {
	return b.store.DeleteAccess(ctx, t)
}

// RoleOf is the highest role that a token has in a channel.
func (b *Broker) RoleOf(channel, token string) domain.Role {
	best := domain.RoleNone
	if token == "" {
		return best
	}
	for _, t := range b.store.Accesses(channel) {
		if t.Role > best && domain.TokenMatches(t.Token, token) {
			best = t.Role
		}
	}
	return best
}

// keptToken is a token as it is to be stored in place of an old one: that one as it is, if it is the same.
func (b *Broker) keptToken(old, token string) string {
	switch {
	case domain.TokenMatches(old, token) && (domain.Hashed(old) || !b.rules.HashTokens):
		return old
	case b.rules.HashTokens && !domain.Hashed(token):
		return domain.HashToken(token)
	}
	return token
}

// hashTokens replaces tokens of producers and channels that were stored plain, if they are to be hashed. Whoever changes one
// at the same time has it hashed too.
func (b *Broker) hashTokens(ctx context.Context) error {
	if !b.rules.HashTokens {
		return nil
	}
	for _, p := range b.store.Producers() {
		if domain.Hashed(p.Token) {
			continue
		}
		err := insist(ctx, func(ctx context.Context) error { _, err := b.PutProducer(ctx, p); return err })
		if err := seeded("producer", p.ID, err); err != nil {
			return err
		}
	}
	for _, c := range b.store.Channels() {
		if domain.Hashed(c.Token) {
			continue
		}
		err := insist(ctx, func(ctx context.Context) error { _, err := b.PutChannel(ctx, c); return err })
		if err := seeded("channel", c.ID, err); err != nil {
			return err
		}
	}
	return nil
}
