package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/stored"
)

// ID identifies a record, by its name alone or within a group.
type ID struct{ Group, Name string }

// Kind configures how the records of one kind are stored.
type Kind[T any] struct {
	// Prefix is the prefix of the keys and ends with a dot. No prefix in a registry may be a prefix of another.
	Prefix string
	// Key returns the rest of a record's key.
	Key func(ID) string
	// Encode returns the value that is stored for a record, as JSON.
	Encode func(T) any
	// Decode decodes a stored entry.
	Decode func(Entry) (ID, T, error)
	// Known is called with a new or changed record before the table returns it, so that a caller who has found it can rely on what Known did. Changed
	// is called after each change, with the old and the new record, each of which may be nil. Both run on the goroutine that follows the bucket,
	// without a lock, and must not block, because a write of this process returns after them. Both may be nil.
	Known   func(is T)
	Changed func(was, is *T)
}

// Table holds the records of one kind in memory.
type Table[T any] struct {
	r    *Registry
	kind Kind[T]

	mu      sync.RWMutex
	records map[string]map[string]T // by group, then name
	ids     map[string]held         // by key
}

// held is a record in memory.
type held struct {
	ID
	revision uint64
}

// Add adds a table to a registry that is not open yet.
func Add[T any](r *Registry, kind Kind[T]) *Table[T] {
	t := &Table[T]{r: r, kind: kind, records: map[string]map[string]T{}, ids: map[string]held{}}
	r.tables = append(r.tables, t)
	return t
}

func (t *Table[T]) prefix() string { return t.kind.Prefix }

func (t *Table[T]) key(id ID) string { return t.kind.Prefix + t.kind.Key(id) }

func (t *Table[T]) apply(e Entry, gone bool) error {
	var id ID
	var value T
	if !gone {
		var err error
		if id, value, err = t.kind.Decode(e); err != nil {
			return err
		}
		if t.kind.Known != nil {
			t.kind.Known(value)
		}
	}
	was := t.replace(e, id, value, gone)
	is := &value
	if gone {
		is = nil
	}
	if t.kind.Changed != nil && (was != nil || is != nil) {
		t.kind.Changed(was, is)
	}
	return nil
}

// replace replaces the record in memory for a key, and returns the old one.
func (t *Table[T]) replace(e Entry, id ID, value T, gone bool) (was *T) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old, ok := t.ids[e.Key]; ok {
		before := t.records[old.Group][old.Name]
		was = &before
		delete(t.ids, e.Key)
		delete(t.records[old.Group], old.Name)
		if len(t.records[old.Group]) == 0 {
			delete(t.records, old.Group)
		}
	}
	if gone {
		return was
	}
	if t.records[id.Group] == nil {
		t.records[id.Group] = map[string]T{}
	}
	t.records[id.Group][id.Name] = value
	t.ids[e.Key] = held{id, e.Revision}
	return was
}

// restore implements applier. It keeps a record that was written since.
func (t *Table[T]) restore(ctx context.Context) error {
	t.mu.RLock()
	ids := maps.Clone(t.ids)
	t.mu.RUnlock()
	for key, had := range ids {
		raw, err := t.r.cfg.Leader.AskLeader(ctx, "KV_"+t.r.bucket, t.r.subject(key))
		revision := uint64(0)
		switch {
		case err == nil:
			revision = raw.Sequence
		case !errors.Is(err, stored.ErrNotFound):
			return err
		}
		value, ok := t.Cached(had.ID)
		if !ok || revision >= had.revision {
			continue
		}
		data, err := t.encode(had.ID, value)
		if err != nil {
			return err
		}
		if _, err := t.r.cfg.KV.Update(ctx, key, data, revision); err != nil && !jsstream.Refused(err) {
			return jsstream.WriteError(&nats.Msg{Subject: t.r.subject(key), Data: data}, err)
		}
	}
	return nil
}

// Cached returns a record as known to this process.
func (t *Table[T]) Cached(id ID) (T, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	value, ok := t.records[id.Group][id.Name]
	return value, ok
}

// Find returns a record from memory. If it is not there, Find reads the bucket, because another process may have just created the record.
func (t *Table[T]) Find(ctx context.Context, id ID) (T, error) {
	if value, ok := t.Cached(id); ok {
		return value, nil
	}
	return t.Fresh(ctx, id)
}

// Fresh returns a record as the bucket has it now. Then this process knows it too. A deleted record is not found because the bucket has its marker.
// If the bucket's leader has no entry, that proves nothing, because a replica may be ahead of it.
func (t *Table[T]) Fresh(ctx context.Context, id ID) (value T, err error) {
	if t.r.cfg.Shared {
		if err = t.r.look(ctx, t.key(id)); err != nil {
			return value, err
		}
	}
	value, ok := t.Cached(id)
	if !ok {
		err = fmt.Errorf("%w: registry key %s", stored.ErrNotFound, t.key(id))
	}
	return value, err
}

// UpToNow returns when this process knows all records that the bucket has now.
func (t *Table[T]) UpToNow(ctx context.Context) error {
	if !t.r.cfg.Shared {
		return nil
	}
	return t.r.look(ctx, t.kind.Prefix+">")
}

// All returns the records of all groups, in no particular order.
func (t *Table[T]) All() []T {
	t.mu.RLock()
	defer t.mu.RUnlock()
	list := make([]T, 0, len(t.ids))
	for _, group := range t.records {
		for _, value := range group {
			list = append(list, value)
		}
	}
	return list
}

// In returns the records of a group, in no particular order.
func (t *Table[T]) In(group string) []T {
	t.mu.RLock()
	defer t.mu.RUnlock()
	list := make([]T, 0, len(t.records[group]))
	for _, value := range t.records[group] {
		list = append(list, value)
	}
	return list
}

// Put replaces the record with that revision, or creates one if revision is 0. It returns the new revision when this process knows the record. The
// bucket removes a record that replaces another after keep. 0 means that it stays.
func (t *Table[T]) Put(ctx context.Context, id ID, value T, revision uint64, keep time.Duration) (uint64, error) {
	data, err := t.encode(id, value)
	if err != nil {
		return 0, err
	}
	if revision == 0 {
		return t.r.create(ctx, t.key(id), data)
	}
	return t.r.replace(ctx, t.key(id), &nats.Msg{Data: data}, revision, keep)
}

func (t *Table[T]) encode(id ID, value T) ([]byte, error) {
	data, err := json.Marshal(t.kind.Encode(value))
	if err != nil {
		return nil, fmt.Errorf("encode registry key %s: %w", t.key(id), err)
	}
	return data, nil
}

// Delete removes the record with that revision, and returns when this process knows that. The bucket keeps a marker for remember, for processes that
// are cut off. 0 means forever.
func (t *Table[T]) Delete(ctx context.Context, id ID, revision uint64, remember time.Duration) error {
	_, err := t.r.replace(ctx, t.key(id), &nats.Msg{Header: nats.Header{"KV-Operation": {"DEL"}}}, revision, remember)
	return err
}

// Purge removes the records of a group from the bucket, without markers. Each process must call [Table.Forget].
func (t *Table[T]) Purge(ctx context.Context, group string) error {
	subject := t.r.subject(t.kind.Prefix + t.kind.Key(ID{Group: group, Name: "*"}))
	return t.r.cfg.Stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
}

// Forget removes from memory the records of a group that was purged from the bucket.
func (t *Table[T]) Forget(group string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name := range t.records[group] {
		delete(t.ids, t.key(ID{group, name}))
	}
	delete(t.records, group)
}
