// Package bulk applies one operation to many items. An operation counts the items in a dry run, processes them at a rate, saves its progress, can be
// cancelled, and continues after a restart or in another process.
//
// The record of an operation is in a bucket that all processes follow. The process that began an operation runs it. If a process has not saved its
// operation for some time, another process takes it over. For a moment both may run it, so the function for one item must ensure that the item is
// done once, for example with a compare-and-swap.
package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/internal/registry"
	"github.com/jetpull/jetpull/internal/stored"
)

// State is the state of an operation.
type State string

// The states of an operation.
const (
	Running   State = "RUNNING"
	Done      State = "DONE"
	Cancelled State = "CANCELLED"
)

// Operation is the record of an operation.
type Operation struct {
	// ID is unique among the operations of a bucket.
	ID string
	// Kind names the [Kind], which selects the items.
	Kind string
	// Group is one token of a NATS subject without a hyphen. Number counts the operations of a group from 1. It is 0 for an operation of an earlier
	// build.
	Group  string `json:",omitempty"`
	Number uint64 `json:",omitempty"`
	// By names who began the operation.
	By string `json:",omitempty"`
	// Spec is the selection of items, in the kind's own form.
	Spec json.RawMessage
	// Rate is the maximum number of items started per second. 0 means no limit.
	Rate  float64 `json:",omitempty"`
	State State
	// UpTo is the last change that was stored when the operation began. Later changes are not selected.
	UpTo uint64
	// Next is the position at which the operation continues. 0 means the end.
	Next uint64
	// Matched is the number of items selected at the start. Skipped items no longer had to be done when their turn came. Failed items cannot be done,
	// for example because their record cannot be decoded, and stay unchanged. A process that is killed loses the counts since its last save.
	Matched, Done, Skipped int
	Failed                 int `json:",omitempty"`
	// Owner is the process that runs the operation, or empty.
	Owner     string `json:",omitempty"`
	CreatedAt time.Time
	ChangedAt time.Time
	// Revision is the revision of the record, or 0 if it is not stored yet.
	Revision uint64 `json:"-"`
}

// RunningError reports that an operation is running in a group that may have only one at a time.
type RunningError struct{ ID string }

// Error implements error.
func (e *RunningError) Error() string {
	return "operation " + e.ID + " is running: wait for its end or cancel it"
}

// Records stores operations. [Table] implements it.
type Records interface {
	// Put replaces the operation with the revision of o, and returns o with its new revision. A new operation replaces an old one that has ended. Put
	// returns [stored.ErrConflict] if the record has changed.
	Put(ctx context.Context, o Operation) (Operation, error)
	// Fresh returns an operation as stored, or [stored.ErrNotFound] or [stored.ErrUnavailable].
	Fresh(ctx context.Context, id string) (Operation, error)
	// Cached returns an operation as known to this process.
	Cached(id string) (Operation, bool)
	// In returns the operations of a group, and All those of all groups, as known to this process, in no particular order.
	In(group string) []Operation
	All() []Operation
}

// Table holds the operations of a registry's bucket in memory. Each group has a fixed number of places, so that a new operation replaces an old one
// by compare-and-swap, which leaves no delete markers.
type Table struct {
	table *registry.Table[Operation]
	kept  uint64
}

// NewTable adds a table to a registry that is not open yet. kept is the number of places of a group. earlier decodes entries of earlier builds, which
// have no kind. If it is nil, they are ignored.
func NewTable(r *registry.Registry, prefix string, kept uint64, earlier func(registry.Entry) (Operation, error)) *Table {
	t := &Table{kept: kept}
	t.table = registry.Add(r, registry.Kind[Operation]{
		Prefix: prefix,
		Key:    key,
		Encode: func(o Operation) any { return o },
		Decode: func(e registry.Entry) (registry.ID, Operation, error) {
			var o Operation
			err := json.Unmarshal(e.Value, &o)
			if o.Kind == "" && earlier != nil {
				o, err = earlier(e)
			}
			if err == nil && o.Kind == "" {
				err = errors.New("it is an operation without a kind")
			}
			o.Revision = e.Revision
			place := t.place(o.ID)
			if err == nil && (prefix+key(place) != e.Key || o.Number > 0 && o.ID != ID(o.Group, o.Number)) {
				err = fmt.Errorf("it names operation %.100q of group %.100q", o.ID, o.Group) // it would replace that operation
			}
			return place, o, err
		},
	})
	return t
}

func key(id registry.ID) string {
	if id.Group == "" {
		return id.Name
	}
	return id.Group + "." + id.Name
}

var identifier = regexp.MustCompile(`^[0-9A-Za-z]+(-[0-9]+)?$`)

// ID returns the identifier of the n-th operation of a group.
func ID(group string, n uint64) string { return group + "-" + strconv.FormatUint(n, 10) }

// place returns where an operation is stored. An operation of an earlier build, whose identifier has no number, has a place of its own.
func (t *Table) place(id string) registry.ID {
	group, digits, _ := strings.Cut(id, "-")
	if n, err := strconv.ParseUint(digits, 10, 64); err == nil {
		return registry.ID{Group: group, Name: strconv.FormatUint(n%t.kept, 10)}
	}
	return registry.ID{Name: id}
}

// Put implements [Records].
func (t *Table) Put(ctx context.Context, o Operation) (Operation, error) {
	place, revision := t.place(o.ID), o.Revision
	if revision == 0 {
		older, _ := t.table.Cached(place)
		if older.State == Running || older.Number >= o.Number {
			return o, fmt.Errorf("%w: operation %s has the place of %s", stored.ErrConflict, older.ID, o.ID)
		}
		revision = older.Revision
	}
	revision, err := t.table.Put(ctx, place, o, revision, 0)
	if err == nil {
		o.Revision = revision
	}
	return o, err
}

// Fresh implements [Records].
func (t *Table) Fresh(ctx context.Context, id string) (Operation, error) {
	if !identifier.MatchString(id) { // it would result in another subject
		return Operation{}, fmt.Errorf("%w: operation %q", stored.ErrNotFound, id)
	}
	o, err := t.table.Fresh(ctx, t.place(id))
	if err == nil && o.ID != id || errors.Is(err, stored.ErrNotFound) {
		return Operation{}, fmt.Errorf("%w: operation %q", stored.ErrNotFound, id)
	}
	return o, err
}

// Cached implements [Records].
func (t *Table) Cached(id string) (Operation, bool) {
	o, ok := t.table.Cached(t.place(id))
	return o, ok && o.ID == id
}

// In implements [Records].
func (t *Table) In(group string) []Operation { return t.table.In(group) }

// All implements [Records].
func (t *Table) All() []Operation { return t.table.All() }

// Forget removes the operations of a group from memory. A process that runs one of them stops when it next saves it.
func (t *Table) Forget(group string) { t.table.Forget(group) }

// Purge removes the operations of a group from the bucket without markers. Each process must call Forget.
func (t *Table) Purge(ctx context.Context, group string) error { return t.table.Purge(ctx, group) }
