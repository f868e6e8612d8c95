package operation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
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
