// Package bench measures the feed on PostgreSQL and SQLite, beside River and a plain SKIP LOCKED loop: the rate of the whole
// engine, in one partition and in many; the times from Insert to the handler, until a gate opens, and until another watcher
// takes over; the distribution of partitions among watchers; the queries of an idle watcher; and the cost of completed items.
// One operation is one item. See bench/README.md.
package bench

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/pgtest"
)

const (
	postgres = "postgres"
	sqlite   = "sqlite"

	partitions       = 100
	manyPartitions   = 1000
	bulkConcurrency  = 4000
	shapeConcurrency = 64
	fillMost         = 100_000 // maximum number of items per Insert
	latencies        = 5000
	fanIn            = 10_000
)

// server is started by the first benchmark that needs it.
var server = sync.OnceValues(func() (*pgtest.Server, error) {
	s, err := pgtest.Start(context.Background(), "shared_buffers=256MB", "max_wal_size=4GB")
	started = s
	return s, err
})

var started *pgtest.Server

func TestMain(m *testing.M) {
	// The server has its own process group, so an interrupt does not reach it.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	go func() {
		<-interrupted
		if started != nil {
			started.Stop()
		}
		os.Exit(1)
	}()
	code := m.Run()
	if started != nil {
		started.Stop()
	}
	os.Exit(code)
}

func check(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// rate stops the clock, and reports items per second instead of the time per item.
func rate(b *testing.B) {
	b.Helper()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
	b.ReportMetric(0, "ns/op")
}

// only reports a figure instead of the time per item.
func only(b *testing.B, v float64, unit string) {
	b.Helper()
	b.ReportMetric(v, unit)
	b.ReportMetric(0, "ns/op")
}

// quantiles reports p50 and p99. It sorts took.
func quantiles(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	only(b, float64(took[len(took)/2]), "p50-ns")
	only(b, float64(took[len(took)*99/100]), "p99-ns")
}

// tried reports whether this is the single operation that the testing package tries first. Long benchmarks skip it, and also
// all rounds after the first.
func tried(b *testing.B) bool {
	if testing.Short() {
		b.Skip("it takes long, and needs no second round")
	}
	return b.N == 1
}

func database(b *testing.B, kind string) (dsn string) {
	b.Helper()
	if kind == sqlite {
		return "sqlite:" + filepath.Join(b.TempDir(), "feed.db")
	}
	s, err := server()
	check(b, err)
	dsn, err = s.Database(b.Context())
	check(b, err)
	return dsn
}

// open opens an empty database.
func open(b *testing.B, dsn string) *feed.Store {
	b.Helper()
	s, err := feed.Open(b.Context(), dsn)
	check(b, err)
	b.Cleanup(func() { check(b, s.Close()) })
	return s
}

// connect opens a database for the benchmark's own statements.
func connect(b *testing.B, dsn string) *sql.DB {
	b.Helper()
	db, err := sql.Open("pgx", dsn)
	check(b, err)
	b.Cleanup(func() { check(b, db.Close()) })
	return db
}

func execute(b *testing.B, db *sql.DB, statements ...string) {
	b.Helper()
	for _, statement := range statements {
		_, err := db.ExecContext(b.Context(), statement)
		check(b, err)
	}
}

func onEach(b *testing.B, name string, f func(b *testing.B, s *feed.Store)) {
	b.Helper()
	for _, kind := range []string{postgres, sqlite} {
		b.Run(name+"/on="+kind, func(b *testing.B) { f(b, open(b, database(b, kind))) })
	}
}

func done() (feed.Response, error) { return feed.Response{Done: true}, nil }

// watch runs a watcher until stop is called.
func watch(ctx context.Context, s *feed.Store, p feed.ProcessorFunc, opts ...feed.WatcherOption) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	w := feed.NewWatcher(s, p, append([]feed.WatcherOption{feed.Logger(slog.New(slog.DiscardHandler))}, opts...)...)
	go func() { ended <- w.Run(ctx) }()
	return func() error {
		cancel()
		return <-ended
	}
}

// fill creates partitions with n items in total.
func fill(b *testing.B, s *feed.Store, n, partitions int) {
	b.Helper()
	for p := range partitions {
		id := fmt.Sprint("p", p)
		_, err := s.CreatePartition(b.Context(), feed.Partition{ID: id})
		check(b, err)
		left := n / partitions
		if p < n%partitions {
			left++
		}
		for ; left > 0; left -= fillMost {
			check(b, s.Insert(b.Context(), id, make([]feed.Item, min(left, fillMost))...))
		}
	}
}

// drain runs a watcher until it has processed n items and saved the last result.
func drain(b *testing.B, s *feed.Store, n, concurrency int, opts ...feed.WatcherOption) {
	b.Helper()
	var handled atomic.Int64
	last := make(chan struct{})
	stop := watch(b.Context(), s, func(context.Context, feed.Item) (feed.Response, error) {
		if handled.Add(1) == int64(n) {
			close(last)
		}
		return done()
	}, append(opts, feed.Concurrency(concurrency))...)
	<-last
	check(b, stop())
}

// BenchmarkItems processes no-op items with a watcher, with River and the settings of its own benchmark, and with a plain loop.
func BenchmarkItems(b *testing.B) {
	onEach(b, "partitions=100", func(b *testing.B, s *feed.Store) {
		fill(b, s, b.N, partitions)
		b.ResetTimer()
		drain(b, s, b.N, bulkConcurrency)
		rate(b)
	})
	for _, workers := range []int{1000, 2000, 10000} {
		b.Run(fmt.Sprintf("partitions=100/on=river,workers=%d", workers), func(b *testing.B) { river(b, workers) })
	}
	b.Run("partitions=100/on=skip-locked", skipLocked)
}

// BenchmarkShapes processes items in one partition and in many, with the default Concurrency.
func BenchmarkShapes(b *testing.B) {
	for _, partitions := range []int{1, manyPartitions} {
		onEach(b, fmt.Sprintf("partitions=%d", partitions), func(b *testing.B, s *feed.Store) {
			fill(b, s, b.N, partitions)
			b.ResetTimer()
			drain(b, s, b.N, shapeConcurrency)
			rate(b)
		})
	}
}

// BenchmarkLimits runs BenchmarkItems and BenchmarkShapes without a limit, and with a limit that is never reached.
func BenchmarkLimits(b *testing.B) {
	for _, concurrency := range []int{shapeConcurrency, bulkConcurrency} {
		for name, limits := range map[string][]feed.Limit{"none": nil, "unreached": {{Concurrency: 100_000, Rate: 10_000_000, Per: time.Second}}} {
			onEach(b, fmt.Sprintf("concurrency=%d/limit=%s", concurrency, name), func(b *testing.B, s *feed.Store) {
				fill(b, s, b.N, partitions)
				b.ResetTimer()
				drain(b, s, b.N, concurrency, feed.Limits(limits...))
				rate(b)
			})
		}
	}
}

// BenchmarkFairness measures the time from the insertion of ten items into a new partition to the end of each, while one watcher processes
// another partition with an item per operation: 100,000 with -benchtime 100000x.
func BenchmarkFairness(b *testing.B) {
	onEach(b, "items=10", func(b *testing.B, s *feed.Store) {
		if tried(b) {
			return
		}
		fill(b, s, b.N, 1)
		last := make(chan struct{}, 1)
		left, took, small := int64(b.N), []time.Duration(nil), make(chan time.Time, 10)
		var large atomic.Int64
		stop := watch(b.Context(), s, func(_ context.Context, it feed.Item) (feed.Response, error) {
			if it.Partition != "p0" {
				small <- time.Now()
			} else if large.Add(1) == left {
				last <- struct{}{}
			}
			return done()
		})
		for len(last) == 0 {
			begun := time.Now()
			_, err := s.CreatePartition(b.Context(), feed.Partition{}, make([]feed.Item, 10)...)
			check(b, err)
			for range 10 {
				took = append(took, (<-small).Sub(begun))
			}
		}
		check(b, stop())
		quantiles(b, took)
		b.ReportMetric(float64(len(took)/10), "partitions")
	})
}

// BenchmarkInsert measures the time from the call of Insert to the handler. It inserts single items, each after the previous
// one was handled.
func BenchmarkInsert(b *testing.B) {
	onEach(b, "to=handler", func(b *testing.B, s *feed.Store) {
		fill(b, s, 0, 1)
		at := make(chan time.Time, 1)
		stop := watch(b.Context(), s, func(context.Context, feed.Item) (feed.Response, error) {
			at <- time.Now()
			return done()
		})
		var took []time.Duration
		for range min(b.N, latencies) {
			begun := time.Now()
			check(b, s.Insert(b.Context(), "p0", feed.Item{}))
			took = append(took, (<-at).Sub(begun))
		}
		check(b, stop())
		quantiles(b, took)
	})
}

// BenchmarkFanIn measures the time from the end of the last handler below a gate to the start of the first handler at the gate.
func BenchmarkFanIn(b *testing.B) {
	onEach(b, fmt.Sprintf("items=%d", fanIn), func(b *testing.B, s *feed.Store) {
		var mu sync.Mutex
		var lastBelow time.Time
		opened := make(chan time.Duration, 1)
		stop := watch(b.Context(), s, func(_ context.Context, it feed.Item) (feed.Response, error) {
			mu.Lock()
			took := time.Since(lastBelow)
			lastBelow = time.Now()
			mu.Unlock()
			if it.Gate == 1 {
				opened <- took
			}
			return done()
		}, feed.Concurrency(1000))
		_, err := s.CreatePartition(b.Context(), feed.Partition{ID: "fan-in"}, append(make([]feed.Item, min(b.N, fanIn)), feed.Item{Gate: 1})...)
		check(b, err)
		only(b, float64(<-opened), "open-ns")
		check(b, stop())
	})
}
