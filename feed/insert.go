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

// insertBatch is how many rows one INSERT has; SQL Server takes 2,100 parameters.
const insertBatch = 200

// CreatePartition creates a partition and its items in one transaction. It uses the fields ID, Gate and Sealed of p, and of the items those that
// [Store.Insert] uses. It generates an ID for each that is empty. It returns the partition as stored. Errors are [ErrDuplicate], [ErrGatePassed]
// for an item below the partition's gate, and [ErrInvalid].
func (s *Store) CreatePartition(ctx context.Context, p Partition, items ...Item) (Partition, error) {
	return s.CreatePartitionTx(ctx, own{}, p, items...)
}

// Insert adds items to a partition in one transaction. It uses their fields ID, Gate, Data and NotBefore, and generates an ID for each that is
// empty. Errors are [ErrNotFound], [ErrClosed] if the partition is sealed or Complete, [ErrGatePassed] for an item below its gate,
// [ErrDuplicate] and [ErrInvalid].
func (s *Store) Insert(ctx context.Context, partition string, items ...Item) error {
	return s.InsertTx(ctx, own{}, partition, items...)
}

// insertInto adds items to a partition whose row is locked.
func (s *Store) insertInto(tx *gorm.DB, p *sqlstore.Partition, items []sqlstore.Item) error {
	if p.Sealed || p.Status == sqlstore.Complete {
		return ErrClosed
	}
	if err := newItems(p, items); err != nil {
		return err
	}
	if err := insertRows(tx, "one of the items", items); err != nil {
		return err
	}
	return s.unblock(tx, p)
}

// newItems checks items for a partition whose row is locked or new, and completes them.
func newItems(p *sqlstore.Partition, items []sqlstore.Item) error {
	seen := make(map[string]struct{}, len(items))
	for i := range items {
		it := &items[i]
		it.ID = cmp.Or(it.ID, nuid.Next())
		if err := checkID("Item.ID", it.ID); err != nil {
			return err
		}
		if _, twice := seen[it.ID]; twice {
			return fmt.Errorf("item %q: %w", it.ID, ErrDuplicate)
		}
		seen[it.ID] = struct{}{}
		if it.Gate < p.Gate {
			return fmt.Errorf("item %q at gate %d, partition at %d: %w", it.ID, it.Gate, p.Gate, ErrGatePassed)
		}
		it.PartitionID, it.Status, it.Version = p.ID, sqlstore.Available, 1
		if it.Data == nil {
			it.Data = []byte{}
		}
		if it.Timer != nil && (*it.Timer < 0 || *it.Timer > maxDelay.Milliseconds()) {
			return invalid("OpenAfter", "%v is not in 0..%v", time.Duration(*it.Timer)*time.Millisecond, maxDelay)
		}
		if it.NotBefore != nil {
			at := it.NotBefore.UTC().Truncate(time.Microsecond)
			if at.Year() < 1 || at.Year() > 9999 {
				return invalid("Item.NotBefore", "the year is %d; give one in 1..9999", at.Year())
			}
			it.NotBefore = &sqlstore.RowTime{Time: at}
		}
	}
	return nil
}

func insertRows(tx *gorm.DB, what string, rows any) error {
	err := tx.CreateInBatches(rows, insertBatch).Error
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

// OpenAt returns an item for [Store.Insert] that keeps a gate closed until a time, even if all items below the gate are Complete before. The
// item is at gate-1 and is not passed to the [Processor]. It becomes Complete at that time, by the database's clock. If gate-1 has a [Limit],
// this counts as an attempt. Watchers of older versions of this package pass the item to their processor, without data. A time in the past does
// not keep the gate closed, nor does the zero time.
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
