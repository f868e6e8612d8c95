package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/stored"
)

const keyOperation = "operation."

// memory keeps the records of operations in this process. It implements [bulk.Records].
type memory struct {
	mu       sync.Mutex
	revision uint64
	all      map[string]bulk.Operation
	keep     Keep // nil: the records are in memory alone
	held     bool // no operation begins, since what is kept has not been read
	// continued are the kinds of operations that go on after a restart. It does not change after the pages were made.
	continued map[string]bool
}

// maxOperations is how many operations are remembered.
const maxOperations = 200

// Put implements [bulk.Records].
func (m *memory) Put(ctx context.Context, o bulk.Operation) (bulk.Operation, error) {
	m.mu.Lock()
	if keep := m.keep; keep != nil {
		m.mu.Unlock()
		return m.swap(ctx, keep, o)
	}
	defer m.mu.Unlock()
	if m.held {
		return o, fmt.Errorf("%w: the operations of the console have not been read yet", stored.ErrUnavailable)
	}
	if m.all[o.ID].Revision != o.Revision {
		return o, stored.ErrConflict
	}
	m.revision++
	o.Revision = m.revision
	m.all[o.ID] = o
	if len(m.all) > maxOperations {
		m.forgetOldest()
	}
	return o, nil
}

// forgetOldest drops the operation that ended first. The caller holds the lock.
func (m *memory) forgetOldest() {
	oldest := ""
	for id, o := range m.all {
		if o.State != bulk.Running && (oldest == "" || o.ChangedAt.Before(m.all[oldest].ChangedAt)) {
			oldest = id
		}
	}
	delete(m.all, oldest)
}

// Fresh implements [bulk.Records].
func (m *memory) Fresh(_ context.Context, id string) (bulk.Operation, error) {
	if o, ok := m.Cached(id); ok {
		return o, nil
	}
	return bulk.Operation{}, fmt.Errorf("%w: operation %q", stored.ErrNotFound, id)
}

// Cached implements [bulk.Records].
func (m *memory) Cached(id string) (bulk.Operation, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.all[id]
	return o, ok
}

// In implements [bulk.Records]. All operations are of one group.
func (m *memory) In(string) []bulk.Operation { return m.All() }

// All implements [bulk.Records].
func (m *memory) All() []bulk.Operation {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []bulk.Operation
	for _, o := range m.all {
		all = append(all, o)
	}
	return all
}

// interrupted is the state of an operation that this process does not continue.
const interrupted bulk.State = "INTERRUPTED"

// know takes over the record of an operation. The caller holds the lock.
func (m *memory) know(kept Kept) {
	var o bulk.Operation
	if json.Unmarshal(kept.Data, &o) == nil && o.ID != "" {
		o.Revision = kept.Revision
		if o.State == bulk.Running && !m.continued[o.Kind] {
			o.State = interrupted
		}
		m.all[o.ID] = o
	}
}

// swap writes a record to where it is kept. The caller does not hold the lock.
func (m *memory) swap(ctx context.Context, keep Keep, o bulk.Operation) (bulk.Operation, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return o, err
	}
	revision, err := keep.Swap(ctx, keyOperation+o.ID, data, o.Revision)
	if errors.Is(err, stored.ErrConflict) {
		// Another console has the same bucket.
		found, readErr := keep.Read(ctx, keyOperation+o.ID)
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, kept := range found {
			m.know(kept)
		}
		return o, errors.Join(err, readErr)
	}
	if err != nil {
		return o, fmt.Errorf("keep the operation %s: %w", o.ID, err)
	}
	o.Revision = revision
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[o.ID] = o
	return o, nil
}
