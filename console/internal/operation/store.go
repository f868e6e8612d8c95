package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/stored"
)

// Store holds values by key, in memory until [Store.Restore], which keeps them beyond the end of the process. It is safe for concurrent use.
type Store[T any] struct {
	prefix string
	most   int
	later  func(own, kept T) bool
	decode func(*jetstream.RawStreamMsg) (T, error)

	mu   sync.Mutex
	all  map[string]T
	keep Keep // nil: the values are only in this process
}

// NewStore returns a store. prefix is the prefix of its keys where they are kept. It holds up to most values in memory, those with the greatest
// keys, or all if most is 0. later reports whether a value of this process replaces a kept value with the same key. If later is nil, a store that
// already has values of this process stays in memory.
func NewStore[T any](prefix string, most int, later func(own, kept T) bool) *Store[T] {
	decode := func(kept *jetstream.RawStreamMsg) (one T, err error) {
		err = json.Unmarshal(kept.Data, &one)
		return one, err
	}
	return &Store[T]{prefix: prefix, most: most, later: later, decode: decode, all: map[string]T{}}
}

// Restore reads the values that earlier processes have kept, except those that cannot be decoded, and keeps those of this process.
func (s *Store[T]) Restore(ctx context.Context, keep Keep) error {
	kept, err := keep.Read(ctx, s.prefix+">")
	if err != nil {
		return err
	}
	s.mu.Lock()
	own := maps.Clone(s.all)
	if s.later == nil && len(own) > 0 {
		s.mu.Unlock()
		return nil
	}
	s.keep = keep
	for _, key := range slices.Sorted(maps.Keys(kept)) {
		one, err := s.decode(kept[key])
		if err != nil {
			continue
		}
		key = strings.TrimPrefix(key, s.prefix)
		if mine, ok := own[key]; !ok || !s.later(mine, one) {
			s.all[key] = one
			delete(own, key)
		}
	}
	s.bound()
	s.mu.Unlock()
	for key, one := range own {
		if err := s.Set(ctx, key, one); err != nil {
			return err
		}
	}
	return nil
}

// Set keeps a value, and then holds it in memory.
func (s *Store[T]) Set(ctx context.Context, key string, one T) error {
	data, err := json.Marshal(one)
	if err != nil {
		return err
	}
	s.mu.Lock()
	keep := s.keep
	if keep == nil { // under the lock, so that Restore keeps the value
		s.all[key] = one
		s.bound()
	}
	s.mu.Unlock()
	if keep == nil {
		return nil
	}
	if _, err := keep.Put(ctx, s.prefix+key, data); err != nil {
		return fmt.Errorf("keep %s%s: %w", s.prefix, key, err)
	}
	s.Hold(key, one)
	return nil
}

// Hold sets a value only in memory.
func (s *Store[T]) Hold(key string, one T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[key] = one
	s.bound()
}

// Drop removes a value only from memory.
func (s *Store[T]) Drop(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, key)
}

// bound removes the values with the least keys beyond most. The caller holds the lock.
func (s *Store[T]) bound() {
	if s.most > 0 && len(s.all) > s.most {
		keys := slices.Sorted(maps.Keys(s.all))
		for _, key := range keys[:len(keys)-s.most] {
			delete(s.all, key)
		}
	}
}

// Get returns the value of a key, if there is one.
func (s *Store[T]) Get(key string) (one T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok = s.all[key]
	return one, ok
}

// All returns all values, by key.
func (s *Store[T]) All() map[string]T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.all)
}

// records holds the records of operations, by ID. It implements [bulk.Records].
type records struct {
	*Store[bulk.Operation]
	held    bool // no operation may begin, because the kept ones have not been read; guarded by Store.mu
	process string
	// continued contains the kinds of operations that continue after a restart. It does not change after the pages were created.
	continued map[string]bool
}

// newRecords returns empty records. Operations that this process began without a bucket stay in memory, because the bucket may have the same IDs.
func newRecords(process string) *records {
	r := &records{Store: NewStore[bulk.Operation]("operation.", 0, nil), process: process, continued: map[string]bool{}}
	r.decode = func(kept *jetstream.RawStreamMsg) (o bulk.Operation, err error) {
		if err = json.Unmarshal(kept.Data, &o); err == nil && o.ID == "" {
			err = errors.New("it is no operation")
		}
		o.Revision = kept.Sequence
		return o, err
	}
	return r
}

// Put implements [bulk.Records].
func (r *records) Put(ctx context.Context, o bulk.Operation) (bulk.Operation, error) {
	r.mu.Lock()
	if keep := r.keep; keep != nil {
		r.mu.Unlock()
		return r.swap(ctx, keep, o)
	}
	defer r.mu.Unlock()
	if r.held {
		return o, fmt.Errorf("%w: the operations of the console have not been read yet", stored.ErrUnavailable)
	}
	if r.all[o.ID].Revision != o.Revision {
		return o, stored.ErrConflict
	}
	o.Revision++
	r.all[o.ID] = o
	return o, nil
}

// swap writes a record to the bucket by compare-and-swap.
func (r *records) swap(ctx context.Context, keep Keep, o bulk.Operation) (bulk.Operation, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return o, err
	}
	revision, err := keep.Update(ctx, r.prefix+o.ID, data, o.Revision)
	if err != nil {
		err = jsstream.WriteError(&nats.Msg{Subject: r.prefix + o.ID, Data: data}, err)
		if errors.Is(err, stored.ErrConflict) { // another console uses the same bucket
			err = errors.Join(err, r.reread(ctx, keep, o.ID))
		}
		return o, err
	}
	o.Revision = revision
	r.Hold(o.ID, o)
	return o, nil
}

// reread reads the record of an operation that another console has written.
func (r *records) reread(ctx context.Context, keep Keep, id string) error {
	found, err := keep.Read(ctx, r.prefix+id)
	for _, kept := range found {
		if now, err := r.decode(kept); err == nil {
			r.Hold(id, now)
		}
	}
	return err
}

// interrupted is the state of an operation that this process does not continue.
const interrupted bulk.State = "INTERRUPTED"

// here returns an operation with its state in this process.
func (r *records) here(o bulk.Operation) bulk.Operation {
	if o.State == bulk.Running && o.Owner != r.process && !r.continued[o.Kind] {
		o.State = interrupted
	}
	return o
}

// Fresh implements [bulk.Records].
func (r *records) Fresh(_ context.Context, id string) (bulk.Operation, error) {
	if o, ok := r.Cached(id); ok {
		return o, nil
	}
	return bulk.Operation{}, fmt.Errorf("%w: operation %q", stored.ErrNotFound, id)
}

// Cached implements [bulk.Records].
func (r *records) Cached(id string) (bulk.Operation, bool) {
	o, ok := r.Get(id)
	return r.here(o), ok
}

// In implements [bulk.Records]. All operations are of one group.
func (r *records) In(string) []bulk.Operation { return r.All() }

// All implements [bulk.Records].
func (r *records) All() []bulk.Operation {
	all := slices.Collect(maps.Values(r.Store.All()))
	for i, o := range all {
		all[i] = r.here(o)
	}
	return all
}
