package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jetpull/jetpull/feed"
)

const (
	partitions     = 100
	manyPartitions = 1000
	fillMost       = 100_000 // items of one Insert
	latencies      = 300
	fanIn          = 10_000
)

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

// on opens an empty database of a kind for f.
func (b *bench) on(ctx context.Context, kind string, f func(s *feed.Store, dsn string) error) error {
	dsn, err := b.database(ctx, kind)
	if err != nil {
		return err
	}
	s, err := feed.Open(ctx, dsn)
	if err != nil {
		return err
	}
	return errors.Join(f(s, dsn), s.Close())
}

func throughputName(kind string) string { return kind + ": no-op items, to the last save" }

func (b *bench) throughput(ctx context.Context, kind string, n int) error {
	return b.on(ctx, kind, func(s *feed.Store, dsn string) error {
		begun := time.Now()
		if err := fill(ctx, s, "bulk", n, partitions); err != nil {
			return err
		}
		b.note(kind+": bulk insert", "items/s", float64(n)/time.Since(begun).Seconds(), target{})
		goal, path := target{}, ""
		if kind == postgres {
			goal, path = target{atLeast: 40_000}, *profile
		}
		report, err := countStatements(ctx, kind, dsn)
		if err != nil {
			return err
		}
		return profiled(path, func() error {
			memory := watchMemory()
			done, took, err := drain(ctx, s, n, *concurrency, 0)
			b.note(throughputName(kind), "items/s", float64(done)/took.Seconds(), goal)
			b.note(kind+": heap at most meanwhile", "MiB", memory(), target{})
			return errors.Join(err, report())
		})
	})
}

// fill creates partitions with n items in all.
func fill(ctx context.Context, s *feed.Store, name string, n, partitions int) error {
	for p := range partitions {
		id := fmt.Sprint(name, p)
		if _, err := s.CreatePartition(ctx, feed.Partition{ID: id}); err != nil {
			return err
		}
		for left := n / partitions; left > 0; left -= fillMost {
			if err := s.Insert(ctx, id, make([]feed.Item, min(left, fillMost))...); err != nil {
				return err
			}
		}
	}
	return nil
}

// drain runs a watcher until it has processed n items and saved the last of them, or until limit is over, unless that is 0.
// It returns how many it has processed.
func drain(ctx context.Context, s *feed.Store, n, concurrency int, limit time.Duration) (int, time.Duration, error) {
	var handled atomic.Int64
	last := make(chan struct{})
	var over <-chan time.Time
	if limit > 0 {
		over = time.After(limit)
	}
	begun := time.Now()
	stop := watch(ctx, s, func(context.Context, feed.Item) (feed.Response, error) {
		if handled.Add(1) == int64(n) {
			close(last)
		}
		return done()
	}, feed.Concurrency(concurrency))
	select {
	case <-last:
	case <-over:
	}
	err := stop()
	return int(handled.Load()), time.Since(begun), err
}

// shapes processes the same number of items in one partition and in many, by a watcher with the default Concurrency.
func (b *bench) shapes(ctx context.Context, kind string) error {
	list, err := numbers("-sizes", *sizes)
	if err != nil {
		return err
	}
	for _, n := range list {
		for _, p := range []int{1, manyPartitions} {
			err := b.on(ctx, kind, func(s *feed.Store, _ string) error {
				if err := fill(ctx, s, "shape", n, p); err != nil {
					return err
				}
				done, took, err := drain(ctx, s, n, 64, *limit)
				name := fmt.Sprintf("%s: %d no-op items in partitions: %d", kind, n, p)
				b.note(name, "items/s", float64(done)/took.Seconds(), target{})
				if done < n {
					b.note(name+", not all: processed", "items", float64(done), target{})
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// watchMemory returns a function that ends the watch and returns the largest heap since, in MiB.
func watchMemory() (most func() float64) {
	ended, peak := make(chan struct{}), make(chan uint64)
	runtime.GC()
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for largest := uint64(0); ; {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			largest = max(largest, m.HeapAlloc)
			select {
			case <-tick.C:
			case <-ended:
				peak <- largest
				return
			}
		}
	}()
	return func() float64 {
		close(ended)
		return float64(<-peak) / (1 << 20)
	}
}

// latency inserts single items, each after the one before was handled.
func (b *bench) latency(ctx context.Context, kind string) error {
	return b.on(ctx, kind, func(s *feed.Store, _ string) error {
		took, err := roundTrips(ctx, s)
		if err != nil {
			return err
		}
		b.note(kind+": call of Insert to handler, p50", "ms", took[len(took)/2], target{atMost: 10})
		b.note(kind+": call of Insert to handler, p99", "ms", took[len(took)*99/100], target{atMost: 50})
		return nil
	})
}

func roundTrips(ctx context.Context, s *feed.Store) (took []float64, err error) {
	if _, err := s.CreatePartition(ctx, feed.Partition{ID: "latency"}); err != nil {
		return nil, err
	}
	at := make(chan time.Time, 1)
	stop := watch(ctx, s, func(context.Context, feed.Item) (feed.Response, error) {
		at <- time.Now()
		return done()
	})
	for range latencies {
		begun := time.Now()
		if err := s.Insert(ctx, "latency", feed.Item{}); err != nil {
			return nil, errors.Join(err, stop())
		}
		took = append(took, (<-at).Sub(begun).Seconds()*1000)
	}
	slices.Sort(took)
	return took, stop()
}

// fanIn measures from the end of the last handler below a gate to the begin of the first at it.
func (b *bench) fanIn(ctx context.Context, kind string) error {
	return b.on(ctx, kind, func(s *feed.Store, _ string) error {
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
			return done()
		}, feed.Concurrency(1000))
		if _, err := s.CreatePartition(ctx, feed.Partition{ID: "fan-in"}, append(make([]feed.Item, fanIn), feed.Item{Gate: 1})...); err != nil {
			return errors.Join(err, stop())
		}
		b.note(fmt.Sprintf("%s: fan-in of %d, last handler to the next gate's first", kind, fanIn), "ms", <-opened, target{atMost: 100})
		return stop()
	})
}
