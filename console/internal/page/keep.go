package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/stored"
)

// Keep keeps what outlives the process of the console: the log of actions, the operations and the values of charts.
type Keep interface {
	// Read reads all values whose keys match, such as "log.>".
	Read(ctx context.Context, keys string) (map[string]Kept, error)
	Put(ctx context.Context, key string, data []byte) error
	// Swap replaces the value of a revision, 0 for none. [stored.ErrConflict]: it is another one.
	Swap(ctx context.Context, key string, data []byte, revision uint64) (uint64, error)
}

// Kept is a value with its revision.
type Kept struct {
	Data     []byte
	Revision uint64
}

const (
	keyOperation = "operation."
	keyChosen    = "chosen."
)

// Restore reads the operations that earlier processes have kept, and keeps those of this one. Run comes after it.
func (r *Runner) Restore(ctx context.Context, keep Keep) error {
	operations, err := keep.Read(ctx, keyOperation+">")
	if err != nil {
		return err
	}
	objects, err := keep.Read(ctx, keyChosen+">")
	if err != nil {
		return err
	}
	r.mu.Lock()
	for key, kept := range objects {
		var c chosen
		if json.Unmarshal(kept.Data, &c) == nil {
			r.chosen[strings.TrimPrefix(key, keyChosen)] = c
		}
	}
	r.mu.Unlock()
	r.records.mu.Lock()
	defer r.records.mu.Unlock()
	r.records.keep = keep
	for _, kept := range operations {
		r.records.know(kept)
	}
	return nil
}

// Hold has no operation begin, until it ends or Restore has succeeded.
func (r *Runner) Hold(hold bool) {
	r.records.mu.Lock()
	defer r.records.mu.Unlock()
	r.records.held = hold
}

// choose keeps the objects of an operation, so that it continues after a restart.
func (r *Runner) choose(ctx context.Context, key string, c chosen) error {
	r.records.mu.Lock()
	keep := r.records.keep
	r.records.mu.Unlock()
	if keep != nil {
		data, err := json.Marshal(c)
		if err == nil {
			err = keep.Put(ctx, keyChosen+key, data)
		}
		if err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chosen[key] = c
	return nil
}

// interrupted is the state of an operation that this process does not continue.
const interrupted bulk.State = "INTERRUPTED"

// ofNATS reports whether a kind of operations changes objects of the NATS account alone. Only these continue from what is kept: whoever may write
// there could do them anyway, but has no token of the broker, the relay or the feed.
func ofNATS(kind string) bool {
	consumers := objects[*consumer]{noun: "consumer"}
	return kind == kindRequeue || kind == kindPurge ||
		slices.ContainsFunc(consumerOffers, func(each offer) bool { return consumers.kind(each) == kind })
}

// know takes over the record of an operation. The caller holds the lock.
func (m *memory) know(kept Kept) {
	var o bulk.Operation
	if json.Unmarshal(kept.Data, &o) == nil && o.ID != "" {
		o.Revision = kept.Revision
		if o.State == bulk.Running && !ofNATS(o.Kind) {
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
