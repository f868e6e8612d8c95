package jsstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/registry"
)

// records is the key-value bucket of producers, channels, consumers, access tokens and replays, in
// memory. The revision at which a key was made is the object's number; it is
// not known before, so the first value carries 0 and means "this revision".
type records struct {
	*registry.Registry
	producers *registry.Table[domain.Producer]
	channels  *registry.Table[domain.Channel]
	consumers *registry.Table[domain.Consumer]
	accesses  *registry.Table[domain.AccessToken]
	replays   *bulk.Table

	mu       sync.RWMutex
	byNumber map[uint32]domain.Consumer
}

// stored is the form of every object in the bucket.
type stored struct {
	Number    uint32
	ID        string
	Name      string
	Token     string
	CreatedAt time.Time
	ChangedAt time.Time

	Channel       string              `json:",omitempty"`
	CallbackURL   string              `json:",omitempty"`
	Type          domain.ConsumerType `json:",omitempty"`
	Since         uint64              `json:",omitempty"`
	Concurrency   int                 `json:",omitempty"`
	RateLimit     float64             `json:",omitempty"`
	SigningSecret string              `json:",omitempty"`
	Pause         domain.Pause        `json:",omitzero"`
	FailingSince  time.Time           `json:",omitzero"`

	EventTypes string               `json:",omitempty"`
	Filters    []domain.EventFilter `json:",omitempty"`
	Role       domain.Role          `json:",omitempty"`
}

// newRegistry calls changed when a consumer changes.
func newRegistry(cfg registry.Config, changed func(c domain.Consumer, removed bool)) *records {
	r := &records{Registry: registry.New(cfg), byNumber: map[uint32]domain.Consumer{}}
	r.producers = registry.Add(r.Registry, kind("p.", func(p domain.Producer) stored { return storedStakeholder(p.Stakeholder) },
		func(s stored, revision uint64) domain.Producer {
			return domain.Producer{Stakeholder: s.stakeholder(revision)}
		}))
	r.channels = registry.Add(r.Registry, kind("c.", func(c domain.Channel) stored { return storedStakeholder(c.Stakeholder) },
		func(s stored, revision uint64) domain.Channel {
			return domain.Channel{Stakeholder: s.stakeholder(revision)}
		}))
	r.accesses = registry.Add(r.Registry, kind("t.", storedAccess, stored.access))
	consumers := kind("k.", storedConsumer, stored.consumer)
	consumers.Changed = func(was, is *domain.Consumer) {
		// Deleted, or deleted and made again before this node saw it.
		if was != nil && (is == nil || is.Number != was.Number) {
			r.number(was.Number, nil)
			r.replays.Forget(replayGroup(was.Number))
			changed(*was, true)
		}
		if is != nil {
			r.number(is.Number, is)
			changed(*is, false)
		}
	}
	r.consumers = registry.Add(r.Registry, consumers)
	r.replays = bulk.NewTable(r.Registry, replayPrefix, keptReplays, earlierReplay)
	return r
}

// kind is that of objects in the form of stored.
func kind[T any](prefix string, encode func(T) stored, decode func(s stored, revision uint64) T) registry.Kind[T] {
	return registry.Kind[T]{
		Prefix: prefix,
		Key: func(id registry.ID) string {
			if id.Group == "" {
				return domain.SubjectToken(id.Name)
			}
			return domain.SubjectToken(id.Group) + "." + domain.SubjectToken(id.Name)
		},
		Encode: func(item T) any { return encode(item) },
		Decode: func(e registry.Entry) (registry.ID, T, error) {
			var s stored
			err := json.Unmarshal(e.Value, &s)
			return registry.ID{Group: s.Channel, Name: s.ID}, decode(s, e.Revision), err
		},
	}
}

func (s stored) stakeholder(revision uint64) domain.Stakeholder {
	return domain.Stakeholder{ID: s.ID, Name: s.Name, Token: s.Token, CreatedAt: s.CreatedAt, ChangedAt: s.ChangedAt, Number: s.Number}.At(revision)
}

func (s stored) consumer(revision uint64) domain.Consumer {
	return domain.Consumer{
		Stakeholder: s.stakeholder(revision), Channel: s.Channel, CallbackURL: s.CallbackURL,
		Type: s.Type, Since: s.Since, Concurrency: s.Concurrency, RateLimit: s.RateLimit,
		SigningSecret: s.SigningSecret, Pause: s.Pause, FailingSince: s.FailingSince, EventTypes: s.EventTypes, Filters: s.Filters,
	}
}

func storedStakeholder(s domain.Stakeholder) stored {
	return stored{Number: s.Number, ID: s.ID, Name: s.Name, Token: s.Token, CreatedAt: s.CreatedAt, ChangedAt: s.ChangedAt}
}

func storedConsumer(c domain.Consumer) stored {
	s := storedStakeholder(c.Stakeholder)
	s.Channel, s.CallbackURL, s.Type, s.Since = c.Channel, c.CallbackURL, c.Type, c.Since
	s.Concurrency, s.RateLimit, s.SigningSecret = c.Concurrency, c.RateLimit, c.SigningSecret
	s.Pause, s.FailingSince = c.Pause, c.FailingSince
	s.EventTypes, s.Filters = c.EventTypes, c.Filters
	return s
}

// number notes which consumer has a number; nil: none any more.
func (r *records) number(number uint32, c *domain.Consumer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c == nil {
		delete(r.byNumber, number)
		return
	}
	r.byNumber[number] = *c
}

func (r *records) numbered(number uint32) (domain.Consumer, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c, ok := r.byNumber[number]
	return c, ok
}

func sortedByNumber[T any](items []T, number func(T) uint32) []T {
	slices.SortFunc(items, func(a, b T) int { return cmp.Compare(number(b), number(a)) })
	return items
}

// refresh reads what the bucket has now. Where the bucket does not answer, what is in memory has to do: a change
// that is made of it is held against the bucket anyway. Of what is not in memory nothing is known then.
func refresh[T any](ctx context.Context, table *registry.Table[T], id registry.ID) (T, error) {
	item, err := table.Fresh(ctx, id)
	if errors.Is(err, domain.ErrUnavailable) {
		if cached, ok := table.Cached(id); ok {
			return cached, nil
		}
	}
	return item, err
}

// directory finds and changes what is in the registry.
type directory struct{ *base }

// Producer implements domain.Directory.
func (s *directory) Producer(ctx context.Context, id string) (domain.Producer, error) {
	return s.reg.producers.Find(ctx, registry.ID{Name: id})
}

// RefreshProducer implements domain.Directory.
func (s *directory) RefreshProducer(ctx context.Context, id string) (domain.Producer, error) {
	return refresh(ctx, s.reg.producers, registry.ID{Name: id})
}

// Producers implements domain.Directory.
func (s *directory) Producers() []domain.Producer {
	return sortedByNumber(s.reg.producers.All(), func(p domain.Producer) uint32 { return p.Number })
}

// SaveProducer implements domain.Registrar.
func (s *directory) SaveProducer(ctx context.Context, p domain.Producer) (domain.Producer, error) {
	p.Stakeholder = stamp(p.Stakeholder)
	revision, err := save(ctx, s, s.reg.producers, registry.ID{Name: p.ID}, p, p.Revision)
	p.Stakeholder = p.At(revision)
	return p, err
}

// Channel implements domain.Directory.
func (s *directory) Channel(ctx context.Context, id string) (domain.Channel, error) {
	return s.reg.channels.Find(ctx, registry.ID{Name: id})
}

// RefreshChannel implements domain.Directory.
func (s *directory) RefreshChannel(ctx context.Context, id string) (domain.Channel, error) {
	return refresh(ctx, s.reg.channels, registry.ID{Name: id})
}

// Channels implements domain.Directory.
func (s *directory) Channels() []domain.Channel {
	return sortedByNumber(s.reg.channels.All(), func(c domain.Channel) uint32 { return c.Number })
}

// SaveChannel implements domain.Registrar.
func (s *directory) SaveChannel(ctx context.Context, c domain.Channel) (domain.Channel, error) {
	c.Stakeholder = stamp(c.Stakeholder)
	revision, err := save(ctx, s, s.reg.channels, registry.ID{Name: c.ID}, c, c.Revision)
	c.Stakeholder = c.At(revision)
	return c, err
}

// save writes an object and makes it durable.
func save[T any](ctx context.Context, s *directory, table *registry.Table[T], id registry.ID, item T, revision uint64) (uint64, error) {
	if err := s.registryWrites.Failure(); err != nil {
		return 0, err
	}
	next, err := table.Put(ctx, id, item, revision)
	if err != nil {
		return 0, saveError(err)
	}
	return next, s.registryWrites.DurableAt(ctx, next)
}

func saveError(err error) error {
	if errors.Is(err, domain.ErrTooLarge) {
		return fmt.Errorf("%w: shorten its name, token, URL or event types", err)
	}
	return err
}

// Kept implements domain.Registrar.
func (s *directory) Kept(ctx context.Context, revision uint64) error {
	return s.registryWrites.DurableAt(ctx, revision)
}

func stamp(s domain.Stakeholder) domain.Stakeholder {
	s.ChangedAt = time.Now().UTC()
	if s.Revision == 0 {
		s.CreatedAt = s.ChangedAt
	}
	return s
}
