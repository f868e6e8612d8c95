package natstest

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// Bucket is a key-value bucket in memory. It supports Get, Create, Update and Delete.
type Bucket struct {
	jetstream.KeyValue

	// Before is called before each request. If it returns an error, the request fails with it. Before may be nil.
	Before func() error

	mu      sync.Mutex
	entries map[string]bucketEntry
	writes  uint64
}

type bucketEntry struct {
	jetstream.KeyValueEntry

	value    []byte
	revision uint64
}

func (e bucketEntry) Value() []byte    { return e.value }
func (e bucketEntry) Revision() uint64 { return e.revision }

// Bucket returns the name of the bucket.
func (b *Bucket) Bucket() string { return "bucket" }

// do executes a request.
func (b *Bucket) do(ctx context.Context, f func() error) error {
	if b.Before != nil {
		if err := b.Before(); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return f()
}

// Get returns the entry of a key.
func (b *Bucket) Get(ctx context.Context, key string) (found jetstream.KeyValueEntry, err error) {
	err = b.do(ctx, func() error {
		e, ok := b.entries[key]
		if !ok {
			return jetstream.ErrKeyNotFound
		}
		found = e
		return nil
	})
	return found, err
}

// Update stores a value if the key has the given revision. 0 means that there is no value.
func (b *Bucket) Update(ctx context.Context, key string, value []byte, revision uint64) (now uint64, err error) {
	err = b.do(ctx, func() error {
		if b.entries[key].revision != revision {
			return jetstream.ErrKeyExists
		}
		now = b.store(key, value)
		return nil
	})
	return now, err
}

// Create stores a value if there is none.
func (b *Bucket) Create(ctx context.Context, key string, value []byte, _ ...jetstream.KVCreateOpt) (uint64, error) {
	return b.Update(ctx, key, value, 0)
}

// Delete deletes a key, regardless of its revision.
func (b *Bucket) Delete(ctx context.Context, key string, _ ...jetstream.KVDeleteOpt) error {
	return b.do(ctx, func() error {
		delete(b.entries, key)
		return nil
	})
}

func (b *Bucket) store(key string, value []byte) uint64 {
	if b.entries == nil {
		b.entries = map[string]bucketEntry{}
	}
	b.writes++
	b.entries[key] = bucketEntry{value: value, revision: b.writes}
	return b.writes
}

// Set stores a value, as another client would.
func (b *Bucket) Set(key, value string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.store(key, []byte(value))
}

// Size returns the number of keys, and how many values were stored so far.
func (b *Bucket) Size() (keys, writes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.entries), int(b.writes)
}
