package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Order says what a receiver may see out of order.
type Order string

// The orders.
const (
	OrderNone     Order = "none"     // anything
	OrderSource   Order = "source"   // nothing of one source
	OrderReceiver Order = "receiver" // nothing of one source, and one POST is in flight at a time
)

// What is done about a POST without an answer where the receiver has no status endpoint.
const (
	AtLeastOnce = "at_least_once" // it is made again, with the same webhook-id
	AtMostOnce  = "at_most_once"  // the message fails
)

// Receiver is the configuration of a receiver.
type Receiver struct {
	Name           string        `json:"name"`
	PostEndpoint   string        `json:"post_endpoint"`
	StatusEndpoint string        `json:"status_endpoint,omitempty"`
	RateLimit      int           `json:"rate_limit,omitempty"` // POSTs in a window; 0: no limit
	Window         time.Duration `json:"window,omitempty"`
	RetryAfter     time.Duration `json:"retry_after"`
	MaxRetries     int           `json:"max_retries"`
	Timeout        time.Duration `json:"timeout"`
	Order          Order         `json:"order"`
	UnknownOutcome string        `json:"unknown_outcome"`
	TTL            time.Duration `json:"ttl,omitempty"` // 0: for ever
	Secrets        []string      `json:"secrets,omitempty"`
	Paused         bool          `json:"paused,omitempty"`
	Disabled       bool          `json:"disabled,omitempty"` // it answered 410
	Deleted        bool          `json:"deleted,omitempty"`  // kept while messages may wait for it
	// Asked is set once the receiver has had a status endpoint: there can be messages whose response is pending.
	Asked    bool   `json:"asked,omitempty"`
	Revision uint64 `json:"-"`
	// Changed is when this was written, by the clock of the server.
	Changed time.Time `json:"-"`
}

// Sender is the configuration of a sender.
type Sender struct {
	Name             string   `json:"name"`
	CallbackEndpoint string   `json:"callback_endpoint,omitempty"` // empty: it is not told
	Token            string   `json:"token"`
	Secrets          []string `json:"secrets,omitempty"`
	Sources          []string `json:"sources"` // prefixes
	Deleted          bool     `json:"deleted,omitempty"`
	Revision         uint64   `json:"-"`
}

// Registry is what is configured, and who counts the rate windows.
type Registry struct {
	*base
	config   jetstream.KeyValue
	registry *registry
}

// registry is what is configured, in memory.
type registry struct {
	mu        sync.RWMutex
	receivers map[string]Receiver
	senders   map[string]Sender
	index     senderIndex
	revision  uint64
	changed   chan struct{} // closed at each change
	listeners []func()
}

func newRegistry() *registry {
	return &registry{receivers: map[string]Receiver{}, senders: map[string]Sender{}, index: newSenderIndex(), changed: make(chan struct{})}
}

const (
	keyReceiver = "receiver."
	keySender   = "sender."
)

func (s *Registry) followRegistry(ctx, run context.Context) error {
	watcher, err := s.config.WatchAll(run)
	if err != nil {
		return fmt.Errorf("watch the registry: %w", err)
	}
	loaded := make(chan struct{})
	s.running.Go(func() {
		for entry := range watcher.Updates() {
			if entry == nil {
				close(loaded)
				continue
			}
			s.registryChanged(entry)
		}
	})
	s.running.Go(func() {
		<-run.Done()
		_ = watcher.Stop()
	})
	select {
	case <-loaded:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("read the registry: %w", context.Cause(ctx))
	}
}

func (s *Registry) registryChanged(entry jetstream.KeyValueEntry) {
	r := s.registry
	r.mu.Lock()
	if err := r.apply(entry); err != nil {
		s.log.Error("an entry of the registry cannot be read and is left out", "key", entry.Key(), "error", err)
	}
	r.revision = max(r.revision, entry.Revision())
	close(r.changed)
	r.changed = make(chan struct{})
	listeners := r.listeners
	r.mu.Unlock()
	for _, listener := range listeners {
		listener()
	}
}

func (r *registry) apply(entry jetstream.KeyValueEntry) error {
	if token, ok := strings.CutPrefix(entry.Key(), keyReceiver); ok {
		name, err := ParseToken(token)
		if err != nil {
			return err
		}
		if entry.Operation() != jetstream.KeyValuePut {
			delete(r.receivers, name)
			return nil
		}
		var receiver Receiver
		if err := json.Unmarshal(entry.Value(), &receiver); err != nil {
			return err
		}
		receiver.Revision, receiver.Changed = entry.Revision(), entry.Created()
		r.receivers[name] = receiver
		return nil
	}
	token, _ := strings.CutPrefix(entry.Key(), keySender)
	name, err := ParseToken(token)
	if err != nil {
		return err
	}
	var sender Sender
	if entry.Operation() == jetstream.KeyValuePut {
		if err := json.Unmarshal(entry.Value(), &sender); err != nil {
			return err
		}
	}
	was := r.senders[name]
	r.index.remove(&was)
	delete(r.senders, name)
	if entry.Operation() == jetstream.KeyValuePut {
		sender.Revision = entry.Revision()
		r.senders[name] = sender
		r.index.add(&sender)
	}
	return nil
}

// OnChange calls f after each change of the registry, on the goroutine that reads it: f must not block.
func (s *Registry) OnChange(f func()) {
	s.registry.mu.Lock()
	s.registry.listeners = append(s.registry.listeners, f)
	s.registry.mu.Unlock()
	f()
}

// Receiver returns a receiver as this process knows it, one that was deleted too.
func (s *Registry) Receiver(name string) (Receiver, bool) {
	s.registry.mu.RLock()
	defer s.registry.mu.RUnlock()
	r, ok := s.registry.receivers[name]
	return r, ok
}

// Sender returns a sender as this process knows it, one that was deleted too.
func (s *Registry) Sender(name string) (Sender, bool) {
	s.registry.mu.RLock()
	defer s.registry.mu.RUnlock()
	r, ok := s.registry.senders[name]
	return r, ok
}

// Receivers returns all, by name, those that were deleted too.
func (s *Registry) Receivers() []Receiver {
	s.registry.mu.RLock()
	defer s.registry.mu.RUnlock()
	list := make([]Receiver, 0, len(s.registry.receivers))
	for _, r := range s.registry.receivers {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Receiver) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// DeletedReceivers returns those that were deleted and not forgotten yet: their entries in the bucket say so.
func (s *Registry) DeletedReceivers() (list []Receiver) {
	s.registry.mu.RLock()
	defer s.registry.mu.RUnlock()
	for _, r := range s.registry.receivers {
		if r.Deleted {
			list = append(list, r)
		}
	}
	return list
}

// Senders returns all, by name, those that were deleted too.
func (s *Registry) Senders() []Sender {
	s.registry.mu.RLock()
	defer s.registry.mu.RUnlock()
	list := make([]Sender, 0, len(s.registry.senders))
	for _, r := range s.registry.senders {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Sender) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// ReadReceiver reads a receiver from the bucket: another process may have made it a moment ago.
func (s *Registry) ReadReceiver(ctx context.Context, name string) (Receiver, error) {
	var r Receiver
	revision, err := s.readConfig(ctx, keyReceiver+Token(name), &r)
	r.Revision = revision
	return r, err
}

// ReadSender reads a sender from the bucket.
func (s *Registry) ReadSender(ctx context.Context, name string) (Sender, error) {
	var r Sender
	revision, err := s.readConfig(ctx, keySender+Token(name), &r)
	r.Revision = revision
	return r, err
}

func (s *Registry) readConfig(ctx context.Context, key string, into any) (uint64, error) {
	entry, err := s.config.Get(ctx, key)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return 0, ErrNotFound
	case err != nil:
		return 0, fmt.Errorf("%w: read %s: %w", ErrUnavailable, key, err)
	}
	if err := json.Unmarshal(entry.Value(), into); err != nil {
		return 0, fmt.Errorf("read %s: %w", key, err)
	}
	return entry.Revision(), nil
}

// PutReceiver writes a receiver in the place of the one of its revision, and returns when this process knows it.
func (s *Registry) PutReceiver(ctx context.Context, r Receiver) error {
	return s.putConfig(ctx, keyReceiver+Token(r.Name), r, r.Revision)
}

// PutSender writes a sender in the place of the one of its revision, and returns when this process knows it.
func (s *Registry) PutSender(ctx context.Context, r Sender) error {
	return s.putConfig(ctx, keySender+Token(r.Name), r, r.Revision)
}

func (s *Registry) putConfig(ctx context.Context, key string, value any, revision uint64) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	written, err := s.config.Update(ctx, key, data, revision)
	if err != nil {
		return configError("write", key, err)
	}
	return s.known(ctx, written)
}

// DeleteSender removes a sender.
func (s *Registry) DeleteSender(ctx context.Context, r Sender) error {
	r.Deleted, r.Token, r.CallbackEndpoint, r.Secrets, r.Sources = true, "", "", nil, nil
	return s.PutSender(ctx, r)
}

func configError(what, key string, err error) error {
	var refused *jetstream.APIError
	if errors.As(err, &refused) && (refused.ErrorCode == 10071 || refused.ErrorCode == 10164) {
		return fmt.Errorf("%w: %s", ErrConflict, key)
	}
	return fmt.Errorf("%w: %s %s: %w", ErrUnavailable, what, key, err)
}

// known waits until the registry in memory has a revision.
func (s *Registry) known(ctx context.Context, revision uint64) error {
	for {
		s.registry.mu.RLock()
		reached, changed := s.registry.revision >= revision, s.registry.changed
		s.registry.mu.RUnlock()
		if reached {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: the registry is behind: %w", ErrUnavailable, context.Cause(ctx))
		}
	}
}
