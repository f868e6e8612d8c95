package broker

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// seed makes what the configuration wants and is not there. What is there is
// left alone: it may have been changed since.
func (b *Broker) seed(ctx context.Context) error {
	for _, warning := range b.cfg.Seed.Skipped {
		b.log.Warn("configuration", "warning", warning)
	}
	for _, item := range b.cfg.Seed.Producers {
		if _, ok := b.store.Producer(item.ID); !ok {
			err := insist(ctx, func(ctx context.Context) error {
				_, err := b.PutProducer(ctx, Producer{item.stakeholder()})
				return err
			})
			if err := seeded("producer", item.ID, err); err != nil {
				return err
			}
		}
	}
	for _, item := range b.cfg.Seed.Channels {
		if _, ok := b.store.Channel(item.ID); !ok {
			err := insist(ctx, func(ctx context.Context) error {
				_, err := b.PutChannel(ctx, Channel{item.stakeholder()})
				return err
			})
			if err := seeded("channel", item.ID, err); err != nil {
				return err
			}
		}
	}
	for _, item := range b.cfg.Seed.Consumers {
		if _, ok := b.store.Consumer(item.Channel, item.ID); !ok {
			err := insist(ctx, func(ctx context.Context) error {
				_, err := b.store.SaveConsumer(ctx, Consumer{
					Stakeholder: item.stakeholder(), Channel: item.Channel, CallbackURL: item.CallbackURL, Type: item.Type,
				})
				return err
			})
			if err := seeded("consumer", item.ID, err); err != nil {
				return err
			}
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
		if ctx.Err() != nil || !errors.Is(err, ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
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
	if err == nil || errors.Is(err, ErrConflict) {
		return nil
	}
	return fmt.Errorf("make or change the %s %q as the configuration wants it: %w", what, id, err)
}

func (i SeedItem) stakeholder() Stakeholder {
	s := Stakeholder{ID: i.ID, Name: i.Name, Token: i.Token}
	if s.Token == "" {
		s.Token = NewToken()
	}
	return s
}

// PutProducer makes or changes a producer. One that is changed must come as it
// was read. A call that changes nothing writes nothing, but what it finds is on
// disk too when it returns.
func (b *Broker) PutProducer(ctx context.Context, p Producer) (Producer, error) {
	old, ok := b.store.Producer(p.ID)
	if p.Token = b.keptToken(old.Token, p.Token); ok && old == p {
		return old, b.store.Kept(ctx, old.Revision)
	}
	return b.store.SaveProducer(ctx, p)
}

// PutChannel is PutProducer for a channel.
func (b *Broker) PutChannel(ctx context.Context, c Channel) (Channel, error) {
	old, ok := b.store.Channel(c.ID)
	if c.Token = b.keptToken(old.Token, c.Token); ok && old == c {
		return old, b.store.Kept(ctx, old.Revision)
	}
	return b.store.SaveChannel(ctx, c)
}

// PutConsumer is PutProducer for a consumer. It checks the signing secret.
func (b *Broker) PutConsumer(ctx context.Context, c Consumer) (Consumer, error) {
	if c.SigningSecret != "" {
		if _, err := b.signer(c.SigningSecret); err != nil {
			return c, fmt.Errorf("%w: signingSecret: %w", ErrInvalid, err)
		}
	}
	if old, ok := b.store.Consumer(c.Channel, c.ID); ok && reflect.DeepEqual(old, c) {
		return old, b.store.Kept(ctx, old.Revision)
	}
	return b.store.SaveConsumer(ctx, c)
}

// DeleteConsumer removes a consumer and all of its jobs.
func (b *Broker) DeleteConsumer(ctx context.Context, c Consumer) error {
	return b.store.DeleteConsumer(ctx, c)
}
