package jsstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/streams"
)

// registry is the key-value bucket of producers, channels and consumers, in
// memory. The revision at which a key was made is the object's number; it is
// not known before, so the first value carries 0 and means "this revision".
type registry struct {
	kv   jetstream.KeyValue
	read *streams.Progress // how far the bucket's stream was read

	// order is held while a change is taken and told, so that changes are told
	// in the order of their revisions.
	order sync.Mutex

	mu        sync.RWMutex
	producers map[string]domain.Producer
	channels  map[string]domain.Channel
	consumers map[string]map[string]domain.Consumer // by channel, then ID
	byNumber  map[uint32]domain.Consumer
	numbers   map[string]uint32 // of consumers, by key
	replays   replayLists
	accesses  map[string]map[string]domain.AccessToken // by channel, then ID
	seen      map[string]uint64                        // the last revision of each key, also of those in gone
	gone      []ended                                  // the last keys that were deleted

	// changed is called, not under mu, when a consumer changes.
	changed func(c domain.Consumer, removed bool)
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

func newRegistry(kv jetstream.KeyValue, changed func(domain.Consumer, bool)) *registry {
	return &registry{
		kv: kv, read: streams.NewProgress(), changed: changed,
		producers: map[string]domain.Producer{}, channels: map[string]domain.Channel{},
		consumers: map[string]map[string]domain.Consumer{}, byNumber: map[uint32]domain.Consumer{},
		numbers: map[string]uint32{}, replays: replayLists{map[uint32]map[string]domain.Replay{}, map[string]domain.Replay{}}, accesses: map[string]map[string]domain.AccessToken{}, seen: map[string]uint64{},
	}
}

func producerKey(id string) string { return "p." + streams.EncodeToken(id) }
func channelKey(id string) string  { return "c." + streams.EncodeToken(id) }
func consumerKey(channel, id string) string {
	return "k." + streams.EncodeToken(channel) + "." + streams.EncodeToken(id)
}

func (s stored) stakeholder(revision uint64) domain.Stakeholder {
	if s.Number == 0 {
		s.Number = uint32(revision)
	}
	return domain.Stakeholder{
		ID: s.ID, Name: s.Name, Token: s.Token, CreatedAt: s.CreatedAt, ChangedAt: s.ChangedAt,
		Number: s.Number, Revision: revision,
	}
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

// put writes an object if its key has the given revision still.
func (r *registry) put(ctx context.Context, k string, s stored, revision uint64) (uint64, error) {
	value, err := json.Marshal(s)
	if err != nil {
		return 0, fmt.Errorf("encode %s: %w", k, err)
	}
	next, err := r.write(ctx, k, value, revision)
	if err != nil {
		return 0, err
	}
	r.take(k, next, &s)
	return next, nil
}

func (r *registry) write(ctx context.Context, k string, value []byte, revision uint64) (next uint64, err error) {
	if revision == 0 {
		next, err = r.kv.Create(ctx, k, value)
	} else {
		next, err = r.kv.Update(ctx, k, value, revision)
	}
	if err != nil {
		return 0, registryError(k, len(value), err)
	}
	return next, nil
}

// registryError is what an error means for a write of a number of bytes.
func registryError(k string, size int, err error) error {
	var api *jetstream.APIError
	if errors.Is(err, jetstream.ErrKeyExists) ||
		errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return fmt.Errorf("%w: registry key %s", domain.ErrConflict, k)
	}
	if errors.Is(err, nats.ErrMaxPayload) || api != nil && api.ErrorCode == jetstream.JSErrCodeStreamMessageExceedsMaximum {
		return fmt.Errorf("%w: its record in the registry takes %d bytes, more than the server's max_payload: shorten its name, token, URL or event types", domain.ErrTooLarge, size)
	}
	return fmt.Errorf("%w: registry key %s: %w", domain.ErrUnavailable, k, err)
}

func (r *registry) remove(ctx context.Context, k string, revision uint64) error {
	if err := r.kv.Delete(ctx, k, jetstream.LastRevision(revision)); err != nil {
		return registryError(k, 0, err)
	}
	// The revision of the delete marker is not told; any later one will do.
	r.take(k, revision+1, nil)
	return nil
}

// take brings one key up to date. A nil value means that it is gone. News that
// came before is ignored: a write of this node is seen twice.
func (r *registry) take(k string, revision uint64, s *stored) {
	r.order.Lock()
	defer r.order.Unlock()
	r.mu.Lock()
	if r.seen[k] >= revision {
		r.mu.Unlock()
		return
	}
	r.seen[k] = revision
	if s == nil {
		r.end(ended{k, revision})
	}
	var notify []func()
	switch {
	case strings.HasPrefix(k, "p."):
		r.takeProducer(k, revision, s)
	case strings.HasPrefix(k, "c."):
		r.takeChannel(k, revision, s)
	case isAccess(k):
		r.takeAccess(k, revision, s)
	case strings.HasPrefix(k, "k."):
		notify = r.takeConsumer(k, revision, s)
	}
	r.mu.Unlock()
	for _, f := range notify {
		f()
	}
}

// keptGone is of how many keys that are gone the revision is remembered. Old news of one can only come from a look into the
// bucket that was under way.
const keptGone = 1000

// ended is a key that was deleted.
type ended struct {
	key      string
	revision uint64
}

// end forgets the key that was deleted first, unless it is there again or was deleted again.
func (r *registry) end(e ended) {
	r.gone = append(r.gone, e)
	if len(r.gone) <= keptGone {
		return
	}
	if first := r.gone[0]; r.seen[first.key] == first.revision {
		delete(r.seen, first.key)
	}
	r.gone = r.gone[1:]
}

func (r *registry) takeProducer(k string, revision uint64, s *stored) {
	if s != nil {
		r.producers[s.ID] = domain.Producer{Stakeholder: s.stakeholder(revision)}
		return
	}
	for id := range r.producers {
		if producerKey(id) == k {
			delete(r.producers, id)
		}
	}
}

func (r *registry) takeChannel(k string, revision uint64, s *stored) {
	if s != nil {
		r.channels[s.ID] = domain.Channel{Stakeholder: s.stakeholder(revision)}
		return
	}
	for id := range r.channels {
		if channelKey(id) == k {
			delete(r.channels, id)
		}
	}
}

// watch reads the whole bucket, until ctx ends, and then follows it until run does. It returns
// once everything there was is in memory; the returned function waits for the
// end.
func (r *registry) watch(ctx, run context.Context, warn func(key string, err error)) (wait func(), err error) {
	w, err := r.startWatch(ctx, run)
	if err != nil {
		return nil, fmt.Errorf("watch the registry: %w", err)
	}
	loaded := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.Updates() {
			if e == nil {
				close(loaded)
				continue
			}
			r.takeEntry(e, warn)
			r.read.Reach(e.Revision())
		}
	}()
	select {
	case <-loaded:
	case <-done:
		return nil, errors.New("watch the registry: ended before it was read")
	case <-ctx.Done():
		_ = w.Stop() // run ends too
		return nil, fmt.Errorf("read the registry: %w", context.Cause(ctx))
	}
	return func() { <-done }, nil
}

// startWatch asks for the watch with a time-out that does not end the watch.
func (r *registry) startWatch(ctx, run context.Context) (w jetstream.KeyWatcher, err error) {
	err = streams.Insist(ctx, func(attempt context.Context) error {
		watch, cancel := context.WithCancel(run)
		keep := context.AfterFunc(attempt, cancel)
		w, err = r.kv.WatchAll(watch)
		if !keep() && err == nil {
			err = context.Cause(attempt)
		}
		if err != nil {
			cancel()
			if attempt.Err() != nil {
				err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
			}
		}
		return err
	})
	return w, err
}

func (r *registry) takeEntry(e jetstream.KeyValueEntry, warn func(string, error)) {
	r.takeValue(e.Key(), e.Revision(), e.Operation() != jetstream.KeyValuePut, e.Value(), warn)
}

// takeValue takes what the bucket holds for a key.
func (r *registry) takeValue(key string, revision uint64, deleted bool, value []byte, warn func(string, error)) {
	if strings.HasPrefix(key, replayPrefix) {
		if deleted {
			value = nil
		}
		if err := r.takeReplay(key, revision, value); err != nil {
			warn(key, err)
		}
		return
	}
	if deleted {
		r.take(key, revision, nil)
		return
	}
	var s stored
	if err := json.Unmarshal(value, &s); err != nil {
		warn(key, err)
		return
	}
	r.take(key, revision, &s)
}

func sortedByNumber[T any](items []T, number func(T) uint32) []T {
	slices.SortFunc(items, func(a, b T) int { return cmp.Compare(number(b), number(a)) })
	return items
}

// lookTimeout bounds the look into the bucket for what is not in memory.
const lookTimeout = 2 * time.Second

// lookup reads from memory, and from the bucket what is not there: another node
// may have made it a moment ago.
func lookup[T any](ctx context.Context, s *base, k string, read func() (T, bool)) (T, error) {
	if item, ok := fromMemory(s, read); ok {
		return item, nil
	}
	return refresh(ctx, s, k, read)
}

// refresh reads from memory after a look into the bucket, where another node may
// have changed something a moment ago. It asks the bucket's leader, because any
// other replica may not have it yet. If it cannot, what is in memory has to do: a change
// that is made of it is held against the bucket anyway. Of what is not in memory nothing is known then.
func refresh[T any](ctx context.Context, s *base, k string, read func() (T, bool)) (T, error) {
	var err error
	if s.cfg.Shared {
		err = s.look(ctx, k)
	}
	item, ok := fromMemory(s, read)
	switch {
	case ok:
		return item, nil
	case err != nil:
		return item, err
	}
	return item, fmt.Errorf("%w: registry key %s", domain.ErrNotFound, k)
}

// look takes what the bucket holds for a key.
func (s *base) look(ctx context.Context, k string) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	bucket := s.cfg.registry()
	raw, err := s.AskLeader(ctx, "KV_"+bucket, "$KV."+bucket+"."+k)
	if err == nil {
		s.reg.takeValue(k, raw.Sequence, raw.Header.Get("KV-Operation") != "", raw.Data, s.warnEntry)
	}
	return err
}

func fromMemory[T any](s *base, read func() (T, bool)) (T, bool) {
	s.reg.mu.RLock()
	defer s.reg.mu.RUnlock()
	return read()
}

func (s *base) warnEntry(key string, err error) {
	s.log.Warn("registry entry cannot be read and is ignored", "key", key, "error", err)
}

// producer, channel and consumer return a read of one object; mu is held when it
// is made.
func (r *registry) producer(id string) func() (domain.Producer, bool) {
	return func() (domain.Producer, bool) { p, ok := r.producers[id]; return p, ok }
}

func (r *registry) channel(id string) func() (domain.Channel, bool) {
	return func() (domain.Channel, bool) { c, ok := r.channels[id]; return c, ok }
}

func (r *registry) consumer(channel, id string) func() (domain.Consumer, bool) {
	return func() (domain.Consumer, bool) { c, ok := r.consumers[channel][id]; return c, ok }
}

func (r *registry) numbered(number uint32) (domain.Consumer, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c, ok := r.byNumber[number]
	return c, ok
}

// directory finds and changes what is in the registry.
type directory struct{ *base }

// Producer implements domain.Directory.
func (s *directory) Producer(ctx context.Context, id string) (domain.Producer, error) {
	return lookup(ctx, s.base, producerKey(id), s.reg.producer(id))
}

// RefreshProducer implements domain.Directory.
func (s *directory) RefreshProducer(ctx context.Context, id string) (domain.Producer, error) {
	return refresh(ctx, s.base, producerKey(id), s.reg.producer(id))
}

// Producers implements domain.Directory.
func (s *directory) Producers() []domain.Producer {
	s.reg.mu.RLock()
	defer s.reg.mu.RUnlock()
	items := make([]domain.Producer, 0, len(s.reg.producers))
	for _, p := range s.reg.producers {
		items = append(items, p)
	}
	return sortedByNumber(items, func(p domain.Producer) uint32 { return p.Number })
}

// SaveProducer implements domain.Registrar.
func (s *directory) SaveProducer(ctx context.Context, p domain.Producer) (domain.Producer, error) {
	value := storedStakeholder(stamp(p.Stakeholder))
	revision, err := s.save(ctx, producerKey(p.ID), value, p.Revision)
	return domain.Producer{Stakeholder: value.stakeholder(revision)}, err
}

// Channel implements domain.Directory.
func (s *directory) Channel(ctx context.Context, id string) (domain.Channel, error) {
	return lookup(ctx, s.base, channelKey(id), s.reg.channel(id))
}

// RefreshChannel implements domain.Directory.
func (s *directory) RefreshChannel(ctx context.Context, id string) (domain.Channel, error) {
	return refresh(ctx, s.base, channelKey(id), s.reg.channel(id))
}

// Channels implements domain.Directory.
func (s *directory) Channels() []domain.Channel {
	s.reg.mu.RLock()
	defer s.reg.mu.RUnlock()
	items := make([]domain.Channel, 0, len(s.reg.channels))
	for _, c := range s.reg.channels {
		items = append(items, c)
	}
	return sortedByNumber(items, func(c domain.Channel) uint32 { return c.Number })
}

// SaveChannel implements domain.Registrar.
func (s *directory) SaveChannel(ctx context.Context, c domain.Channel) (domain.Channel, error) {
	value := storedStakeholder(stamp(c.Stakeholder))
	revision, err := s.save(ctx, channelKey(c.ID), value, c.Revision)
	return domain.Channel{Stakeholder: value.stakeholder(revision)}, err
}

// save writes an object and makes it durable.
func (s *directory) save(ctx context.Context, k string, value stored, revision uint64) (uint64, error) {
	if err := s.registryWrites.Failure(); err != nil {
		return 0, err
	}
	next, err := s.reg.put(ctx, k, value, revision)
	if err != nil {
		return 0, err
	}
	return next, s.registryWrites.DurableAt(ctx, next)
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
