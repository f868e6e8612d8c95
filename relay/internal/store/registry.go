package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/registry"
	"github.com/jetpull/jetpull/internal/service/webhook/gate"
	"github.com/jetpull/jetpull/internal/systems"
	"github.com/jetpull/jetpull/internal/tokens"
)

// Order is the order in which a receiver gets messages.
type Order string

// The orders.
const (
	OrderNone     Order = "none"     // no order
	OrderSource   Order = "source"   // the messages of one source are in order
	OrderReceiver Order = "receiver" // the same, and one POST is in flight at a time
)

// The values of UnknownOutcome decide what follows a POST without an answer to a receiver without a status endpoint.
const (
	AtLeastOnce = "at_least_once" // repeat the POST, with the same webhook-id
	AtMostOnce  = "at_most_once"  // fail the message
)

// Named has the fields that receivers and senders share.
type Named struct {
	Name     string `json:"name"`
	Deleted  bool   `json:"deleted,omitempty"` // kept while messages may wait for it
	Revision uint64 `json:"-"`
}

// Gone reports whether the receiver or sender was deleted or never existed.
func (n Named) Gone() bool { return n.Deleted || n.Name == "" }

// Receiver is the configuration of a receiver.
type Receiver struct {
	Named
	ReceiverConfig
	Window     time.Duration `json:"window,omitempty"`
	RetryAfter time.Duration `json:"retry_after"`
	Timeout    time.Duration `json:"timeout"`
	TTL        time.Duration `json:"ttl,omitempty"`      // 0: for ever
	Disabled   bool          `json:"disabled,omitempty"` // it answered 410
}

// ReceiverConfig has the settings of a receiver in a request, except durations.
type ReceiverConfig struct {
	PostEndpoint   string   `json:"post_endpoint"`
	StatusEndpoint string   `json:"status_endpoint"`
	RateLimit      int      `json:"rate_limit"` // POSTs in a window; 0: no limit
	MaxRetries     int      `json:"max_retries"`
	Order          Order    `json:"order"`
	UnknownOutcome string   `json:"unknown_outcome"`
	Secrets        []string `json:"secrets,omitempty"`
	Paused         bool     `json:"paused"`
}

// Sender is the configuration of a sender.
type Sender struct {
	Named
	SenderConfig
}

// SenderConfig has the settings of a sender in a request.
type SenderConfig struct {
	CallbackEndpoint string   `json:"callback_endpoint,omitempty"` // empty: there are no callbacks
	Token            string   `json:"token"`
	Secrets          []string `json:"secrets,omitempty"`
	Sources          []string `json:"sources"` // prefixes
}

// Registry has the configuration of receivers and senders, and the owners of the rate windows.
type Registry struct {
	*base
	config    jetstream.Stream // of the bucket of receivers and senders
	configKV  jetstream.KeyValue
	Receivers Table[Receiver]
	Senders   Table[Sender]
	index     atomic.Pointer[func() *senderIndex] // builds it when it is first called after a change of a sender
	changed   atomic.Pointer[func(q Queue, owner string)]
}

// Table has the receivers or the senders. The bucket keeps an entry of a deleted one for 30 days.
type Table[T any] struct {
	s       *Registry
	prefix  string
	base    func(*T) *Named
	records *registry.Table[T]
}

// Get returns a record from this process's memory. It may be [Named.Gone].
func (t Table[T]) Get(name string) T {
	r, _ := t.records.Cached(registry.ID{Name: name})
	return r
}

// All returns the records that are not gone, sorted by name.
func (t Table[T]) All() []T {
	all := slices.DeleteFunc(t.records.All(), func(r T) bool { return t.base(&r).Gone() })
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(t.base(&a).Name, t.base(&b).Name) })
	return all
}

// Owners returns the receivers or senders for which a queue can have entries, including deleted ones.
func (s *Registry) Owners(q Queue) (all []Named) {
	if q == ToSender {
		for _, one := range s.Senders.records.All() {
			all = append(all, one.Named)
		}
		return all
	}
	for _, one := range s.Receivers.records.All() {
		all = append(all, one.Named)
	}
	return all
}

// Find returns a record from this process's memory. If it is gone there, Find reads the bucket, because the memory may be outdated. The result may
// still be [Named.Gone].
func (t Table[T]) Find(ctx context.Context, name string) (T, error) {
	if r := t.Get(name); !t.base(&r).Gone() {
		return r, nil
	}
	r, err := t.records.Fresh(ctx, registry.ID{Name: name})
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	return r, err
}

// Read reads a record from the bucket, since another process may just have changed it. It returns ErrNotFound if there is none, or if it was deleted.
// It returns a deleted record as well.
func (t Table[T]) Read(ctx context.Context, name string) (T, error) {
	r, err := t.records.Fresh(ctx, registry.ID{Name: name})
	if err == nil && t.base(&r).Deleted || errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("%w: no %s is called %q", ErrNotFound, strings.TrimSuffix(t.prefix, "."), name)
	}
	return r, err
}

// deletedAge is how long the bucket keeps the entry of a deleted receiver or sender. Until then, workers fail the messages that wait for it.
const deletedAge = 30 * 24 * time.Hour

// Put replaces the record with r's revision by r. It returns when r is in this process's memory and on disk.
func (t Table[T]) Put(ctx context.Context, r T) error {
	n, keep := t.base(&r), time.Duration(0)
	if n.Deleted {
		keep = deletedAge
	}
	_, err := t.records.Put(ctx, registry.ID{Name: n.Name}, r, n.Revision, keep)
	return cmp.Or(err, t.s.durable(ctx, t.s.config.CachedInfo().Config.Name, 0))
}

// Change edits a record, and retries if another process changes it meanwhile. If create is set and there is no record, it edits a new one.
func (t Table[T]) Change(ctx context.Context, name string, create bool, edit func(*T) error) (record T, err error) {
	for range 50 { // an entry that cannot be decoded conflicts with each try
		record, err = t.Read(ctx, name)
		if create && errors.Is(err, ErrNotFound) {
			named := Named{Name: name, Revision: t.base(&record).Revision}
			record, err = *new(T), nil
			*t.base(&record) = named
		}
		if err == nil {
			err = edit(&record)
		}
		if err == nil {
			err = t.Put(ctx, record)
		}
		if !errors.Is(err, ErrConflict) {
			return record, err
		}
	}
	return record, fmt.Errorf("%q: %w", name, ErrUnreadable)
}

// openRegistry reads the configuration and follows it until run ends.
func (s *Registry) openRegistry(ctx, run context.Context) error {
	all := registry.New(registry.Config{JS: s.js, KV: s.configKV, Stream: s.config, Leader: s.reader, Shared: true, Log: s.Logger})
	s.Receivers = addTable(s, all, "receiver.", ToReceiver, func(r *Receiver) *Named { return &r.Named })
	s.Senders = addTable(s, all, "sender.", ToSender, func(r *Sender) *Named { return &r.Named })
	s.newIndex()
	return all.Open(ctx, run, &s.running, s.reader)
}

// addTable adds the table of the keys with a prefix, for the owners of a queue.
func addTable[T any](s *Registry, all *registry.Registry, prefix string, q Queue, base func(*T) *Named) Table[T] {
	return Table[T]{s: s, prefix: prefix, base: base, records: registry.Add(all, registry.Kind[T]{
		Prefix: prefix, Key: func(id registry.ID) string { return tokens.Subject(id.Name) }, Encode: func(r T) any { return r },
		Decode: func(e registry.Entry) (id registry.ID, r T, err error) {
			if id.Name, err = tokens.ParseSubject(strings.TrimPrefix(e.Key, prefix)); err == nil {
				err = json.Unmarshal(e.Value, &r)
			}
			if name := base(&r).Name; err == nil && name != id.Name {
				err = fmt.Errorf("it names %q", name) // the relay has not written it
			}
			base(&r).Revision = e.Revision
			return id, r, err
		},
		Changed: func(was, is *T) {
			if q == ToSender {
				s.newIndex()
			}
			if changed := s.changed.Load(); changed != nil {
				(*changed)(q, base(cmp.Or(is, was)).Name)
			}
		},
	})}
}

// OnChange sets a function to be called after each change of a receiver or a sender, with the queue to it. The goroutine that reads the
// registry calls it, so it must not block.
func (s *Registry) OnChange(changed func(q Queue, owner string)) { s.changed.Store(&changed) }

// Window is the ownership of a receiver's rate window. A process writes it before its first POST, and owns the window as long as the revision is its
// own. If it finds that of another process, it does not know the times of the last POSTs, unless Left is set.
type Window struct {
	// Left reports that the owner has stopped counting. A build that does not know this field assumes that the window is full.
	Left bool `json:"stopped,omitempty"`
	// Pin is the owner's pin. The owner recognizes its write by it if the answer was lost.
	Pin string `json:"pin,omitempty"`
	// Posts are the POSTs in the window when this was written, the oldest first. They have ages instead of times, because the clocks of two processes
	// differ and may be set.
	Posts    []gate.Posts `json:"posts,omitempty"`
	Revision uint64       `json:"-"`
}

func (s *Registry) windowSubject(receiver string) string {
	return s.kvSubject(systems.RelayState, "window."+tokens.Subject(receiver))
}

// Window reads a window. Revision 0 means that there is none. A value that cannot be decoded counts as that of an owner that has saved nothing.
func (s *Registry) Window(ctx context.Context, receiver string) (Window, error) {
	entry, err := jsstream.Last(ctx, s.js, s.state, s.windowSubject(receiver))
	if err = jsstream.ReadError(err, "a window"); errors.Is(err, ErrNotFound) {
		return Window{}, nil
	} else if err != nil {
		return Window{}, err
	}
	var w Window
	if json.Unmarshal(entry.Data, &w) != nil {
		w = Window{}
	}
	w.Revision = entry.Sequence
	return w, nil
}

// PutWindow replaces the window with w's revision, and waits for the disk: an older window would let POSTs exceed the limit. It returns ErrConflict
// if another process was faster.
func (s *Registry) PutWindow(ctx context.Context, receiver string, w Window) (uint64, error) {
	data, err := json.Marshal(w)
	if err != nil {
		return 0, fmt.Errorf("write the window of %q: %w", receiver, err)
	}
	m := &nats.Msg{Subject: s.windowSubject(receiver), Data: data}
	seq, err := s.write(ctx, m, jetstream.WithExpectLastSequencePerSubject(w.Revision))
	if err == nil {
		err = s.durable(ctx, s.state.CachedInfo().Config.Name, seq)
	}
	return seq, err
}

// DropWindow removes the rate window of a deleted receiver.
func (s *Registry) DropWindow(ctx context.Context, receiver string) error {
	if err := s.state.Purge(ctx, jetstream.WithPurgeSubject(s.windowSubject(receiver))); err != nil {
		return fmt.Errorf("%w: remove the window of %q: %w", ErrUnavailable, receiver, err)
	}
	return nil
}

// senderIndex finds senders by prefix and token, even among many. It has hashes of tokens, so that the time of a search reveals nothing about a
// token.
type senderIndex struct {
	byPrefix map[string][]owner // each sorted by name
	longest  int                // prefix, in bytes
	tokens   map[[sha256.Size]byte]bool
}

type owner struct {
	name  string
	token [sha256.Size]byte
}

// newSenderIndex builds the index of senders that are sorted by name.
func newSenderIndex(all []Sender) *senderIndex {
	x := &senderIndex{byPrefix: map[string][]owner{}, tokens: map[[sha256.Size]byte]bool{}}
	for _, s := range all {
		one := owner{s.Name, sha256.Sum256([]byte(s.Token))}
		x.tokens[one.token] = true
		for _, prefix := range s.Sources {
			x.byPrefix[prefix] = append(x.byPrefix[prefix], one)
			x.longest = max(x.longest, len(prefix))
		}
	}
	return x
}

// find returns the first sender by name that fits, of those with the longest prefix of a source, or "". Several may have the same prefix.
func (x *senderIndex) find(source string, fits func(owner) bool) string {
	for n := min(len(source), x.longest); n >= 0; n-- {
		if owners := x.byPrefix[source[:n]]; len(owners) > 0 {
			if i := slices.IndexFunc(owners, fits); i >= 0 {
				return owners[i].name
			}
			return ""
		}
	}
	return ""
}

// newIndex makes the next search build the index. It is called after each change, so an index has all changes before its first search.
func (s *Registry) newIndex() {
	build := sync.OnceValue(func() *senderIndex { return newSenderIndex(s.Senders.All()) })
	s.index.Store(&build)
}

func (s *Registry) senderIndex() *senderIndex { return (*s.index.Load())() }

// OwnerOf returns the first sender by name with the longest prefix of a source, or "".
func (s *Registry) OwnerOf(source string) string {
	return s.senderIndex().find(source, func(owner) bool { return true })
}

// OwnerByToken returns the first sender with the token, of those with the longest prefix of a source, or "".
func (s *Registry) OwnerByToken(source, token string) string {
	hash := sha256.Sum256([]byte(token))
	return s.senderIndex().find(source, func(o owner) bool { return o.token == hash })
}

// KnowsToken reports whether a sender has the token.
func (s *Registry) KnowsToken(token string) bool {
	return token != "" && s.senderIndex().tokens[sha256.Sum256([]byte(token))]
}
