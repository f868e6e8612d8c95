package store

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

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/registry"
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
	Revision       uint64        `json:"-"`
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
	receivers *registry.Table[Receiver]
	senders   *registry.Table[Sender]
	index     senderIndex

	mu                             sync.Mutex
	receiverChanged, senderChanged func(name string)
}

const (
	keyReceiver = "receiver."
	keySender   = "sender."
)

// openRegistry reads what is configured and follows it until run ends.
func (s *Registry) openRegistry(ctx, run context.Context, kv jetstream.KeyValue, stream jetstream.Stream) error {
	all := registry.New(registry.Config{JS: s.js, KV: kv, Stream: stream, Leader: s.reader, Shared: true, Log: s.log})
	s.receivers = registry.Add(all, registry.Kind[Receiver]{
		Prefix: keyReceiver, Key: keyOf, Encode: func(r Receiver) any { return r },
		Decode: func(e registry.Entry) (registry.ID, Receiver, error) {
			var r Receiver
			id, err := decode(e, keyReceiver, &r)
			r.Revision, r.Changed = e.Revision, e.Created
			return id, r, err
		},
		Changed: func(was, is *Receiver) { s.changed(cmp.Or(is, was).Name, true) },
	})
	s.senders = registry.Add(all, registry.Kind[Sender]{
		Prefix: keySender, Key: keyOf, Encode: func(r Sender) any { return r },
		Decode: func(e registry.Entry) (registry.ID, Sender, error) {
			var r Sender
			id, err := decode(e, keySender, &r)
			r.Revision = e.Revision
			return id, r, err
		},
		Changed: func(was, is *Sender) {
			s.index.replace(was, is)
			s.changed(cmp.Or(is, was).Name, false)
		},
	})
	wait, err := all.Open(ctx, run, s.reader)
	if wait != nil {
		s.running.Go(wait)
	}
	return err
}

func keyOf(id registry.ID) string { return Token(id.Name) }

// decode reads a receiver or a sender, whose name is in its key.
func decode(e registry.Entry, prefix string, into any) (registry.ID, error) {
	name, err := ParseToken(strings.TrimPrefix(e.Key, prefix))
	if err == nil {
		err = json.Unmarshal(e.Value, into)
	}
	return registry.ID{Name: name}, err
}

func (s *Registry) changed(name string, isReceiver bool) {
	s.mu.Lock()
	report := s.senderChanged
	if isReceiver {
		report = s.receiverChanged
	}
	s.mu.Unlock()
	if report != nil {
		report(name)
	}
}

// OnChange has the functions called after each change of a receiver or a sender, on the goroutine that reads the registry: they must not
// block.
func (s *Registry) OnChange(receiver, sender func(name string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receiverChanged, s.senderChanged = receiver, sender
}

// Receiver returns a receiver as this process knows it, one that was deleted too.
func (s *Registry) Receiver(name string) (Receiver, bool) {
	return s.receivers.Cached(registry.ID{Name: name})
}

// Sender returns a sender as this process knows it, one that was deleted too.
func (s *Registry) Sender(name string) (Sender, bool) {
	return s.senders.Cached(registry.ID{Name: name})
}

// Receivers returns all, by name, those that were deleted too.
func (s *Registry) Receivers() []Receiver {
	return slices.SortedFunc(slices.Values(s.receivers.All()), func(a, b Receiver) int { return strings.Compare(a.Name, b.Name) })
}

// DeletedReceivers returns those that were deleted and not forgotten yet: their entries in the bucket say so.
func (s *Registry) DeletedReceivers() []Receiver {
	return slices.DeleteFunc(s.receivers.All(), func(r Receiver) bool { return !r.Deleted })
}

// Senders returns all, by name, those that were deleted too.
func (s *Registry) Senders() []Sender {
	return slices.SortedFunc(slices.Values(s.senders.All()), func(a, b Sender) int { return strings.Compare(a.Name, b.Name) })
}

// ReadReceiver reads a receiver from the bucket: another process may have made it a moment ago.
func (s *Registry) ReadReceiver(ctx context.Context, name string) (Receiver, error) {
	return s.receivers.Fresh(ctx, registry.ID{Name: name})
}

// ReadSender reads a sender from the bucket.
func (s *Registry) ReadSender(ctx context.Context, name string) (Sender, error) {
	return s.senders.Fresh(ctx, registry.ID{Name: name})
}

// PutReceiver writes a receiver in the place of the one of its revision, and returns when this process knows it.
func (s *Registry) PutReceiver(ctx context.Context, r Receiver) error {
	_, err := s.receivers.Put(ctx, registry.ID{Name: r.Name}, r, r.Revision)
	return err
}

// PutSender writes a sender in the place of the one of its revision, and returns when this process knows it.
func (s *Registry) PutSender(ctx context.Context, r Sender) error {
	_, err := s.senders.Put(ctx, registry.ID{Name: r.Name}, r, r.Revision)
	return err
}

// DeleteSender removes a sender.
func (s *Registry) DeleteSender(ctx context.Context, r Sender) error {
	r.Deleted, r.Token, r.CallbackEndpoint, r.Secrets, r.Sources = true, "", "", nil, nil
	return s.PutSender(ctx, r)
}

// configError is what an error means for a write to the state.
func configError(what, key string, err error) error {
	if jsstream.Refused(err) {
		return fmt.Errorf("%w: %s", ErrConflict, key)
	}
	return fmt.Errorf("%w: %s %s: %w", ErrUnavailable, what, key, err)
}

// Window says who counts the POSTs to a receiver with a rate limit. Whoever is about to POST writes his name first;
// who finds another's does not know the times of that one's last POSTs, unless it has left them.
type Window struct {
	Owner string `json:"owner"`
	// Left says that the owner has stopped counting, and Posts how long before that its last POSTs ended, the oldest
	// first. Not times: the next owner's clock may be another, and this one's may have been set. A process that does not
	// know this name of it takes the window for full.
	Left     bool    `json:"stopped,omitempty"`
	Posts    []Posts `json:"posts,omitempty"`
	Revision uint64  `json:"-"`
}

// Posts are POSTs that ended together, or nearly so.
type Posts struct {
	Age   time.Duration `json:"age"`
	Count int           `json:"count"`
}

func windowKey(receiver string) string { return "window." + Token(receiver) }

// Window reads who counts. Revision 0: nobody has ever; nobody who is known does where what is stored cannot be read.
func (s *Registry) Window(ctx context.Context, receiver string) (Window, error) {
	entry, err := s.state.Get(ctx, windowKey(receiver))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return Window{}, nil
	case err != nil:
		return Window{}, fmt.Errorf("%w: read the window of %q: %w", ErrUnavailable, receiver, err)
	}
	var w Window
	if json.Unmarshal(entry.Value(), &w) != nil {
		w = Window{}
	}
	w.Revision = entry.Revision()
	return w, nil
}

// PutWindow writes who counts in the place of what has the revision. ErrConflict: another was faster.
func (s *Registry) PutWindow(ctx context.Context, receiver string, w Window) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	data, err := json.Marshal(w)
	if err != nil {
		return 0, fmt.Errorf("write the window of %q: %w", receiver, err)
	}
	revision, err := s.state.Update(ctx, windowKey(receiver), data, w.Revision)
	if err != nil {
		return 0, configError("write", windowKey(receiver), err)
	}
	return revision, nil
}

// forgottenAge is how long the bucket says that a receiver was forgotten, for processes that were cut off from the server.
const forgottenAge = 30 * 24 * time.Hour

// ForgetReceiver removes the entry and the rate window of a receiver that was deleted. ErrConflict: it was configured again.
func (s *Registry) ForgetReceiver(ctx context.Context, r Receiver) error {
	window, err := s.Window(ctx, r.Name)
	if err != nil {
		return err
	}
	if window.Revision != 0 {
		key := windowKey(r.Name)
		if err := s.state.Purge(ctx, key, jetstream.LastRevision(window.Revision), jetstream.PurgeTTL(forgottenAge)); err != nil {
			return configError("purge", key, err)
		}
	}
	return s.receivers.Delete(ctx, registry.ID{Name: r.Name}, r.Revision, forgottenAge)
}
