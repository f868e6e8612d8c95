package feed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/watch"
)

// meter is a processor that takes a time, and counts what runs at once in each partition.
type meter struct {
	takes time.Duration
	mu    sync.Mutex
	now   map[string]int // that run
	most  map[string]int
}

func newMeter(takes time.Duration) *meter {
	return &meter{takes: takes, now: map[string]int{}, most: map[string]int{}}
}

func (m *meter) Process(ctx context.Context, it Item) (Response, error) {
	m.note(1, it)
	defer m.note(-1, it)
	return Response{Done: true}, watch.Sleep(ctx, m.takes)
}

func (m *meter) note(n int, it Item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now[it.Partition] += n
	m.most[it.Partition] = max(m.most[it.Partition], m.now[it.Partition])
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

// TestPartitionConcurrency: no partition runs more, and those beside it are not hindered.
func TestPartitionConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeter(50 * time.Millisecond)
		each := limited(t, m, 5*time.Second, PartitionConcurrency(3))
		for p := range 4 {
			require.Equal(t, 3, m.most[fmt.Sprint("p", p)])
		}
		require.ErrorContains(t, NewWatcher(&Store{}, m, PartitionConcurrency(0)).Run(t.Context()), "PartitionConcurrency: 0 is below 1")
		require.Greater(t, each[0].Stats().Completed+each[1].Stats().Completed, int64(4*3*20*5*7/10), "of what 3 at a time in 4 partitions can do")
	})
}

func requireStopped(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
}
