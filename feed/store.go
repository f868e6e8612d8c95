package feed

import (
	"context"

	"github.com/rs/xid"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// CreatePartition creates a partition with its items, all or nothing. Of p it takes ID, Gate and Sealed, of items
// what [Store.Insert] takes; an empty ID is generated. It returns the partition as it is in the table. Errors are
// [ErrDuplicate], [ErrGatePassed] for an item below the partition's gate, and [ErrInvalid].
func (s *Store) CreatePartition(ctx context.Context, p Partition, items ...Item) (Partition, error) {
	if p.ID == "" {
		p.ID = xid.New().String()
	}
	row, err := s.sql.CreatePartition(ctx, sqlstore.Partition{ID: p.ID, Gate: p.Gate, Sealed: p.Sealed}, itemRows(items))
	if err != nil {
		return Partition{}, wrapped(err, "create partition %q", p.ID)
	}
	return partitionOf(&row), nil
}

// Insert adds items to a partition, all or none. It takes ID, Gate, Data and NotBefore; an empty ID is generated.
// Errors are [ErrNotFound], [ErrClosed] where the partition is sealed or Complete, [ErrGatePassed] for an item below
// its gate, [ErrDuplicate] and [ErrInvalid].
func (s *Store) Insert(ctx context.Context, partition string, items ...Item) error {
	return wrapped(s.sql.Insert(ctx, partition, itemRows(items)), "insert into partition %q", partition)
}

// Seal says that no more items will come: [Store.Insert] is then refused, and a watcher with [AutoClose] closes the
// partition after the last item. Sealing again does nothing. The error is [ErrNotFound].
func (s *Store) Seal(ctx context.Context, partition string) error {
	return wrapped(s.sql.Seal(ctx, partition), "seal: partition %q", partition)
}

// ClosePartition makes a partition Complete, sealed or not. Closing again does nothing. Errors are [ErrNotFound], and
// [ErrNotDone] while an item is not Complete.
func (s *Store) ClosePartition(ctx context.Context, partition string) error {
	return wrapped(s.sql.ClosePartition(ctx, partition), "close: partition %q", partition)
}

// Advance moves a partition to a gate. At the gate already it does nothing. Errors are [ErrNotFound], [ErrGatePassed]
// where the partition is above that gate, [ErrNotDone] while an item below the gate is not Complete, and [ErrClosed]
// where the partition is Complete.
func (s *Store) Advance(ctx context.Context, partition string, gate int) error {
	return wrapped(s.sql.Advance(ctx, partition, gate), "advance to gate %d: partition %q", gate, partition)
}

// Retry makes Failed items Available at once, with Attempt 0 and no Errors: the named ones, or all if none is named.
// Errors are [ErrNotFound], and [ErrConflict] for a named item that is not Failed; then none is changed.
func (s *Store) Retry(ctx context.Context, partition string, items ...string) error {
	return wrapped(s.sql.Retry(ctx, partition, items), "retry: partition %q", partition)
}

// Skip makes Failed items Complete without processing them, under the rules of [Store.Retry].
func (s *Store) Skip(ctx context.Context, partition string, items ...string) error {
	return wrapped(s.sql.Skip(ctx, partition, items), "skip: partition %q", partition)
}

// Reopen makes a Complete or Failed partition Available and unsealed, with its items as they were. The error is
// [ErrNotFound]. A partition whose gate is held by a Failed item fails again as soon as a watcher looks at it.
func (s *Store) Reopen(ctx context.Context, partition string) error {
	return wrapped(s.sql.Reopen(ctx, partition), "reopen: partition %q", partition)
}
