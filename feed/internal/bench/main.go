// Command bench measures the feed on PostgreSQL and SQLite on this machine: no-op items a second for the whole
// engine beside a plain FOR UPDATE SKIP LOCKED loop, insert to handler, and how long a gate takes to open after the
// last item below it. Each is the median of the rounds, in one process and in turn.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/feed/internal/pgtest"
)

const (
	partitions = 100
	latencies  = 300
	fanIn      = 10000
)

func main() {
	items := flag.Int("items", 100000, "items of a round")
	rounds := flag.Int("rounds", 3, "rounds")
	flag.Parse()
	if err := run(context.Background(), *items, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, items, rounds int) error {
	server, err := pgtest.Start(ctx, "shared_buffers=256MB", "max_wal_size=4GB")
	if err != nil {
		return err
	}
	defer server.Stop()
	dir, err := os.MkdirTemp("", "feed-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	figures := map[string][]float64{}
	for round := range rounds {
		dsn, err := server.Database(ctx)
		if err != nil {
			return err
		}
		lite := "sqlite:" + filepath.Join(dir, fmt.Sprint(round, ".db"))
		for _, db := range []struct {
			name, dsn string
			items     int
		}{{"postgres", dsn, items}, {"sqlite", lite, items / 5}} {
			if err := measure(ctx, db.name, db.dsn, db.items, figures); err != nil {
				return fmt.Errorf("%s: %w", db.name, err)
			}
		}
		rate, err := skipLocked(ctx, dsn, items/5)
		if err != nil {
			return fmt.Errorf("SKIP LOCKED: %w", err)
		}
		figures["postgres: SKIP LOCKED loop, 16 workers, batches of 100, items/s"] = append(figures["postgres: SKIP LOCKED loop, 16 workers, batches of 100, items/s"], rate)
	}
	names := make([]string, 0, len(figures))
	for name := range figures {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		list := figures[name]
		slices.Sort(list)
		fmt.Printf("%-70s  %10.1f  (%.1f to %.1f)\n", name, list[len(list)/2], list[0], list[len(list)-1])
	}
	return nil
}

// watch runs a watcher until stop is called.
func watch(ctx context.Context, s *feed.Store, p feed.ProcessorFunc, concurrency int) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	w := feed.NewWatcher(s, p, feed.Concurrency(concurrency), feed.Logger(slog.New(slog.DiscardHandler)))
	go func() { ended <- w.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func measure(ctx context.Context, name, dsn string, items int, figures map[string][]float64) error {
	s, err := feed.Open(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	note := func(what string, v float64) { figures[name+": "+what] = append(figures[name+": "+what], v) }

	begun := time.Now()
	for p := range partitions {
		if _, err := s.CreatePartition(ctx, feed.Partition{ID: fmt.Sprint("bulk", p)}, make([]feed.Item, items/partitions)...); err != nil {
			return err
		}
	}
	note("bulk insert, items/s", float64(items)/time.Since(begun).Seconds())
	var handled atomic.Int64
	last := make(chan struct{})
	begun = time.Now()
	stop := watch(ctx, s, func(context.Context, feed.Item) (feed.Response, error) {
		if handled.Add(1) == int64(items) {
			close(last)
		}
		return feed.Response{Done: true}, nil
	}, 4000)
	<-last
	if err := stop(); err != nil { // with the last result saved
		return err
	}
	note("no-op items, concurrency 4,000, to the last save, items/s", float64(items)/time.Since(begun).Seconds())
	if err := latency(ctx, s, note); err != nil {
		return err
	}
	return gates(ctx, s, note)
}

// latency inserts single items, each after the one before was handled.
func latency(ctx context.Context, s *feed.Store, note func(string, float64)) error {
	if _, err := s.CreatePartition(ctx, feed.Partition{ID: "latency"}); err != nil {
		return err
	}
	at := make(chan time.Time, 1)
	stop := watch(ctx, s, func(context.Context, feed.Item) (feed.Response, error) {
		at <- time.Now()
		return feed.Response{Done: true}, nil
	}, 64)
	var took []float64
	for range latencies {
		begun := time.Now()
		if err := s.Insert(ctx, "latency", feed.Item{}); err != nil {
			return err
		}
		took = append(took, (<-at).Sub(begun).Seconds()*1000)
	}
	slices.Sort(took)
	note("call of Insert to handler, p50, ms", took[len(took)/2])
	note("call of Insert to handler, p99, ms", took[len(took)*99/100])
	return stop()
}

// gates measures from the end of the last handler below a gate to the begin of the first at it.
func gates(ctx context.Context, s *feed.Store, note func(string, float64)) error {
	items := append(make([]feed.Item, fanIn), feed.Item{Gate: 1})
	var mu sync.Mutex
	var lastBelow time.Time
	opened := make(chan float64, 1)
	stop := watch(ctx, s, func(_ context.Context, it feed.Item) (feed.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		if it.Gate == 1 {
			opened <- time.Since(lastBelow).Seconds() * 1000
		}
		lastBelow = time.Now()
		return feed.Response{Done: true}, nil
	}, 1000)
	if _, err := s.CreatePartition(ctx, feed.Partition{ID: "fan-in"}, items...); err != nil {
		return err
	}
	note("fan-in of 10,000, last handler to the next gate's first, ms", <-opened)
	return stop()
}

// skipLocked is what a queue without partitions, leases, gates and retries does.
func skipLocked(ctx context.Context, dsn string, items int) (float64, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	for _, statement := range []string{
		"CREATE TABLE plain (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, done boolean NOT NULL DEFAULT FALSE)",
		"CREATE INDEX plain_open ON plain (id) WHERE NOT done",
		fmt.Sprintf("INSERT INTO plain (done) SELECT FALSE FROM generate_series(1, %d)", items),
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return 0, err
		}
	}
	begun := time.Now()
	errs := make(chan error, 16)
	for range cap(errs) {
		go func() {
			for {
				done, err := db.ExecContext(ctx, `UPDATE plain SET done = TRUE WHERE id IN
					(SELECT id FROM plain WHERE NOT done ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED)`)
				if err != nil {
					errs <- err
					return
				}
				if n, err := done.RowsAffected(); err != nil || n == 0 {
					errs <- err
					return
				}
			}
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			return 0, err
		}
	}
	return float64(items) / time.Since(begun).Seconds(), nil
}
