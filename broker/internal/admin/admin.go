// Package admin stores the objects that operators create: producers, channels, consumers and access tokens. They are in a
// key-value bucket. Every node follows the bucket and holds the objects in memory.
package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/registry"
)

// Config configures a Directory.
type Config struct {
	Registry *registry.Registry
	// Writes tracks the writes to the bucket.
	Writes   Writes
	Messages Messages
	// Changed is called when a consumer was created, changed or removed, in the order of the revisions.
	Changed func(c domain.Consumer, removed bool)
	// Ready returns why the store cannot be used now, or nil.
	Ready func() error
	// Now returns the time by the store's clock.
	Now func() time.Time
	// Shared says that other processes write to the bucket too.
	Shared bool
	// HashTokens stores the tokens of producers and channels as hashes.
	HashTokens bool
}

// Writes reports when writes are on disk.
type Writes interface {
	Failure() error
	// DurableAt waits for one write, or for all with 0.
	DurableAt(ctx context.Context, revision uint64) error
}

// Messages gives access to the stored messages and job records.
type Messages interface {
	// Stored returns the sequences of the first and the last message, once they are on disk.
	Stored(ctx context.Context) (first, last uint64, err error)
	// ForgetConsumer deletes the records of a consumer's jobs. The removal of the consumer is on disk by then.
	ForgetConsumer(ctx context.Context, c domain.Consumer) error
	// CountPending counts the schedules of a channel that wait for their time. [domain.ErrUnavailable]: their number is not known now.
	CountPending(ctx context.Context, channel string) (int, error)
	// ForgetChannel deletes the messages and schedules of a channel that has no consumers.
	ForgetChannel(ctx context.Context, channel string) error
}

// Directory holds the objects of all kinds.
type Directory struct {
	Config
	Producers *Kind[domain.Producer]
	Channels  *Kind[domain.Channel]
	Consumers *Kind[domain.Consumer]
	Accesses  *Kind[domain.AccessToken]
}

// New returns a directory of the objects in a registry, which is not open yet.
func New(cfg Config) *Directory {
	d := &Directory{Config: cfg}
	d.Producers = &Kind[domain.Producer]{
		d: d, Base: func(p *domain.Producer) *domain.Stakeholder { return &p.Stakeholder },
		token: d.sameToken,
	}
	d.Channels = &Kind[domain.Channel]{
		d: d, Base: func(c *domain.Channel) *domain.Stakeholder { return &c.Stakeholder },
		token: d.sameToken,
	}
	d.Accesses = &Kind[domain.AccessToken]{
		d: d, Base: func(t *domain.AccessToken) *domain.Stakeholder { return &t.Stakeholder },
		channel: func(t *domain.AccessToken) *string { return &t.Channel },
		token:   func(_, token string) string { return domain.HashToken(token) },
	}
	d.Consumers = &Kind[domain.Consumer]{
		d: d, Base: func(c *domain.Consumer) *domain.Stakeholder { return &c.Stakeholder },
		channel:  func(c *domain.Consumer) *string { return &c.Channel },
		complete: d.begin,
		forget:   func(ctx context.Context, c domain.Consumer) error { return cfg.Messages.ForgetConsumer(ctx, c) },
	}
	add(d.Producers, "p.", nil)
	add(d.Channels, "c.", nil)
	add(d.Accesses, "t.", nil)
	add(d.Consumers, "k.", d.consumerChanged)
	return d
}

func add[T any](k *Kind[T], prefix string, changed func(was, is *T)) {
	k.table = registry.Add(k.d.Registry, registry.Kind[T]{
		Prefix: prefix, Key: key, Encode: func(t T) any { return t }, Decode: k.decode,
		Changed: changed,
	})
}

// Kind holds the objects of one kind. An object created by another node is found at once. Changes and removals by other nodes are
// seen a moment later.
type Kind[T any] struct {
	d     *Directory
	table *registry.Table[T]
	// Base returns the fields that all objects have.
	Base func(*T) *domain.Stakeholder
	// channel returns the channel field of an object, nil for kinds that do not belong to a channel.
	channel func(*T) *string
	// token returns what is stored of a token in place of the old one, which is empty for a new object. nil: the token itself.
	token func(old, token string) string
	// complete sets the fields that are known when the object is stored. nil: nothing to do.
	complete func(ctx context.Context, t *T) error
	// forget deletes the data that belong to a removed object. nil: nothing to do.
	forget func(ctx context.Context, t T) error
}

func (k *Kind[T]) id(t *T) registry.ID {
	id := registry.ID{Name: k.Base(t).ID}
	if k.channel != nil {
		id.Group = *k.channel(t)
	}
	return id
}

// Find returns an object by its ID and that of its channel, if its kind has one.
func (k *Kind[T]) Find(ctx context.Context, channel, id string) (T, error) {
	return k.table.Find(ctx, registry.ID{Group: channel, Name: id})
}

// Refresh is like Find, but reads the bucket first. If the bucket does not answer, Refresh returns the object in memory: a change
// based on it is checked against the bucket anyway. For an object that is not in memory it then returns [domain.ErrUnavailable].
func (k *Kind[T]) Refresh(ctx context.Context, channel, id string) (T, error) {
	item, err := k.table.Fresh(ctx, registry.ID{Group: channel, Name: id})
	if errors.Is(err, domain.ErrUnavailable) {
		if cached, ok := k.table.Cached(registry.ID{Group: channel, Name: id}); ok {
			return cached, nil
		}
	}
	return item, err
}

// List returns the objects of a channel, or all objects if channel is empty, newest first.
func (k *Kind[T]) List(channel string) []T {
	items := k.table.In(channel)
	if channel == "" {
		items = k.table.All()
	}
	slices.SortFunc(items, func(a, b T) int { return cmp.Compare(k.Base(&b).Number, k.Base(&a).Number) })
	return items
}

// Put creates or changes an object. A changed object must have the revision that was read. A call that changes nothing writes
// nothing. When Put returns, the object is on disk.
func (k *Kind[T]) Put(ctx context.Context, t T) (T, error) {
	id := k.id(&t)
	old, err := k.table.Find(ctx, id)
	if err != nil && !errors.Is(err, domain.ErrNotFound) {
		return t, err
	}
	if s := k.Base(&t); k.token != nil && !domain.Hashed(s.Token) { // a hash is the one that is stored
		s.Token = k.token(k.Base(&old).Token, s.Token)
	}
	if err == nil && reflect.DeepEqual(old, t) {
		return old, k.d.Writes.DurableAt(ctx, k.Base(&old).Revision) // its writer may still be waiting
	}
	return k.Save(ctx, t)
}

// Save writes an object unchanged, and returns once it is on disk. An object with revision 0 is created and gets its number,
// revision and time of creation. Save fails with [domain.ErrConflict] if the stored revision is another.
func (k *Kind[T]) Save(ctx context.Context, t T) (T, error) {
	if err := k.d.Writes.Failure(); err != nil {
		return t, err
	}
	if k.complete != nil {
		if err := k.complete(ctx, &t); err != nil {
			return t, err
		}
	}
	s := k.Base(&t)
	// Last-Modified has seconds, and must tell each change from the one before.
	before := s.ChangedAt
	if s.ChangedAt = k.d.Now(); s.Revision == 0 {
		s.CreatedAt = s.ChangedAt
	} else if next := before.Truncate(time.Second).Add(time.Second); s.ChangedAt.Before(next) {
		s.ChangedAt = next
	}
	revision, err := k.table.Put(ctx, k.id(&t), t, s.Revision, 0)
	if errors.Is(err, domain.ErrTooLarge) {
		err = fmt.Errorf("%w: shorten its name, token, URL or event types", err)
	}
	if err != nil {
		return t, err
	}
	*s = s.At(revision)
	return t, k.d.Writes.DurableAt(ctx, revision)
}

// Delete removes an object and the data that belong to it.
func (k *Kind[T]) Delete(ctx context.Context, t T) error {
	if err := k.d.Writes.Failure(); err != nil {
		return err
	}
	// The removal must be completed even if the caller hangs up, because the object can no longer be named. For the same reason
	// the deadline does not include the wait for a slow disk.
	ctx = context.WithoutCancel(ctx)
	removing, cancel := context.WithTimeout(ctx, jsstream.CommitTimeout)
	defer cancel()
	if err := k.table.Delete(removing, k.id(&t), k.Base(&t).Revision, 0); err != nil {
		return err
	}
	if err := k.d.Writes.DurableAt(ctx, 0); err != nil || k.forget == nil {
		return err
	}
	return k.forget(ctx, t)
}

// DeleteChannel deletes a channel with its consumers, access tokens, messages and schedules. Unless it is forced it fails with
// [domain.ErrWaiting] if there is anything to lose: jobs, which only consumers have, or a schedule. The channel goes last, so that a call
// that failed can be repeated.
func (d *Directory) DeleteChannel(ctx context.Context, c domain.Channel, force bool) error {
	if err := cmp.Or(d.Ready(), d.Consumers.table.UpToNow(ctx), d.Accesses.table.UpToNow(ctx)); err != nil {
		return err
	}
	consumers := d.Consumers.List(c.ID)
	if !force {
		pending, err := d.Messages.CountPending(ctx, c.ID)
		if err == nil && len(consumers)+pending > 0 {
			err = fmt.Errorf("%w: it has %d consumers and %d scheduled messages: delete them with it by ?force=true", domain.ErrWaiting, len(consumers),
				pending)
		}
		if err != nil {
			return err
		}
	}
	if err := deleteAll(ctx, d.Consumers, consumers); err != nil {
		return err
	}
	if err := deleteAll(ctx, d.Accesses, d.Accesses.List(c.ID)); err != nil {
		return err
	}
	if err := d.Messages.ForgetChannel(context.WithoutCancel(ctx), c.ID); err != nil {
		return err
	}
	return d.Channels.Delete(ctx, c)
}

func deleteAll[T any](ctx context.Context, k *Kind[T], items []T) error {
	for _, t := range items {
		if err := k.Delete(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (d *Directory) consumerChanged(was, is *domain.Consumer) {
	// It was deleted, or deleted and recreated before this node saw it.
	if was != nil && (is == nil || is.Number != was.Number) {
		d.Changed(*was, true)
	}
	if is != nil {
		d.Changed(*is, false)
	}
}
