package bench

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jetpull/jetpull/feed"
)

const (
	handOvers = 20
	deadLease = 3 * time.Second
	renewals  = 3
	// settled is the time in which a watcher finds that another one has all partitions.
	settled = time.Second

	sharers          = 4
	sharedPartitions = 10_000
	sharedLease      = 10 * time.Second
	sharedWork       = 200 * time.Millisecond // duration of a handler
	sharedHandlers   = 100                    // handlers per watcher

	idleTime    = 20 * time.Second
	besideItems = 50_000
	// completedFactor is the number of completed items per operation.
	completedFactor = 10
)

// BenchmarkHandOver measures how long a partition with work has no watcher after its watcher was stopped.
func BenchmarkHandOver(b *testing.B) {
	b.Run("after=stop/on="+postgres, func(b *testing.B) {
		var took []time.Duration
		for range min(b.N, handOvers) {
			took = append(took, stopOwner(b))
		}
		quantiles(b, took)
	})
	b.Run("after=death/on="+postgres, func(b *testing.B) {
		if !tried(b) {
			ownerDies(b)
		}
	})
}

// stopOwner stops a watcher during the first of two items, and returns the time until another watcher begins the second.
func stopOwner(b *testing.B) time.Duration {
	ctx, dsn := b.Context(), database(b, postgres)
	s, other := open(b, dsn), open(b, dsn) // the second is like that of another process
	_, err := s.CreatePartition(ctx, feed.Partition{ID: "p"}, feed.Item{}, feed.Item{})
	check(b, err)
	begun, finish := make(chan struct{}, 1), make(chan struct{})
	owning, end := context.WithCancel(ctx)
	defer end()
	stop := watch(owning, s, func(context.Context, feed.Item) (feed.Response, error) {
		begun <- struct{}{}
		<-finish
		return done()
	}, feed.Concurrency(1))
	<-begun
	got, stopOther := firstOf(ctx, other)
	<-time.After(settled)
	stopped := time.Now()
	end() // before the handler returns, so that this watcher begins no other item
	close(finish)
	check(b, stop())
	at := <-got
	check(b, stopOther())
	return at.Sub(stopped)
}

// firstOf runs a watcher and reports when its first handler began.
func firstOf(ctx context.Context, s *feed.Store) (<-chan time.Time, func() error) {
	got := make(chan time.Time, 2)
	return got, watch(ctx, s, func(context.Context, feed.Item) (feed.Response, error) {
		got <- time.Now()
		return done()
	})
}

// ownerDies writes to the database as a watcher that renews a lease for a while and then dies. It measures the time until
// another watcher begins the item.
func ownerDies(b *testing.B) {
	dsn := database(b, postgres)
	s, db := open(b, dsn), connect(b, dsn)
	execute(b, db,
		"INSERT INTO partitions (id, gate, status, owner, until, epoch, version) VALUES ('p', 0, 'Available', 'dead', now() + interval '1 minute', 1, 1)",
		"INSERT INTO items (partition_id, id, gate, status, data, version) VALUES ('p', 'a', 0, 'Available', '', 1)")
	got, stop := firstOf(b.Context(), s)
	var died time.Time
	for range renewals {
		died = time.Now()
		execute(b, db, fmt.Sprintf("UPDATE partitions SET version = version + 1, until = now() + %g * interval '1 second' WHERE id = 'p'",
			deadLease.Seconds()))
		<-time.After(deadLease / 3)
	}
	only(b, float64((<-got).Sub(died)), "taken-ns")
	check(b, stop())
}

// BenchmarkShares lets four watchers share partitions with more work than they can do during the benchmark. It reports the difference
// between the most and the fewest leases of a watcher after three lease times, and when it first was at most two.
func BenchmarkShares(b *testing.B) {
	b.Run("watchers=4/on="+postgres, func(b *testing.B) {
		if tried(b) {
			return
		}
		dsn := database(b, postgres)
		s, db := open(b, dsn), connect(b, dsn)
		// Twice as many items as all handlers can process in that time.
		each := max(20, int(2*3*sharedLease/sharedWork)*sharers*sharedHandlers/sharedPartitions)
		execute(b, db,
			fmt.Sprintf("INSERT INTO partitions (id, gate, status, version) SELECT 'p' || n, 0, 'Available', 1 FROM generate_series(1, %d) AS g(n)",
				sharedPartitions),
			fmt.Sprintf(`INSERT INTO items (partition_id, id, gate, status, data, version) SELECT 'p' || n, 'i' || i, 0, 'Available', '', 1
				FROM generate_series(1, %d) AS g(n), generate_series(1, %d) AS h(i)`, sharedPartitions, each),
			"ANALYZE")
		begun, balanced, difference := time.Now(), 3*sharedLease, 0
		for range sharers {
			stop := watch(b.Context(), s, func(ctx context.Context, _ feed.Item) (feed.Response, error) {
				select {
				case <-time.After(sharedWork):
				case <-ctx.Done():
				}
				return done()
			}, feed.Lease(sharedLease), feed.Steal(), feed.MaxPartitions(sharedPartitions), feed.Concurrency(sharedHandlers))
			b.Cleanup(func() { check(b, stop()) })
		}
		for time.Since(begun) < 3*sharedLease {
			<-time.After(sharedWork)
			if difference = spread(b, db); difference <= 2 {
				balanced = min(balanced, time.Since(begun))
			}
		}
		only(b, float64(difference), "leases-apart")
		only(b, float64(balanced), "even-after-ns")
	})
}

// spread returns the difference between the most and the fewest leases of a watcher. It returns the number of partitions if a
// watcher has no lease, or if not all partitions are leased.
func spread(b *testing.B, db *sql.DB) int {
	var owners, leased, difference int
	check(b, db.QueryRowContext(b.Context(), `SELECT COUNT(*), COALESCE(SUM(n), 0), COALESCE(MAX(n) - MIN(n), 0)
		FROM (SELECT COUNT(*) AS n FROM partitions WHERE owner <> '' GROUP BY owner) o`).Scan(&owners, &leased, &difference))
	if owners < sharers || leased < sharedPartitions-sharers {
		return sharedPartitions
	}
	return difference
}

// BenchmarkIdle counts the transactions of an idle watcher with default options. Each of these is one query.
func BenchmarkIdle(b *testing.B) {
	b.Run("partitions=100/on="+postgres, func(b *testing.B) {
		if tried(b) {
			return
		}
		dsn := database(b, postgres)
		s, db := open(b, dsn), connect(b, dsn)
		fill(b, s, partitions, partitions)
		drain(b, s, partitions, shapeConcurrency)
		transactions := func() (n int) {
			check(b, db.QueryRowContext(b.Context(), "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()").Scan(&n))
			return n
		}
		stop := watch(b.Context(), s, func(context.Context, feed.Item) (feed.Response, error) { return done() })
		first := transactions()
		<-time.After(idleTime)
		only(b, float64(transactions()-first)/idleTime.Seconds(), "queries/s")
		check(b, stop())
	})
}

// BenchmarkCompleted measures the same work without completed items, and with ten of them per operation in the same partitions:
// 1,000,000 with -benchtime 100000x.
func BenchmarkCompleted(b *testing.B) {
	b.Run("slowed/on="+postgres, func(b *testing.B) {
		if tried(b) {
			return
		}
		dsn := database(b, postgres)
		s, db := open(b, dsn), connect(b, dsn)
		fill(b, s, besideItems, partitions)
		drain(b, s, besideItems, 1000) // warms up
		before := again(b, s, db, "before")
		execute(b, db, fmt.Sprintf(`INSERT INTO items (partition_id, id, gate, status, data, version)
			SELECT 'p' || n %% %d, 'done' || n, 0, 'Complete', '', 2 FROM generate_series(1, %d) AS g(n)`, partitions, completedFactor*b.N),
			"VACUUM ANALYZE items", "CHECKPOINT")
		after := again(b, s, db, "after")
		only(b, 100*(after.Seconds()/before.Seconds()-1), "%-slower")
	})
}

// again inserts new items into the same partitions and processes them.
func again(b *testing.B, s *feed.Store, db *sql.DB, name string) time.Duration {
	execute(b, db, fmt.Sprintf(`INSERT INTO items (partition_id, id, gate, status, data, version)
		SELECT 'p' || n %% %d, '%s' || n, 0, 'Available', '', 1 FROM generate_series(1, %d) AS g(n)`, partitions, name, besideItems))
	begun := time.Now()
	drain(b, s, besideItems, 1000)
	return time.Since(begun)
}

// BenchmarkPrune deletes completed items, a thousand in each partition, while items of another partition are inserted and handled one by
// one. It deletes ten million with -benchtime 10000000x.
func BenchmarkPrune(b *testing.B) {
	for _, kind := range []string{postgres, sqlite} {
		b.Run("each=1000/on="+kind, func(b *testing.B) { prune(b, kind) })
	}
}

func prune(b *testing.B, kind string) {
	b.Helper()
	if tried(b) {
		return
	}
	dsn := database(b, kind)
	s, driver := open(b, dsn), "pgx"
	if kind == sqlite {
		driver, dsn = kind, strings.TrimPrefix(dsn, "sqlite:")
	}
	db, err := sql.Open(driver, dsn)
	check(b, err)
	defer func() { check(b, db.Close()) }()
	closed := (b.N + 999) / 1000
	const numbers = "WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < %d) "
	execute(b, db,
		fmt.Sprintf(numbers+"INSERT INTO partitions (id, status, until) SELECT 'closed' || n, 'Complete', '2020-01-01 00:00:00' FROM g", closed),
		fmt.Sprintf(numbers+`INSERT INTO items (partition_id, id, gate, status, data, version)
			SELECT p.id, 'done' || n, 0, 'Complete', '', 2 FROM partitions p CROSS JOIN g WHERE p.status = 'Complete'`, 1000))
	fill(b, s, 0, 1)
	at := make(chan time.Time, 1)
	stop := watch(b.Context(), s, func(context.Context, feed.Item) (feed.Response, error) {
		at <- time.Now()
		return done()
	})
	pruned := make(chan error, 1)
	b.ResetTimer()
	go func() {
		did, err := s.Prune(b.Context(), time.Hour, nil)
		if err == nil && did.Items != 1000*closed {
			err = fmt.Errorf("%d items were deleted of %d", did.Items, 1000*closed)
		}
		pruned <- err
	}()
	var took []time.Duration
	for over := false; !over; {
		begun := time.Now()
		check(b, s.Insert(b.Context(), "p0", feed.Item{}))
		took = append(took, (<-at).Sub(begun))
		select {
		case err := <-pruned:
			check(b, err)
			over = true
		default:
		}
	}
	rate(b)
	check(b, stop())
	quantiles(b, took)
}
