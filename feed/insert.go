package feed

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nuid"
	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

const (
	// insertRowsMost is the maximum number of rows of one INSERT: SQL Server takes 2,100 parameters, and a row has 11.
	insertRowsMost = 190
	// insertBytes bounds their data, except that of the last row: PostgreSQL ends a transaction that waits too long for a statement.
	insertBytes = 1 << 20
)

// CreatePartition creates a partition and its items in one transaction. It uses the fields ID, Gate and Sealed of p, and the fields of items that
// [Store.Insert] uses. It generates missing IDs. It returns the stored partition. Errors are [ErrDuplicate], [ErrGatePassed] for an item below the
// partition's gate, and [ErrInvalid].
func (s *Store) CreatePartition(ctx context.Context, p Partition, items ...Item) (Partition, error) {
	return s.CreatePartitionTx(ctx, own{}, p, items...)
}

// CreatePartitionTx is [Store.CreatePartition] in the caller's transaction: see [Store.InsertTx].
func (s *Store) CreatePartitionTx(ctx context.Context, tx any, p Partition, items ...Item) (Partition, error) {
	p.ID = cmp.Or(p.ID, nuid.Next())
	row := sqlstore.Partition{ID: p.ID, Gate: p.Gate, Status: sqlstore.Available, Sealed: p.Sealed, Version: 1}
	rows, err := newRows(p.ID, items)
	if err = cmp.Or(checkID("Partition.ID", p.ID), err, atGate(&row, rows)); err == nil {
		err = inTx(ctx, s.sql, tx, p.ID, func(tx *gorm.DB) error {
			if err := inserted(tx, "the partition", tx.Create(&row).Error); err != nil {
				return err
			}
			return insertRows(tx, rows)
		})
	}
	if err != nil {
		return Partition{}, wrapped(err, "create partition %q", p.ID)
	}
	return partitionOf(&row), nil
}

// Insert adds items to a partition in one transaction. It uses their fields ID, Gate, Data and NotBefore, and generates missing IDs. Errors are
// [ErrNotFound], [ErrClosed] if the partition is sealed or Complete, [ErrGatePassed] for an item below its gate, [ErrDuplicate] and [ErrInvalid].
func (s *Store) Insert(ctx context.Context, partition string, items ...Item) error {
	return s.InsertTx(ctx, own{}, partition, items...)
}

// InsertTx is [Store.Insert] in the caller's transaction on the Store's database. tx is a *[sql.Tx], a [pgx.Tx] on PostgreSQL, or a *[gorm.DB] that
// is in a transaction. The items exist once the caller commits. A rollback leaves nothing. If the commit follows InsertTx within 3 s, watchers are
// woken soon after it: on PostgreSQL those of all processes, otherwise those of this Store. Others find the items by polling. After an error, roll
// back.
//
// The transaction locks the row of the partition until it ends, so keep it short: see [Store].
func (s *Store) InsertTx(ctx context.Context, tx any, partition string, items ...Item) error {
	rows, malformed := newRows(partition, items)
	err := inTx(ctx, s.sql, tx, partition, func(tx *gorm.DB) error { return insertInto(s.sql, tx, partition, rows, malformed) })
	return wrapped(err, "insert into partition %q", partition)
}

// insertInto inserts items into a partition. An error of the partition takes precedence over malformed.
func insertInto(s *sqlstore.Store, tx *gorm.DB, partition string, rows []sqlstore.Item, malformed error) error {
	if malformed == nil && batchOf(rows) == len(rows) {
		if added, err := sqlstore.Add(s, tx, partition, rows); added || err != nil {
			return inserted(tx, "one of the items", err)
		}
	}
	return s.Change(tx, partition, func(tx *gorm.DB, p *sqlstore.Partition) error {
		if p.Sealed || p.Status == sqlstore.Complete {
			return ErrClosed
		}
		err := cmp.Or(malformed, atGate(p, rows))
		if err == nil {
			err = insertRows(tx, rows)
		}
		if err == nil {
			err = unblock(s, tx, p)
		}
		return err
	})
}

// newRows returns items as rows to insert.
func newRows(partition string, items []Item) ([]sqlstore.Item, error) {
	rows, seen := make([]sqlstore.Item, len(items)), make(map[string]struct{}, len(items))
	for i := range items {
		it := &items[i]
		id := cmp.Or(it.ID, nuid.Next())
		if err := checkID("Item.ID", id); err != nil {
			return nil, err
		}
		if _, twice := seen[id]; twice {
			return nil, fmt.Errorf("item %q: %w", id, ErrDuplicate)
		}
		seen[id] = struct{}{}
		if it.timer != nil && (*it.timer < 0 || *it.timer > maxDelay.Milliseconds()) {
			return nil, invalid("OpenAfter", "%v is not in 0..%v", time.Duration(*it.timer)*time.Millisecond, maxDelay)
		}
		rows[i] = sqlstore.Item{PartitionID: partition, ID: id, Gate: it.Gate, Status: sqlstore.Available, Data: it.Data, Version: 1, Timer: it.timer}
		if it.Data == nil {
			rows[i].Data = []byte{}
		}
		if !it.NotBefore.IsZero() {
			at := it.NotBefore.UTC().Truncate(time.Microsecond)
			if at.Year() < 1 || at.Year() > 9999 {
				return nil, invalid("Item.NotBefore", "the year is %d; give one in 1..9999", at.Year())
			}
			rows[i].NotBefore = &sqlstore.RowTime{Time: at}
		}
	}
	return rows, nil
}

// atGate returns an error for an item below the gate of its partition.
func atGate(p *sqlstore.Partition, rows []sqlstore.Item) error {
	for i := range rows {
		if r := &rows[i]; r.Gate < p.Gate {
			return fmt.Errorf("item %q at gate %d, partition at %d: %w", r.ID, r.Gate, p.Gate, ErrGatePassed)
		}
	}
	return nil
}

// insertRows inserts items by statements of bounded size.
func insertRows(tx *gorm.DB, rows []sqlstore.Item) error {
	for len(rows) > 0 {
		n := batchOf(rows)
		if err := inserted(tx, "one of the items", tx.Create(rows[:n]).Error); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// batchOf returns how many items the next statement inserts.
func batchOf(rows []sqlstore.Item) (n int) {
	for size := 0; n < min(len(rows), insertRowsMost) && size < insertBytes; n++ {
		size += len(rows[n].Data)
	}
	return n
}

// inserted returns the error of an INSERT, with ErrDuplicate if an ID existed.
func inserted(tx *gorm.DB, what string, err error) error {
	if err != nil && sqlstore.Duplicate(tx, err) {
		return fmt.Errorf("%s: %w", what, ErrDuplicate)
	}
	return err
}

const maxID = 255

func checkID(name, id string) error {
	switch {
	case id == "":
		return invalid(name, "is empty")
	case len(id) > maxID:
		return invalid(name, "has %d bytes; give at most %d", len(id), maxID)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl):
		return invalid(name, "%q has control characters or is not UTF-8", id)
	case strings.TrimSpace(id) != id:
		return invalid(name, "%q begins or ends with a space", id)
	}
	return nil
}

// OpenAt returns an item for [Store.Insert] that keeps a gate closed until a time, even if all items below the gate are Complete earlier. The item is
// at gate-1 and is not passed to the [Processor]. It becomes Complete at that time, by the database's clock. If gate-1 has a [Limit], this counts as
// an attempt. Watchers of older versions of this package pass the item to their processor, without data. A time in the past, or the zero time, does
// not keep the gate closed.
func OpenAt(gate int, at time.Time) Item {
	return Item{Gate: gate - 1, NotBefore: at, timer: new(int64(0))}
}

// OpenAfter is like [OpenAt], for a duration of at most a year. The duration begins when a watcher first looks at the partition at gate-1. If
// gate-1 has no other items, that is when all items at lower gates are Complete.
func OpenAfter(gate int, d time.Duration) Item {
	return Item{Gate: gate - 1, timer: new(int64(math.Ceil(float64(d) / float64(time.Millisecond))))}
}

// elapsed returns the result of an item of OpenAt or OpenAfter that is due. The first step of an item with a duration starts the duration.
func elapsed(row *sqlstore.Item) sqlstore.Result {
	r := sqlstore.Result{Item: row.ID, Version: row.Version, Gate: row.Gate, Status: sqlstore.Complete, Steps: 1}
	if row.Step == 0 && *row.Timer > 0 {
		r.Status, r.Delay = sqlstore.Available, time.Duration(*row.Timer)*time.Millisecond
	}
	return r
}
