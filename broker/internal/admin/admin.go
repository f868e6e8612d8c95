// Package admin stores the objects that operators create: producers, channels, consumers and access tokens. They are in a key-value bucket. Every
// node watches the bucket and holds the objects in memory.
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
	// Writes syncs the writes to the bucket.
	Writes   Writes
	Messages Messages
	// Known is called with a new or changed consumer before the directory returns it, and Removed after it returns the consumer no more, both in the
	// order of the revisions.
	Known, Removed func(c domain.Consumer)
	// Ready returns why the store cannot be used now, or nil.
	Ready func() error
	// Now returns the time of the store's clock.
	Now func() time.Time
	// Shared specifies whether other processes also write to the bucket.
	Shared bool
	// HashTokens specifies whether to store the tokens of producers and channels as hashes.
	HashTokens bool
}

// Writes reports when writes are on disk.
type Writes interface {
	Failure() error
	// DurableAt waits until a revision is on disk. With 0, it waits for all writes.
	DurableAt(ctx context.Context, revision uint64) error
}

// Messages gives access to the stored messages and job records.
type Messages interface {
	// Stored returns the sequences of the first and the last message, once they are on disk.
	Stored(ctx context.Context) (first, last uint64, err error)
	// ForgetConsumer deletes the records of a consumer's jobs. The caller ensures that the consumer's removal is on disk.
	ForgetConsumer(ctx context.Context, c domain.Consumer) error
	// CountPending counts the pending schedules of a channel. It returns [domain.ErrUnavailable] if the number is not known now.
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

// New returns a directory of the objects in cfg.Registry, which the caller opens later.
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
	add(d.Producers, "p.", nil, nil)
	add(d.Channels, "c.", nil, nil)
	add(d.Accesses, "t.", nil, nil)
	add(d.Consumers, "k.", d.Known, d.consumerChanged)
	return d
}

func add[T any](k *Kind[T], prefix string, known func(T), changed func(was, is *T)) {
	k.table = registry.Add(k.d.Registry, registry.Kind[T]{
		Prefix: prefix, Key: key, Encode: func(t T) any { return t }, Decode: k.decode,
		Known: known, Changed: changed,
	})
}

// Kind holds the objects of one kind. A node finds an object that another node has just created at once. It sees changes and removals by other nodes
// a moment later.
type Kind[T any] struct {
	d     *Directory
	table *registry.Table[T]
	// Base returns the fields that all objects have.
	Base func(*T) *domain.Stakeholder
	// channel returns the channel field of an object. It is nil for kinds that do not belong to a channel.
	channel func(*T) *string
	// token returns what to store for a token that replaces old, which is empty for a new object. nil means the token itself.
	token func(old, token string) string
	// complete sets the fields that are known only when the object is stored. nil means nothing to do.
	complete func(ctx context.Context, t *T) error
	// forget deletes the data that belong to a removed object. nil means nothing to do.
	forget func(ctx context.Context, t T) error
}

func (k *Kind[T]) id(t *T) registry.ID {
	id := registry.ID{Name: k.Base(t).ID}
	if k.channel != nil {
		id.Group = *k.channel(t)
	}
	return id
}

// Find returns an object by its ID and, if its kind has a channel, by the channel's ID.
func (k *Kind[T]) Find(ctx context.Context, channel, id string) (T, error) {
	return k.table.Find(ctx, registry.ID{Group: channel, Name: id})
}

// Refresh is like Find, but reads the bucket first. If the bucket does not answer, Refresh returns the object in memory: a change based on it is
// checked against the bucket anyway. If the object is not in memory, Refresh returns [domain.ErrUnavailable].
func (k *Kind[T]) Refresh(ctx context.Context, channel, id string) (T, error) {
	item, err := k.table.Fresh(ctx, registry.ID{Group: channel, Name: id})
	if errors.Is(err, domain.ErrUnavailable) {
		if cached, ok := k.table.Cached(registry.ID{Group: channel, Name: id}); ok {
			return cached, nil
		}
	}
	return item, err
}

// List returns the objects of a channel, newest first. An empty channel means all objects.
func (k *Kind[T]) List(channel string) []T {
	items := k.table.In(channel)
	if channel == "" {
		items = k.table.All()
	}
	slices.SortFunc(items, func(a, b T) int { return cmp.Compare(k.Base(&b).Number, k.Base(&a).Number) })
	return items
}

// Put creates or changes an object. To change an object, t must have the revision that was read. Put writes nothing if nothing changes. When it
// returns, the object is on disk.
func (k *Kind[T]) Put(ctx context.Context, t T) (T, error) {
	id := k.id(&t)
	old, err := k.table.Find(ctx, id)
	if err != nil && !errors.Is(err, domain.ErrNotFound) {
		return t, err
	}
	if s := k.Base(&t); k.token != nil && !domain.Hashed(s.Token) { // a hash is the stored one
		s.Token = k.token(k.Base(&old).Token, s.Token)
	}
	if err == nil && reflect.DeepEqual(old, t) {
		return old, k.d.Writes.DurableAt(ctx, k.Base(&old).Revision) // its writer may still be waiting
	}
	return k.Save(ctx, t)
}

// Save writes an object unchanged, and returns once it is on disk. It creates an object that has revision 0, and sets its number, revision and
// creation time. If the stored revision differs, Save returns [domain.ErrConflict].
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
	// Last-Modified has whole seconds, but must differ after each change.
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
	// The removal must be completed even if the caller hangs up, because nobody can name the object any more. For the same reason the deadline does
	// not include the wait for a slow disk.
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

// DeleteChannel deletes a channel with its consumers, access tokens, messages and schedules. If force is false and the channel has consumers, which
// may have jobs, or pending schedules, DeleteChannel returns [domain.ErrWaiting]. It deletes the channel last, so that a failed call can be repeated.
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
	// The consumer was deleted, or deleted and recreated before this node saw it.
	if was != nil && (is == nil || is.Number != was.Number) {
		d.Removed(*was)
	}
}
