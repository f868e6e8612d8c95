// Command bench measures the feed on PostgreSQL and SQLite on this machine: no-op items a second for the whole engine, beside
// River by the method of its own benchmark and beside a plain FOR UPDATE SKIP LOCKED loop, and in one partition beside
// many; insert to handler; how long a gate takes to open after the last item below it; how long it takes until another
// watcher has what one had; how four watchers share partitions; what an idle watcher asks; what completed items cost;
// memory. Each figure is the median of the rounds, in one process and in turn.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/jetpull/jetpull/feed/internal/pgtest"
)

var (
	items       = flag.Int("items", 200_000, "no-op items of a round")
	rounds      = flag.Int("rounds", 3, "rounds")
	only        = flag.String("only", "", "cases whose names contain this")
	concurrency = flag.Int("concurrency", 4000, "Concurrency of the watcher with the no-op items")
	workers     = flag.String("river-workers", "1000,2000,10000", "MaxWorkers of River, one run each")
	sizes       = flag.String("sizes", "10000,100000", "no-op items in one partition and in many, one run each")
	limit       = flag.Duration("limit", 2*time.Minute, "how long one of these runs takes at most; the rate is of what was processed")
	shared      = flag.Int("partitions", 10_000, "partitions that four watchers share")
	completed   = flag.Int("completed", 1_000_000, "completed items beside which work is measured; the target is about 10000000")
	profile     = flag.String("cpuprofile", "", "write a CPU profile of the watcher's no-op items on PostgreSQL")
	statements  = flag.Bool("statements", false, "print what the server did in the watcher's no-op items, by pg_stat_statements; that costs some of the speed")
	settings    = flag.String("settings", "shared_buffers=256MB,max_wal_size=4GB", "settings of the server")
)

// bench is a run.
type bench struct {
	server  *pgtest.Server
	dir     string
	names   []string // of figures, in the order in which they came
	figures map[string]*figure
	files   int
}

// figure is what was measured in each round, and what it should be.
type figure struct {
	unit   string
	values []float64
	target target
}

// target is a bound; the zero value: none.
type target struct {
	atLeast, atMost float64
}

func (t target) String() string {
	switch {
	case t.atLeast > 0:
		return fmt.Sprintf(">= %.0f", t.atLeast)
	case t.atMost > 0:
		return fmt.Sprintf("<= %.0f", t.atMost)
	}
	return ""
}

func (t target) missed(v float64) bool {
	return (t.atLeast > 0 && v < t.atLeast) || (t.atMost > 0 && v > t.atMost)
}

func (b *bench) note(name, unit string, v float64, t target) {
	f := b.figures[name]
	if f == nil {
		f = &figure{unit: unit, target: t}
		b.figures[name], b.names = f, append(b.names, name)
	}
	f.values = append(f.values, v)
}

// median is what came of a figure up to now; 0: nothing.
func (b *bench) median(name string) float64 {
	f := b.figures[name]
	if f == nil {
		return 0
	}
	list := slices.Sorted(slices.Values(f.values))
	return list[len(list)/2]
}

// database is an empty one of a kind.
func (b *bench) database(ctx context.Context, kind string) (dsn string, err error) {
	if kind == "sqlite" {
		b.files++
		return "sqlite:" + filepath.Join(b.dir, fmt.Sprint(b.files, ".db")), nil
	}
	return b.server.Database(ctx)
}

const (
	postgres = "postgres"
	sqlite   = "sqlite"
)

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	lines := strings.Split(*settings, ",")
	if *statements {
		lines = append(lines, "shared_preload_libraries=pg_stat_statements")
	}
	server, err := pgtest.Start(ctx, lines...)
	if err != nil {
		return err
	}
	defer server.Stop()
	dir, err := os.MkdirTemp("", "feed-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &bench{server: server, dir: dir, figures: map[string]*figure{}}
	cases := []struct {
		name string
		run  func(ctx context.Context) error
	}{
		{"throughput postgres", func(ctx context.Context) error { return b.throughput(ctx, postgres, *items) }},
		{"river", b.river},
		{"skip locked", b.skipLocked},
		{"throughput sqlite", func(ctx context.Context) error { return b.throughput(ctx, sqlite, *items/5) }},
		{"shapes postgres", func(ctx context.Context) error { return b.shapes(ctx, postgres) }},
		{"shapes sqlite", func(ctx context.Context) error { return b.shapes(ctx, sqlite) }},
		{"latency postgres", func(ctx context.Context) error { return b.latency(ctx, postgres) }},
		{"latency sqlite", func(ctx context.Context) error { return b.latency(ctx, sqlite) }},
		{"fan-in postgres", func(ctx context.Context) error { return b.fanIn(ctx, postgres) }},
		{"fan-in sqlite", func(ctx context.Context) error { return b.fanIn(ctx, sqlite) }},
		{"hand-over", b.handOver},
		{"shares", b.shares},
		{"idle", b.idle},
		{"completed", b.completed},
	}
	for range *rounds {
		for _, c := range cases {
			if !strings.Contains(c.name, *only) {
				continue
			}
			if err := c.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Fprintln(os.Stderr, "done:", c.name)
		}
	}
	b.report()
	return nil
}

func (b *bench) report() {
	if best := b.bestRiver(); best > 0 && b.median(throughputName(postgres)) > 0 {
		b.note("the feed's items a second to River's best", "x", b.median(throughputName(postgres))/best, target{atLeast: 2})
	}
	for _, name := range b.names {
		f := b.figures[name]
		slices.Sort(f.values)
		verdict, median := "", b.median(name)
		if f.target.missed(median) {
			verdict = "MISSED"
		}
		fmt.Printf("%-78s %10.1f %-8s (%.1f to %.1f)  %-10s %s\n", name, median, f.unit, f.values[0], f.values[len(f.values)-1], f.target, verdict)
	}
}

// profiled runs f with a CPU profile where one is asked for.
func profiled(path string, f func() error) error {
	if path == "" {
		return f()
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := pprof.StartCPUProfile(file); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	return f()
}
