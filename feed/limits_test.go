package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
	"github.com/jetpull/jetpull/internal/watch"
)

// meter is a processor that takes a time, and notes what runs at once and when it began.
type meter struct {
	takes time.Duration
	mu    sync.Mutex
	now   map[string]int // that run, by what is counted
	most  map[string]int
	begun map[string][]time.Time
}

func newMeter(takes time.Duration) *meter {
	return &meter{takes: takes, now: map[string]int{}, most: map[string]int{}, begun: map[string][]time.Time{}}
}

func (m *meter) Process(ctx context.Context, it Item) (Response, error) {
	m.note(1, it)
	defer m.note(-1, it)
	return ended(watch.Sleep(ctx, m.takes))
}

func ended(err error) (Response, error) { return Response{Done: true}, err }

func (m *meter) note(n int, it Item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range []string{fmt.Sprint("gate ", it.Gate), it.Partition} {
		m.now[key] += n
		m.most[key] = max(m.most[key], m.now[key])
		if n > 0 {
			m.begun[key] = append(m.begun[key], time.Now())
		}
	}
}

// overRate is the first window that has more begins than the rate.
func overRate(begun []time.Time, rate int, per time.Duration) string {
	slices.SortFunc(begun, time.Time.Compare)
	for i := rate; i < len(begun); i++ {
		if d := begun[i].Sub(begun[i-rate]); d < per {
			return fmt.Sprintf("%d begins within %v, up to %v", rate+1, d, begun[i])
		}
	}
	return ""
}

// slowClient is one of a model whose statements take a few milliseconds.
func slowClient(m *model) *client {
	return &client{model: m, answer: func(string) error { return nil }, statement: func(ctx context.Context, _ string) error {
		return watch.Sleep(ctx, time.Duration(1+rand.IntN(4))*time.Millisecond)
	}}
}

// limited runs two watchers on partitions with 300 items at gate 2, in virtual time, for a while.
func limited(t *testing.T, m *meter, took time.Duration, opts ...WatcherOption) (each []*Watcher) {
	t.Helper()
	db := newModel(time.Now)
	for p := range 4 {
		c := slowClient(db)
		c.create(Partition{ID: fmt.Sprint("p", p), Gate: 2})
		var items []Item
		for i := range 300 {
			items = append(items, Item{ID: fmt.Sprint(i), Gate: 2})
		}
		require.NoError(t, c.insert(t.Context(), fmt.Sprint("p", p), items...))
	}
	var runs []*running
	for range 2 {
		w := NewWatcher(nil, m, append(quick(), append([]WatcherOption{Concurrency(16), MaxPartitions(2)}, opts...)...)...)
		c := slowClient(db)
		w.tables = c
		each, runs = append(each, w), append(runs, start(t, w))
	}
	time.Sleep(took)
	for _, r := range runs {
		require.NoError(t, r.stop(t))
	}
	return each
}

// TestGateConcurrency: two watchers share the items that may run at a gate, and use all of it.
func TestGateConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter(50 * time.Millisecond)
		each := limited(t, m, 10*time.Second, Limits(Limit{Gate: 2, Concurrency: 5}))
		require.Equal(t, 5, m.most["gate 2"])
		first, second := each[0].Stats().Completed, each[1].Stats().Completed
		require.Greater(t, first+second, int64(10*5*20*6/10), "of what 5 at a time can do")
		require.Greater(t, 3*min(first, second), max(first, second), "each has a part")
		require.Zero(t, each[0].Stats().Conflicts+each[1].Stats().Conflicts+each[0].Stats().DatabaseErrors)
	})
}

// TestGateRate: no window of two watchers is over the rate, and nine tenths of it are used.
func TestGateRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter(5 * time.Millisecond)
		each := limited(t, m, 10*time.Second, Limits(Limit{Gate: 2, Rate: 100, Per: time.Second}))
		begun := m.begun["gate 2"]
		require.Empty(t, overRate(begun, 100, time.Second))
		require.GreaterOrEqual(t, len(begun), 900)
		first, second := each[0].Stats().Completed, each[1].Stats().Completed
		require.Greater(t, 3*min(first, second), max(first, second), "each has a part")
	})
}

// TestFewBeginsAreFair: two watchers that wait share a rate of a few begins a minute.
func TestFewBeginsAreFair(t *testing.T) {
	for range 10 {
		synctest.Test(t, func(t *testing.T) {
			m := newMeter(5 * time.Millisecond)
			each := limited(t, m, 10*time.Minute, Limits(Limit{Gate: 2, Rate: 10, Per: time.Minute}))
			require.GreaterOrEqual(t, len(m.begun["gate 2"]), 90)
			first, second := each[0].Stats().Completed, each[1].Stats().Completed
			require.Greater(t, 3*min(first, second), 2*max(first, second), "%d and %d", first, second)
		})
	}
}

// TestPartitionConcurrency: no partition runs more, and those beside it are not hindered.
func TestPartitionConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter(50 * time.Millisecond)
		each := limited(t, m, 5*time.Second, PartitionConcurrency(3))
		for p := range 4 {
			require.Equal(t, 3, m.most[fmt.Sprint("p", p)])
		}
		require.Greater(t, each[0].Stats().Completed+each[1].Stats().Completed, int64(4*3*20*5*7/10), "of what 3 at a time in 4 partitions can do")
	})
}

// TestLimitsLeaveOthersAlone: a partition at a gate whose rate is used up keeps none at another gate waiting.
func TestLimitsLeaveOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, c := newMeter(0), slowClient(newModel(time.Now))
		for p := range 20 {
			gate := p % 2
			c.create(Partition{ID: fmt.Sprint("p", p), Gate: gate})
			var items []Item
			for i := range 100 {
				items = append(items, Item{ID: fmt.Sprint(i), Gate: gate})
			}
			require.NoError(t, c.insert(t.Context(), fmt.Sprint("p", p), items...))
		}
		onModel(t, c, m, []WatcherOption{Concurrency(4), Limits(Limit{Gate: 1, Rate: 2, Per: time.Minute})}, func(*Watcher) {
			time.Sleep(30 * time.Second)
			require.Len(t, m.begun["gate 0"], 1000)
			require.Len(t, m.begun["gate 1"], 2)
			time.Sleep(time.Minute)
			require.Len(t, m.begun["gate 1"], 4)
		})
	})
}

// TestUnusedBeginsComeBack: what a watcher was allowed and had no use for is there for another one.
func TestUnusedBeginsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, db := newMeter(0), newModel(time.Now)
		limit := Limits(Limit{Gate: 0, Rate: 100, Per: time.Hour, Concurrency: 50})
		c := slowClient(db)
		c.create(Partition{ID: "p"})
		for round := range 10 {
			var items []Item
			for i := range 10 {
				items = append(items, Item{ID: fmt.Sprint(round, "-", i)})
			}
			require.NoError(t, c.insert(t.Context(), "p", items...))
			onModel(t, slowClient(db), m, []WatcherOption{limit}, func(*Watcher) { time.Sleep(5 * time.Second) })
		}
		require.Len(t, m.begun["gate 0"], 100)
	})
}

// TestInvalidLimits names what is wrong.
func TestInvalidLimits(t *testing.T) {
	t.Parallel()
	s := openStore(t, backends[0].fresh(t))
	for want, o := range map[string]WatcherOption{
		"Limits: gate 1 is given twice":             Limits(Limit{Gate: 1, Rate: 1, Per: time.Second}, Limit{Gate: 1, Concurrency: 2}),
		"Limits: gate 2 has neither":                Limits(Limit{Gate: 2}),
		"Limits: gate 0 has a Concurrency of -1":    Limits(Limit{Concurrency: -1}),
		"Limits: gate 0 has a Per of 999ms":         Limits(Limit{Rate: 1, Per: 999 * time.Millisecond}),
		"Limits: gate 0 has a Per of 0s":            Limits(Limit{Rate: 1}),
		"Limits: gate 0 has a Per of 1s but no Rat": Limits(Limit{Concurrency: 1, Per: time.Second}),
		"PartitionConcurrency: 0 is below 1":        PartitionConcurrency(0),
	} {
		err := NewWatcher(s, finish, o).Run(t.Context())
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	t.Run("unknown database", func(t *testing.T) {
		s := openStore(t, unknownPrefix+backends[1].fresh(t))
		err := NewWatcher(s, finish, Limits(Limit{Concurrency: 1})).Run(t.Context())
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, "need SQLite, PostgreSQL or SQL Server")
	})
}

// TestGrants: several processes ask at once for the first time. No ask is lost.
func TestGrants(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, dsn string) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		share, begins := 0, 0
		for i := range 8 {
			limits := openStore(t, dsn).sql
			wg.Go(func() {
				for n := range 5 {
					grants, err := limits.Grant(t.Context(), termsOf(fmt.Sprint("w", i, n)), []sqlstore.Ask{
						{Limit: sqlstore.Limit{Gate: 1, Concurrency: 7}, Demand: 2},
						{Limit: sqlstore.Limit{Gate: 2, Rate: 9, Per: time.Hour}, Begins: 2},
					})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					share, begins = share+grants[0].Share, begins+grants[1].Begins
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Equal(t, 7, share)
		require.Equal(t, 9, begins)
		require.NoError(t, s.sql.DB.Exec("UPDATE feed_limits SET state = 'no JSON' WHERE gate = 1").Error)
		_, err := s.sql.Grant(t.Context(), termsOf("w"), []sqlstore.Ask{{Limit: sqlstore.Limit{Gate: 1, Concurrency: 7}}})
		require.ErrorContains(t, err, "the row of gate 1 in feed_limits cannot be read")
	})
}

// The limits of the watchers that TestLimitsUnderKills kills.
const (
	killedConcurrency = 3
	killedRate        = 60
)

// TestLimitsUnderKills kills one of two processes in its handlers, again and again. Of all of them together no more run at once and, in
// the one window that the test lasts, no more begin than the limits say.
func TestLimitsUnderKills(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, s *Store, dsn string) {
		h := newHistory(t, s, crashConcurrency)
		for p := range 6 {
			create(t, s, Partition{ID: fmt.Sprint("p", p)}, make([]Item, 100)...)
		}
		steady := h.spawn(t, dsn, limitedChild)
		begun := func() (n int) { return h.count(t, "begin") }
		used := func() bool { // also by processes that were killed before they began
			var text []string
			require.NoError(t, s.sql.DB.Table("feed_limits").Pluck("state", &text).Error)
			var state sqlstore.LimitState
			n := 0
			if len(text) > 0 {
				require.NoError(t, json.Unmarshal([]byte(text[0]), &state))
			}
			for _, b := range state.Begins {
				n += b.N
			}
			return n >= killedRate
		}
		for range min(faultRounds(), 6) {
			victim := h.spawn(t, dsn, limitedChild)
			before := h.of(t, steady, "begin")
			eventually(t, "it has begun, or the rate is used", func() bool { return h.of(t, victim, "begin") > 0 || used() })
			require.NoError(t, victim.Process.Kill())
			_ = victim.Wait()
			require.NoError(t, h.note(event{what: "down", owner: strconv.Itoa(victim.Process.Pid) + "/", partition: "-", item: "-"}))
			eventually(t, "the other goes on", func() bool { return h.of(t, steady, "begin") > before || used() })
		}
		eventually(t, "what is left of the rate is used", used)
		requireStopped(t, steady)
		require.LessOrEqual(t, begun(), killedRate)
		require.NotZero(t, begun())
		running := map[string]int{} // by process
		for _, e := range h.events(t) {
			pid, _, _ := strings.Cut(e.owner, "/")
			switch e.what {
			case "begin":
				running[pid]++
			case "end", "failed":
				running[pid]--
			case "down":
				delete(running, pid)
			}
			total := 0
			for _, n := range running {
				total += n
			}
			require.LessOrEqual(t, total, killedConcurrency)
		}
		h.audit(t)
	})
}

func requireStopped(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
}
