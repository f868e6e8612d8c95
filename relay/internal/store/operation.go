package store

import (
	"context"
	"slices"

	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/registry"
)

// The kinds of operations on failed messages.
const (
	Redrive = "redrive"
	Skip    = "skip"
	Purge   = "purge"
)

const (
	keyOperation = "operation."
	// maxOperations is how many operations of a kind are kept.
	maxOperations = 100
)

// Selection selects the failed messages of an operation.
type Selection struct {
	Seqs   []uint64 `json:"seqs,omitempty"` // in ascending order; nil with a Filter
	Filter *Filter  `json:"filter,omitempty"`
}

// openOperations reads the operations and follows them until run ends.
func (s *Failed) openOperations(ctx, run context.Context) error {
	all := registry.New(registry.Config{JS: s.js, KV: s.stateKV, Stream: s.state, Leader: s.reader, Shared: !s.cfg.Embedded, Log: s.log})
	s.Operations = bulk.NewTable(all, keyOperation, maxOperations, nil)
	return s.follows(all.Open(ctx, run, s.reader))
}

// SelectFailed returns at most limit messages of a selection that are on the list, the oldest first, within a range of sequences.
// next is the sequence at which to continue, or 0 if there are no more.
func (s *Failed) SelectFailed(sel Selection, from, to uint64, limit int) (items []Item, next uint64) {
	s.index.forget(s.Now().Add(-failedAge))
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	for _, l := range s.index.order[s.index.place(from):] {
		switch {
		case l.Seq > to:
			return items, 0
		case l.off || !sel.match(&l.Item):
		case len(items) == limit:
			return items, l.Seq
		default:
			items = append(items, l.Item)
		}
	}
	return items, 0
}

func (s *Selection) match(i *Item) bool {
	if s.Filter != nil {
		return s.Filter.Match(i)
	}
	_, found := slices.BinarySearch(s.Seqs, i.Seq)
	return found
}
