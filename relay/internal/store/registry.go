package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

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

func (r Receiver) stored() (name string, revision uint64, deleted bool) {
	return r.Name, r.Revision, r.Deleted
}

func (s Sender) stored() (name string, revision uint64, deleted bool) {
	return s.Name, s.Revision, s.Deleted
}

// Registry is what is configured, and who counts the rate windows.
type Registry struct {
	*base
	Receivers Table[Receiver]
	Senders   Table[Sender]
	index     atomic.Pointer[senderIndex]
	changes   atomic.Uint64 // of senders
	listeners atomic.Pointer[listeners]
}

// listeners are called after each change.
type listeners struct{ receiver, sender func(name string) }

type configured interface {
	stored() (name string, revision uint64, deleted bool)
}

// Table has the receivers or the senders. Of one that was deleted the bucket says so for 30 days.
type Table[T configured] struct {
	*base
	prefix  string
	records *registry.Table[T]
}

// Get returns a record as this process knows it, one that was deleted too.
func (t Table[T]) Get(name string) (T, bool) { return t.records.Cached(registry.ID{Name: name}) }

// All returns all records, by name, those that were deleted too.
func (t Table[T]) All() []T {
	name := func(r T) string { name, _, _ := r.stored(); return name }
	return slices.SortedFunc(slices.Values(t.records.All()), func(a, b T) int { return strings.Compare(name(a), name(b)) })
}

// Read reads a record from the bucket: another process may have made it a moment ago. ErrNotFound: there is none, or the one that is
// returned was deleted.
func (t Table[T]) Read(ctx context.Context, name string) (T, error) {
	r, err := t.records.Fresh(ctx, registry.ID{Name: name})
	if _, _, deleted := r.stored(); err == nil && deleted || errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("%w: no %s is called %q", ErrNotFound, strings.TrimSuffix(t.prefix, "."), name)
	}
	return r, err
}

// deletedAge is how long the bucket says that a receiver or sender was deleted. Until then a worker fails what waits for it.
const deletedAge = 30 * 24 * time.Hour

// Put writes a record in the place of the one of its revision, and returns when this process knows it.
func (t Table[T]) Put(ctx context.Context, r T) error {
	name, revision, deleted := r.stored()
	id := registry.ID{Name: name}
	if !deleted {
		_, err := t.records.Put(ctx, id, r, revision)
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write that %s%s was deleted: %w", t.prefix, name, err)
	}
	m := &nats.Msg{Subject: "$KV." + t.cfg.Name + "_receiver_config." + t.prefix + keyOf(id), Data: data}
	if _, err = t.publish(ctx, m, jetstream.WithExpectLastSequencePerSubject(revision), jetstream.WithMsgTTL(deletedAge)); err == nil {
		_, err = t.records.Fresh(ctx, id)
	}
	return err
}

// openRegistry reads what is configured and follows it until run ends.
func (s *Registry) openRegistry(ctx, run context.Context, kv jetstream.KeyValue, stream jetstream.Stream) error {
	all := registry.New(registry.Config{JS: s.js, KV: kv, Stream: stream, Leader: s.reader, Shared: true, Log: s.log})
	s.Receivers = addTable(all, s.base, "receiver.", func(r *Receiver, e registry.Entry) { r.Revision = e.Revision }, func(name string) {
		if l := s.listeners.Load(); l != nil {
			l.receiver(name)
		}
	})
	s.Senders = addTable(all, s.base, "sender.", func(r *Sender, e registry.Entry) { r.Revision = e.Revision }, func(name string) {
		s.changes.Add(1)
		if l := s.listeners.Load(); l != nil {
			l.sender(name)
		}
	})
	wait, err := all.Open(ctx, run, s.reader)
	if wait != nil {
		s.running.Go(wait)
	}
	return err
}

// addTable gives a registry the table of the keys with a prefix. revise sets what is not in the JSON of a record.
func addTable[T configured](all *registry.Registry, b *base, prefix string, revise func(*T, registry.Entry), changed func(name string)) Table[T] {
	return Table[T]{b, prefix, registry.Add(all, registry.Kind[T]{
		Prefix: prefix, Key: keyOf, Encode: func(r T) any { return r },
		Decode: func(e registry.Entry) (id registry.ID, r T, err error) {
			if id.Name, err = ParseToken(strings.TrimPrefix(e.Key, prefix)); err == nil {
				err = json.Unmarshal(e.Value, &r)
			}
			revise(&r, e)
			return id, r, err
		},
		Changed: func(was, is *T) {
			name, _, _ := (*cmp.Or(is, was)).stored()
			changed(name)
		},
	})}
}

func keyOf(id registry.ID) string { return Token(id.Name) }

// OnChange has the functions called after each change of a receiver or a sender, on the goroutine that reads the registry: they must not
// block.
func (s *Registry) OnChange(receiver, sender func(name string)) {
	s.listeners.Store(&listeners{receiver, sender})
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

func (s *Registry) windowSubject(receiver string) string {
	return s.stateSubject("window." + Token(receiver))
}

// Window reads who counts. Revision 0: nobody has ever; nobody who is known does where what is stored cannot be read.
func (s *Registry) Window(ctx context.Context, receiver string) (Window, error) {
	entry, err := s.state.GetLastMsgForSubject(ctx, s.windowSubject(receiver))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return Window{}, nil
	case err != nil:
		return Window{}, fmt.Errorf("%w: read the window of %q: %w", ErrUnavailable, receiver, err)
	}
	var w Window
	if json.Unmarshal(entry.Data, &w) != nil {
		w = Window{}
	}
	w.Revision = entry.Sequence
	return w, nil
}

// PutWindow writes who counts in the place of what has the revision. ErrConflict: another was faster.
func (s *Registry) PutWindow(ctx context.Context, receiver string, w Window) (uint64, error) {
	data, err := json.Marshal(w)
	if err != nil {
		return 0, fmt.Errorf("write the window of %q: %w", receiver, err)
	}
	m := &nats.Msg{Subject: s.windowSubject(receiver), Data: data}
	return s.publish(ctx, m, jetstream.WithExpectLastSequencePerSubject(w.Revision))
}

// DropWindow removes the rate window of a receiver that was deleted.
func (s *Registry) DropWindow(ctx context.Context, receiver string) error {
	if err := s.state.Purge(ctx, jetstream.WithPurgeSubject(s.windowSubject(receiver))); err != nil {
		return fmt.Errorf("%w: remove the window of %q: %w", ErrUnavailable, receiver, err)
	}
	return nil
}
