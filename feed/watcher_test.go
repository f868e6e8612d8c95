package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const testWait = 2 * time.Minute // a loaded machine is slow

// running is a watcher that runs.
type running struct {
	cancel context.CancelFunc
	done   chan error
}

// quick is what a watcher of a test waits for shorter.
func quick() []WatcherOption {
	return []WatcherOption{
		Logger(slog.New(slog.DiscardHandler)), Poll(5*time.Millisecond, 50*time.Millisecond), Backoff(func(int) time.Duration { return time.Millisecond }),
		Requeue(0),
	}
}

func startWatcher(t *testing.T, s *Store, p Processor, opts ...WatcherOption) *running {
	t.Helper()
	return start(t, NewWatcher(s, p, append(quick(), opts...)...))
}

func start(t *testing.T, w *Watcher) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel, make(chan error, 1)}
	go func() { r.done <- w.Run(ctx) }()
	t.Cleanup(cancel)
	return r
}

// stop ends the watcher and returns what Run returned.
func (r *running) stop(t *testing.T) error {
	t.Helper()
	r.cancel()
	select {
	case err := <-r.done:
		return err
	case <-time.After(testWait):
		t.Fatal("Run did not return")
		return nil
	}
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, testWait, 10*time.Millisecond, what)
}

func awaitPartition(t *testing.T, s *Store, id string, status Status) {
	t.Helper()
	eventually(t, fmt.Sprintf("partition %s is %s", id, status), func() bool {
		p, err := s.Partition(t.Context(), id)
		return err == nil && p.Status == status
	})
}

func done() (Response, error) { return Response{Done: true}, nil }

func toGate(g int) (Response, error) { return Response{Gate: &g}, nil }

// TestFanOutAndIn is the résumés of the tutorial: all are classified before one is ranked.
func TestFanOutAndIn(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		const partitions, each = 5, 40
		h := newHistory(t, s, 8)
		for p := range partitions {
			create(t, s, Partition{ID: fmt.Sprint("p", p), Sealed: true}, append(make([]Item, each), Item{ID: "rank", Gate: 1})...)
		}
		var seen sync.Map
		var items atomic.Int64
		var watchers []*running
		for range 2 {
			watchers = append(watchers, h.watch(t, s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
				if _, before := seen.LoadOrStore(it.Partition+it.ID, true); !before && items.Add(1)%2 == 0 {
					return Response{}, errors.New("at first")
				}
				return done()
			}), AutoClose()))
		}
		for p := range partitions {
			awaitPartition(t, s, fmt.Sprint("p", p), Complete)
			require.Equal(t, map[int]Counts{0: {Complete: each}, 1: {Complete: 1}}, counts(t, s, fmt.Sprint("p", p)))
		}
		for _, w := range watchers {
			require.NoError(t, w.stop(t))
		}
		repeats, _ := h.check(t)
		require.Zero(t, repeats)
		require.NotZero(t, h.count(t, "failed"))
		list, err := s.Partitions(t.Context(), Query{})
		require.NoError(t, err)
		for _, p := range list {
			require.Empty(t, p.Owner)
		}
	})
}

// TestResponses is what each way to end an attempt makes of an item.
func TestResponses(t *testing.T) {
	t.Parallel()
	type call func(n int, it Item) (Response, error)
	gate := func(g int) *int { return &g }
	boom := errors.New("boom")
	responses := []struct {
		name string
		call call
		opts []WatcherOption
		want func(t *testing.T, it Item, calls []Item)
		fail bool
	}{
		{"done", func(int, Item) (Response, error) { return done() }, nil, func(t *testing.T, it Item, calls []Item) {
			require.Equal(t, []byte("in"), it.Data)
			require.Len(t, calls, 1)
			require.Equal(t, 1, calls[0].Attempt)
			require.Empty(t, calls[0].Errors)
		}, false},
		{"data, then done", func(n int, _ Item) (Response, error) {
			if n == 1 {
				return Response{Data: []byte("not JSON")}, nil
			}
			return Response{Done: true, Data: []byte{}}, nil
		}, nil, func(t *testing.T, it Item, calls []Item) {
			require.Equal(t, "not JSON", string(calls[1].Data))
			require.Empty(t, it.Data)
			require.Equal(t, 1, calls[1].Attempt)
		}, false},
		{"gates", func(_ int, it Item) (Response, error) {
			if it.Gate == 4 {
				return done()
			}
			return toGate(it.Gate + 2)
		}, nil, func(t *testing.T, it Item, calls []Item) {
			require.Equal(t, 4, it.Gate)
			require.Len(t, calls, 3)
		}, false},
		{"two failures", func(n int, _ Item) (Response, error) {
			switch n {
			case 1, 2, 4:
				return Response{}, boom
			case 3:
				return Response{}, nil
			}
			return done()
		}, []WatcherOption{MaxRetries(2)}, func(t *testing.T, _ Item, calls []Item) {
			require.Equal(t, []string{"boom", "boom"}, calls[2].Errors)
			require.Equal(t, 3, calls[2].Attempt)
			require.Equal(t, 1, calls[3].Attempt, "the counter is reset after a step")
			require.Empty(t, calls[3].Errors)
			require.Equal(t, 2, calls[4].Attempt)
		}, false},
		{
			"too many failures", func(int, Item) (Response, error) { return Response{}, boom },
			[]WatcherOption{MaxRetries(2)},
			func(t *testing.T, it Item, calls []Item) {
				require.Len(t, calls, 3)
				require.Equal(t, 3, it.Attempt)
				require.Equal(t, []string{"boom", "boom", "boom"}, it.Errors)
			}, true,
		},
		{
			"permanent", func(int, Item) (Response, error) { return Response{}, fmt.Errorf("wrapped: %w", Permanent(boom)) },
			[]WatcherOption{MaxRetries(-1)},
			func(t *testing.T, it Item, calls []Item) {
				require.Len(t, calls, 1)
				require.Equal(t, []string{"wrapped: boom"}, it.Errors)
			}, true,
		},
		{
			"regression", func(int, Item) (Response, error) { return Response{Gate: gate(-1), Done: true}, nil }, nil,
			func(t *testing.T, _ Item, calls []Item) { require.Len(t, calls, 1) }, true,
		},
		{
			"panic", func(int, Item) (Response, error) { panic("at the disco") },
			[]WatcherOption{MaxRetries(1)},
			func(t *testing.T, it Item, calls []Item) {
				require.Len(t, calls, 2)
				require.Contains(t, it.Errors[0], "at the disco")
			}, true,
		},
		{"retry after", func(n int, _ Item) (Response, error) {
			if n == 1 {
				return Response{}, RetryAfter(-1, boom)
			}
			return done()
		}, []WatcherOption{Backoff(func(int) time.Duration { return time.Hour })}, func(t *testing.T, _ Item,
			calls []Item,
		) {
			require.Len(t, calls, 2)
		}, false},
	}
	onEach(t, func(t *testing.T, s *Store, _ string) {
		for _, tt := range responses {
			t.Run(tt.name, func(t *testing.T) {
				create(t, s, Partition{ID: tt.name, Sealed: true}, Item{ID: "a", Data: []byte("in")})
				var mu sync.Mutex
				var calls []Item
				w := startWatcher(t, s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
					mu.Lock()
					calls = append(calls, it)
					n := len(calls)
					mu.Unlock()
					return tt.call(n, it)
				}), append(tt.opts, AutoClose())...)
				want := Complete
				if tt.fail {
					want = Failed
				}
				awaitPartition(t, s, tt.name, want)
				require.NoError(t, w.stop(t))
				it, err := s.Item(t.Context(), tt.name, "a")
				require.NoError(t, err)
				require.Equal(t, want, it.Status)
				tt.want(t, it, calls)
			})
		}
	})
}

// canceled is a context that has ended: what nothing is wrong with returns at once.
func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestWatcherRefuses(t *testing.T) {
	t.Parallel()
	s := openStore(t, backends[0].fresh(t))
	p := ProcessorFunc(func(context.Context, Item) (Response, error) { return done() })
	for name, o := range map[string]WatcherOption{
		"Concurrency": Concurrency(0), "Lease": Lease(0), "Poll": Poll(time.Second, time.Millisecond), "MaxPartitions": MaxPartitions(0),
		"MaxRetries": MaxRetries(-2), "Backoff": Backoff(nil), "Requeue": Requeue(-1), "DrainTimeout": DrainTimeout(-1), "Wakeups": Wakeups(nil),
		"Logger": Logger(nil), "MaxCrashes": MaxCrashes(0), "HandlerTimeout": HandlerTimeout(0), "OnError": OnError(nil), "WatcherOption": nil,
	} {
		err := NewWatcher(s, p, o).Run(t.Context())
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, name)
	}
	require.ErrorIs(t, NewWatcher(s, p, Concurrency(1<<60)).Run(t.Context()), ErrInvalid)
	require.ErrorIs(t, NewWatcher(s, p, Requeue(math.MaxInt64)).Run(canceled(t)), ErrInvalid)
	require.ErrorIs(t, NewWatcher(nil, p).Run(t.Context()), ErrInvalid)
	require.ErrorIs(t, NewWatcher(s, nil).Run(t.Context()), ErrInvalid)
}

// TestSlowHandlersKeepTheirLease: another watcher gets nothing of a partition whose handler takes several leases,
// also where the database's clock is an hour off this machine's.
func TestSlowHandlersKeepTheirLease(t *testing.T) {
	t.Parallel()
	for _, off := range []string{"", "+1 hour", "-1 hour"} {
		t.Run("clock"+off, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, s *Store, _ string) {
				s.shiftClock(off)
				ghost := termsOf("ghost")
				ghost.Length = 200 * time.Millisecond
				create(t, s, Partition{ID: "p", Sealed: true}, Item{ID: "a"})
				leaseOne(t, s, ghost) // and dies
				dead, err := s.Partition(t.Context(), "p")
				require.NoError(t, err)
				h := newHistory(t, s, 4)
				slow := ProcessorFunc(func(ctx context.Context, _ Item) (Response, error) {
					now, err := s.sql.Dialect.Clock(s.sql.DB.WithContext(ctx))
					if err != nil || now.Before(dead.Until) {
						return Response{}, Permanent(fmt.Errorf("began at %v, before the end of a lease, %v: %w", now, dead.Until, err))
					}
					first, err := s.Partition(ctx, "p")
					if err != nil {
						return Response{}, err
					}
					// Until the lease was renewed past several times its length.
					tick := time.NewTicker(50 * time.Millisecond)
					defer tick.Stop()
					for p := first; p.Until.Sub(first.Until) < 2500*time.Millisecond; <-tick.C {
						if p, err = s.Partition(ctx, "p"); err != nil {
							return Response{}, err
						}
					}
					return done()
				})
				for range 2 {
					h.watch(t, s, slow, Lease(time.Second), AutoClose())
				}
				awaitPartition(t, s, "p", Complete)
				p, err := s.Partition(t.Context(), "p")
				require.NoError(t, err)
				require.EqualValues(t, 2, p.Epoch)
				repeats, takeovers := h.check(t)
				require.Zero(t, repeats)
				require.Equal(t, 1, takeovers)
			})
		})
	}
}

// shiftClock sets the database's clock.
func (s *Store) shiftClock(by string) {
	if by == "" {
		return
	}
	shift := strings.NewReplacer("'now'", "'now', '"+by+"'", "statement_timestamp()", "(statement_timestamp() + interval '"+by+"')").Replace
	d := *s.sql.Dialect
	d.Now, d.Passed = shift(d.Now), shift(d.Passed)
	s.sql.Dialect = &d
}

// TestConcurrency: no more than that many items have begun and are not saved, and as many do.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, _ string) {
		const most = 5
		for p := range 3 {
			create(t, s, Partition{ID: fmt.Sprint(p)}, make([]Item, 20)...)
		}
		var mu sync.Mutex
		now, peak := 0, 0
		full := make(chan struct{})
		var once sync.Once
		w := startWatcher(t, s, ProcessorFunc(func(context.Context, Item) (Response, error) {
			mu.Lock()
			now++
			peak = max(peak, now)
			if now == most {
				once.Do(func() { close(full) })
			}
			mu.Unlock()
			<-full
			mu.Lock()
			now--
			mu.Unlock()
			return done()
		}), Concurrency(most))
		eventually(t, "all are complete", func() bool {
			left, err := s.Items(t.Context(), Query{Status: Available, Limit: 1})
			return err == nil && len(left) == 0
		})
		require.NoError(t, w.stop(t))
		require.Equal(t, most, peak)
	})
}

// TestMaxPartitionsStarvesNone: partitions with work for ever, drained ones and new ones share one lease.
func TestMaxPartitionsStarvesNone(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		for p := range 4 {
			create(t, s, Partition{ID: fmt.Sprint(p)}, Item{ID: "endless"})
		}
		for p := range 20 {
			create(t, s, Partition{ID: fmt.Sprint("open", p)}, Item{})
		}
		var mu sync.Mutex
		seen := map[string]int{}
		w := startWatcher(t, s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
			mu.Lock()
			defer mu.Unlock()
			seen[it.Partition]++
			return Response{Done: it.ID != "endless"}, nil
		}), MaxPartitions(1), Lease(150*time.Millisecond))
		eventually(t, "each had its turn", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(seen) == 24
		})
		require.NoError(t, w.stop(t))
	})
}

// TestStop: what runs is finished and saved, what has not begun is left, and the leases are back.
func TestStop(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, _ string) {
		create(t, s, Partition{ID: "p"}, make([]Item, 10)...)
		begun, finish := make(chan struct{}, 10), make(chan struct{})
		w := startWatcher(t, s, ProcessorFunc(func(ctx context.Context, _ Item) (Response, error) {
			begun <- struct{}{}
			<-finish
			return Response{Done: true}, ctx.Err()
		}), Concurrency(3), AutoClose())
		for range 3 {
			<-begun
		}
		w.cancel()
		close(finish)
		require.NoError(t, w.stop(t))
		require.Equal(t, map[int]Counts{0: {Available: 7, Complete: 3}}, counts(t, s, "p"))
		p, err := s.Partition(t.Context(), "p")
		require.NoError(t, err)
		require.Empty(t, p.Owner)
	})
}

// TestDrainTimeout: handlers that do not return are left behind, and what they return later is written nowhere.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, _ string) {
		create(t, s, Partition{ID: "p"}, Item{ID: "stuck"}, Item{ID: "polite"})
		begun, finish := make(chan struct{}, 2), make(chan struct{})
		defer close(finish)
		w := startWatcher(t, s, ProcessorFunc(func(ctx context.Context, it Item) (Response, error) {
			begun <- struct{}{}
			if it.ID == "stuck" {
				<-finish
				return done()
			}
			<-ctx.Done()
			return Response{}, ctx.Err()
		}), DrainTimeout(20*time.Millisecond))
		<-begun
		<-begun
		require.ErrorIs(t, w.stop(t), ErrDrainTimeout)
		p, err := s.Partition(t.Context(), "p")
		require.NoError(t, err)
		require.NotEmpty(t, p.Owner, "the lease ends by time: a handler still runs")
		for _, id := range []string{"stuck", "polite"} {
			it, err := s.Item(t.Context(), "p", id)
			require.NoError(t, err)
			require.Equal(t, Available, it.Status)
			require.Zero(t, it.Attempt, "called off is no attempt")
		}
	})
}

// TestOddTimesOfOtherPrograms: a not_before or an until that another program wrote and that is no time keeps nobody from the rows.
func TestOddTimesOfOtherPrograms(t *testing.T) {
	t.Parallel()
	odd := map[string][]string{
		"sqlite":   {"2450000.5", "1700000000", "'garbage'", "''", "x'00'"}, // the first is a Julian day, and long over
		"postgres": {"'-infinity'", "'infinity'"},
	}
	onEach(t, func(t *testing.T, s *Store, _ string) {
		times := odd[s.sql.Dialect.Name]
		for i, at := range times {
			create(t, s, Partition{ID: fmt.Sprint("p", i)}, Item{ID: "odd"}, Item{ID: "even"})
			require.NoError(t, s.sql.DB.Exec("UPDATE items SET not_before = "+at+" WHERE id = 'odd' AND partition_id = ?", fmt.Sprint("p", i)).Error)
			for _, status := range []Status{Available, Complete} {
				p := create(t, s, Partition{ID: fmt.Sprint(status, i)})
				require.NoError(t, s.sql.DB.Exec("UPDATE partitions SET owner = 'admin', status = ?, until = "+at+" WHERE id = ?", status, p.ID).Error)
			}
		}
		partitions, err := s.Partitions(t.Context(), Query{})
		require.NoError(t, err)
		require.Len(t, partitions, 3*len(times))
		_, err = s.Prune(t.Context(), time.Hour, nil)
		require.NoError(t, err)
		items, err := s.Items(t.Context(), Query{})
		require.NoError(t, err)
		require.Len(t, items, 2*len(times))
		w := startWatcher(t, s, finish)
		for i := range times {
			eventually(t, "it is complete", func() bool { return counts(t, s, fmt.Sprint("p", i))[0].Complete >= 1 })
		}
		eventually(t, "what is over is complete", func() bool { return len(times) == 0 || counts(t, s, "p0")[0].Complete == 2 })
		require.NoError(t, w.stop(t))
	})
}

// TestOtherProgramsAreSeen: rows written without the library are processed without a wake-up.
func TestOtherProgramsAreSeen(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, _ string) {
		w := startWatcher(t, s, ProcessorFunc(func(context.Context, Item) (Response, error) { return done() }))
		require.NoError(t, s.sql.DB.Exec("INSERT INTO partitions (id, gate, status, version) VALUES ('p', 0, 'Available', 1)").Error)
		for i := range 3 {
			require.NoError(t, s.sql.DB.Exec("INSERT INTO items (partition_id, id, gate, status, data, version) VALUES ('p', ?, 0, 'Available', 'x', 1)",
				fmt.Sprint(i)).Error)
			eventually(t, "it is complete", func() bool { return counts(t, s, "p")[0].Complete == i+1 })
		}
		require.NoError(t, w.stop(t))
	})
}
