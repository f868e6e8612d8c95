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

// Store has values by their keys, in memory until [Store.Restore], which has them outlive the process. It may be used by several goroutines.
type Store[T any] struct {
	prefix string
	most   int
	later  func(own, kept T) bool
	decode func(*jetstream.RawStreamMsg) (T, error)

	mu   sync.Mutex
	all  map[string]T
	keep Keep // nil: this process alone has the values
}

// NewStore makes a store whose keys begin with prefix where they are kept. In memory are at most as many values as most, those of the greatest keys,
// or all if it is 0. Later reports whether a value of this process counts instead of one of the same key that was kept; nil: a store that has values
// of this process stays in memory.
func NewStore[T any](prefix string, most int, later func(own, kept T) bool) *Store[T] {
	decode := func(kept *jetstream.RawStreamMsg) (one T, err error) {
		err = json.Unmarshal(kept.Data, &one)
		return one, err
	}
	return &Store[T]{prefix: prefix, most: most, later: later, decode: decode, all: map[string]T{}}
}

// Restore reads the values that earlier processes have kept, except those that cannot be decoded, and keeps those of this one.
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

// Set keeps a value before it counts.
func (s *Store[T]) Set(ctx context.Context, key string, one T) error {
	data, err := json.Marshal(one)
	if err != nil {
		return err
	}
	s.mu.Lock()
	keep := s.keep
	if keep == nil { // under the lock, so that Restore keeps it
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

// Hold has a value in memory alone.
func (s *Store[T]) Hold(key string, one T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all[key] = one
	s.bound()
}

// Drop forgets a value in memory alone.
func (s *Store[T]) Drop(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, key)
}

// bound forgets the values of the least keys. The caller holds the lock.
func (s *Store[T]) bound() {
	if s.most > 0 && len(s.all) > s.most {
		keys := slices.Sorted(maps.Keys(s.all))
		for _, key := range keys[:len(keys)-s.most] {
			delete(s.all, key)
		}
	}
}

// Get is the value of a key, if there is one.
func (s *Store[T]) Get(key string) (one T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok = s.all[key]
	return one, ok
}

// All are the values.
func (s *Store[T]) All() map[string]T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.all)
}
