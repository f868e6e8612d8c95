package feed

import (
	"context"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

const defaultLimit = 1000

func (q Query) check() (sqlstore.Query, error) {
	switch q.Status {
	case "", Available, Complete, Failed:
	default:
		return sqlstore.Query{}, invalid("Query.Status", "%q; give Available, Complete, Failed or nothing", string(q.Status))
	}
	if q.Limit < 0 {
		return sqlstore.Query{}, invalid("Query.Limit", "%d is below 0", q.Limit)
	}
	if q.Limit == 0 {
		q.Limit = defaultLimit
	}
	return sqlstore.Query{Partition: q.Partition, Gate: q.Gate, Status: string(q.Status), After: q.After, Limit: q.Limit}, nil
}

// Partition returns a partition, or [ErrNotFound].
func (s *Store) Partition(ctx context.Context, id string) (Partition, error) {
	row, err := s.sql.Partition(ctx, id)
	if err != nil {
		return Partition{}, wrapped(err, "partition %q", id)
	}
	return partitionOf(&row), nil
}

// Partitions returns a page of partitions in the order of their IDs' bytes. The error is [ErrInvalid].
func (s *Store) Partitions(ctx context.Context, q Query) ([]Partition, error) {
	checked, err := q.check()
	if err != nil {
		return nil, err
	}
	rows, err := s.sql.Partitions(ctx, checked)
	if err != nil {
		return nil, wrapped(err, "list partitions")
	}
	return mapped(rows, partitionOf), nil
}

// Item returns an item of a partition, or [ErrNotFound].
func (s *Store) Item(ctx context.Context, partition, id string) (Item, error) {
	row, err := s.sql.Item(ctx, partition, id)
	if err != nil {
		return Item{}, wrapped(err, "item %q of partition %q", id, partition)
	}
	return itemOf(&row), nil
}

// Items returns a page of items, oldest first: in the order of their insertion, and those of one Insert as they were
// given. A page takes the database time that grows with all items of the partition, unless Gate and the status Available
// are given; for a large one give a high Limit. Errors are [ErrInvalid], and [ErrNotFound] where Query.After is no item.
func (s *Store) Items(ctx context.Context, q Query) ([]Item, error) {
	checked, err := q.check()
	if err != nil {
		return nil, err
	}
	if q.After != "" && q.Partition == "" {
		return nil, invalid("Query.After", "an item's ID is unique in its partition only; give Query.Partition")
	}
	rows, err := s.sql.Items(ctx, checked)
	if err != nil {
		return nil, wrapped(err, "list items")
	}
	return mapped(rows, itemOf), nil
}

// Counts returns how many items of a partition have which status, by gate, or [ErrNotFound].
func (s *Store) Counts(ctx context.Context, partition string) (map[int]Counts, error) {
	rows, err := s.sql.Counts(ctx, partition)
	if err != nil {
		return nil, wrapped(err, "count the items of partition %q", partition)
	}
	counts := map[int]Counts{}
	for _, row := range rows {
		c := counts[row.Gate]
		switch row.Status {
		case sqlstore.Available:
			c.Available = row.N
		case sqlstore.Complete:
			c.Complete = row.N
		case sqlstore.Failed:
			c.Failed = row.N
		}
		counts[row.Gate] = c
	}
	return counts, nil
}

// Steps returns how many steps of a partition's items are over, or [ErrNotFound]. Each [Response] that was saved ended one: the item
// passed to a higher gate, was Complete, or was to be processed again at its gate. From one call to the next this is how fast work
// goes, also while all items are still to be processed at other gates.
func (s *Store) Steps(ctx context.Context, partition string) (int64, error) {
	n, err := s.sql.Steps(ctx, partition)
	return n, wrapped(err, "count the steps of partition %q", partition)
}

func partitionOf(r *sqlstore.Partition) Partition {
	p := Partition{ID: r.ID, Gate: r.Gate, Status: Status(r.Status), Epoch: r.Epoch, Version: r.Version, Sealed: r.Sealed}
	if r.Owner != nil && *r.Owner != "" {
		p.Owner = *r.Owner
		if r.Until != nil {
			p.Until = r.Until.UTC()
		}
	}
	return p
}

func itemOf(r *sqlstore.Item) Item {
	it := Item{
		ID: r.ID, Partition: r.PartitionID, Gate: r.Gate, Status: Status(r.Status), Attempt: r.Attempt, Data: r.Data,
		Version: r.Version, step: r.Step, seq: r.Seq,
	}
	if r.Errors != nil {
		it.Errors = sqlstore.DecodeErrors(*r.Errors)
	}
	if r.History != nil {
		it.history = *r.History
	}
	if r.NotBefore != nil {
		it.NotBefore = r.NotBefore.UTC()
	}
	return it
}

func mapped[R, V any](rows []R, of func(*R) V) []V {
	list := make([]V, len(rows))
	for i := range rows {
		list[i] = of(&rows[i])
	}
	return list
}

// rowOf is an item as it is inserted.
func rowOf(it *Item) sqlstore.Item {
	row := sqlstore.Item{ID: it.ID, Gate: it.Gate, Data: it.Data}
	if !it.NotBefore.IsZero() {
		row.NotBefore = &sqlstore.RowTime{Time: it.NotBefore}
	}
	return row
}
