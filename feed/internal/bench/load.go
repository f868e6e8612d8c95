package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jetpull/jetpull/feed"
)

const (
	sharers     = 4
	sharedLease = 10 * time.Second
	sharedWork  = 200 * time.Millisecond // of a handler
	idleFor     = 20 * time.Second
	besideItems = 50_000
)

// shares has four watchers share partitions with more work than they do meanwhile. It notes how many leases the one
// with the most has more than the one with the fewest, after three leases' time, and when that was first at most two.
func (b *bench) shares(ctx context.Context) error {
	// As many as four times 100 handlers do in twice the time.
	each := max(20, int(2*3*sharedLease/sharedWork)*sharers*100 / *shared)
	return b.on(ctx, postgres, func(s *feed.Store, dsn string) error {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		for _, statement := range []string{
			fmt.Sprintf("INSERT INTO partitions (id, gate, status, version) SELECT 'p' || n, 0, 'Available', 1 FROM generate_series(1, %d) AS g(n)", *shared),
			fmt.Sprintf(`INSERT INTO items (partition_id, id, gate, status, data, version) SELECT 'p' || n, 'i' || i, 0, 'Available', '', 1
				FROM generate_series(1, %d) AS g(n), generate_series(1, %d) AS h(i)`, *shared, each),
			"ANALYZE",
		} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		var stops []func() error
		begun := time.Now()
		for range sharers {
			stops = append(stops, watch(ctx, s, func(ctx context.Context, _ feed.Item) (feed.Response, error) {
				select {
				case <-time.After(sharedWork):
				case <-ctx.Done():
				}
				return done()
			}, feed.Lease(sharedLease), feed.Steal(), feed.MaxPartitions(*shared), feed.Concurrency(100)))
		}
		balanced, difference := time.Duration(-1), *shared
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for time.Since(begun) < 3*sharedLease && err == nil {
			<-tick.C
			if difference, err = spread(ctx, db); difference <= 2 && balanced < 0 {
				balanced = time.Since(begun)
			}
		}
		if balanced < 0 {
			balanced = time.Since(begun)
		}
		name := fmt.Sprintf("%d partitions on %d watchers with leases of %v: ", *shared, sharers, sharedLease)
		b.note(name+"most less fewest after three leases", "leases", float64(difference), target{atMost: 2})
		b.note(name+"even after", "s", balanced.Seconds(), target{atMost: 3 * sharedLease.Seconds()})
		for _, stop := range stops {
			err = errors.Join(err, stop())
		}
		return err
	})
}

// spread is how many more leases the watcher with the most has than that with the fewest; all partitions where not
// each has one, or not each partition is leased.
func spread(ctx context.Context, db *sql.DB) (int, error) {
	var owners, leased, difference int
	err := db.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(SUM(n), 0), COALESCE(MAX(n) - MIN(n), 0)
		FROM (SELECT COUNT(*) AS n FROM partitions WHERE owner <> '' GROUP BY owner) o`).Scan(&owners, &leased, &difference)
	if owners < sharers || leased < *shared-sharers {
		return *shared, err
	}
	return difference, err
}

// idle counts the transactions of a watcher with default options that has nothing to do: each is one query then.
func (b *bench) idle(ctx context.Context) error {
	return b.on(ctx, postgres, func(s *feed.Store, dsn string) error {
		if err := fill(ctx, s, "idle", partitions, partitions); err != nil {
			return err
		}
		if _, _, err := drain(ctx, s, partitions, 64, 0); err != nil {
			return err
		}
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		transactions := func() (n int, err error) {
			err = db.QueryRowContext(ctx, "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&n)
			return n, err
		}
		stop := watch(ctx, s, func(context.Context, feed.Item) (feed.Response, error) { return done() })
		first, err := transactions()
		if err != nil {
			return errors.Join(err, stop())
		}
		<-time.After(idleFor)
		second, err := transactions()
		b.note("postgres: an idle watcher", "queries/s", float64(second-first)/idleFor.Seconds(), target{atMost: 20})
		return errors.Join(err, stop())
	})
}

// completed measures the same work without and with many completed items around it, in the same partitions.
func (b *bench) completed(ctx context.Context) error {
	return b.on(ctx, postgres, func(s *feed.Store, dsn string) error {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		if err := fill(ctx, s, "p", besideItems, partitions); err != nil {
			return err
		}
		if _, _, err := drain(ctx, s, besideItems, 1000, 0); err != nil { // warms up
			return err
		}
		before, err := again(ctx, s, db, "before")
		if err != nil {
			return err
		}
		for _, statement := range []string{
			fmt.Sprintf(`INSERT INTO items (partition_id, id, gate, status, data, version)
				SELECT 'p' || n %% %d, 'done' || n, 0, 'Complete', '', 2 FROM generate_series(1, %d) AS g(n)`, partitions, *completed),
			"VACUUM ANALYZE items",
			"CHECKPOINT",
		} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		after, err := again(ctx, s, db, "after")
		b.note(fmt.Sprintf("postgres: %d completed items slow the work by", *completed), "%", 100*(after.Seconds()/before.Seconds()-1), target{atMost: 10})
		return err
	})
}

// again inserts new items into the same partitions and processes them.
func again(ctx context.Context, s *feed.Store, db *sql.DB, name string) (time.Duration, error) {
	_, err := db.ExecContext(ctx, fmt.Sprintf(`INSERT INTO items (partition_id, id, gate, status, data, version)
		SELECT 'p' || n %% %d, '%s' || n, 0, 'Available', '', 1 FROM generate_series(1, %d) AS g(n)`, partitions, name, besideItems))
	if err != nil {
		return 0, err
	}
	_, took, err := drain(ctx, s, besideItems, 1000, 0)
	return took, err
}
