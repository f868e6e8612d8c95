package feed

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/engine"
	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// ErrCancelled is the cause of the context of an attempt that [Store.Cancel] has cancelled.
var ErrCancelled = engine.ErrCancelled

// Running is an attempt at an item whose handler runs.
type Running struct {
	Partition string `json:"partition"`
	Item      string `json:"item"`
	Gate      int    `json:"gate"`
	// Attempt is the number of the attempt in its step, from 1.
	Attempt int `json:"attempt"`
	// Since is when it began, by the database's clock.
	Since time.Time `json:"since"`
	// Watcher is the watcher that makes it, as in Owner of [Partition]. Host and PID are those of its process.
	Watcher string `json:"watcher"`
	Host    string `json:"host,omitempty"`
	PID     int    `json:"pid"`
}

// Running returns the attempts in progress, the longest-running first. A watcher reports its attempts, at most 500, when it renews its leases, three
// times in the length of a [Lease]. So an attempt that has begun since then is missing. An attempt that has ended is not listed, nor is one of a
// watcher whose lease has ended. Attempts of a killed watcher are listed until its lease ends.
func (s *Store) Running(ctx context.Context) ([]Running, error) {
	return read(ctx, s, "list running items", func(db *gorm.DB) (all []Running, err error) {
		watchers, err := s.sql.Dialect.Watching(db, "")
		for _, w := range watchers {
			for _, r := range w.State.Running {
				all = append(all, Running{r.Partition, r.Item, r.Gate, r.Attempt, w.Seen.Add(-r.For), w.Owner, w.State.Host, w.State.PID})
			}
		}
		slices.SortStableFunc(all, func(a, b Running) int { return a.Since.Compare(b.Since) })
		return all, err
	})
}

// Cancel cancels an attempt that [Store.Running] lists: the context of the handler ends, with the cause [ErrCancelled], within the returned time,
// which is a third of the watcher's [Lease]. The handler decides what follows. If it returns an error, the attempt has failed and the item is retried
// as after any failure. The watcher does not cancel a later attempt. Errors are [ErrNotFound], and [ErrConflict] if no such attempt is listed.
func (s *Store) Cancel(ctx context.Context, partition, item string) (within time.Duration, err error) {
	err = s.sql.Transact(ctx, func(tx *gorm.DB) error {
		return s.sql.Change(tx, partition, func(tx *gorm.DB, p *sqlstore.Partition) error {
			if _, err := findItem(tx, partition, item); err != nil {
				return fmt.Errorf("item %q: %w", item, err)
			}
			notListed := fmt.Errorf("item %q does not run, or has begun since its watcher reported last: %w", item, ErrConflict)
			if p.Owner == nil || *p.Owner == "" {
				return notListed
			}
			watchers, err := s.sql.Dialect.Watching(tx, *p.Owner)
			if err != nil {
				return err
			}
			for _, w := range watchers {
				for _, r := range w.State.Running {
					if r.Partition == partition && r.Item == item {
						within = w.State.Every
						return sqlstore.AskToCancel(tx, sqlstore.Cancel{PartitionID: partition, ItemID: item, Owner: w.Owner, Version: r.Version})
					}
				}
			}
			return notListed
		})
	})
	return within, wrapped(err, "cancel in partition %q", partition)
}

// Delete deletes Available items that no watcher can have begun: those above the gate of their partition, and all others while no watcher has its
// lease. After that, nobody processes them, and their gate does not wait for them. Errors are [ErrNotFound], [ErrInvalid] if no item is named, and
// [ErrConflict] for an item that is not Available, or that a watcher may have. After an error nothing is deleted.
func (s *Store) Delete(ctx context.Context, partition string, items ...string) error {
	if len(items) == 0 {
		return invalid("items", "are none; name one")
	}
	return changePartition(ctx, s, own{}, "delete from", partition, func(tx *gorm.DB, p *sqlstore.Partition) error {
		leased, err := s.sql.Dialect.Leased(tx, partition)
		if err != nil {
			return err
		}
		for _, id := range items {
			it, err := findItem(tx, partition, id)
			switch {
			case err != nil:
				return fmt.Errorf("item %q: %w", id, err)
			case it.Status != sqlstore.Available:
				return fmt.Errorf("item %q is %s, not Available: %w", id, it.Status, ErrConflict)
			case leased && it.Gate <= p.Gate:
				return fmt.Errorf("item %q is at the gate of its partition, and watcher %s may have read it: %w", id, *p.Owner, ErrConflict)
			}
			if err := tx.Delete(&it).Error; err != nil {
				return err
			}
		}
		return nil
	})
}
