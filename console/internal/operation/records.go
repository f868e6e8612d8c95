package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/stored"
)

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

// maxOperations is the number of operations that are remembered without a bucket.
const maxOperations = 200

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
	if len(r.all) > maxOperations {
		r.forgetOldest()
	}
	return o, nil
}

// forgetOldest removes the operation that ended first. The caller holds the lock.
func (r *records) forgetOldest() {
	oldest := ""
	for id, o := range r.all {
		if o.State != bulk.Running && (oldest == "" || o.ChangedAt.Before(r.all[oldest].ChangedAt)) {
			oldest = id
		}
	}
	delete(r.all, oldest)
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
