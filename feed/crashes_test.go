package feed

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

const (
	maxCrashes = 2
	killed     = 9 // the exit code of a process that a killer has ended
)

// crashing is a watcher whose process ends while an item that says so is handled. It has time to renew the leases of 200 partitions with SQLite and
// the race detector: a begin that is stored when the lease is over starts no handler.
func crashing(ctx context.Context, s *Store, note func(event) error) error {
	p := ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
		time.Sleep(20 * time.Millisecond)
		if string(it.Data) == "kill" {
			os.Exit(killed)
		}
		return done()
	})
	return recorded(s.sql, p, note, append(quick(), Concurrency(66), Lease(5*crashLease), MaxCrashes(maxCrashes))...).Run(ctx)
}

// TestItemsThatEndTheirProcess: an item that ends its process becomes Failed, and no other item does, also none that was handled beside it.
func TestItemsThatEndTheirProcess(t *testing.T) {
	t.Parallel()
	many := 200
	if testing.Short() {
		many = 20
	}
	for _, tt := range []struct {
		name              string
		partitions, items int
		killers           []int // by the number of the item in all
	}{
		{"alone", 1, 1, []int{0}},
		{"among others", 1, 65, []int{7}},
		{"two", 1, 66, []int{7, 40}},
		{"in one of many partitions", many, 5, []int{5*many/2 + 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *Store, dsn string) {
				for p := range tt.partitions {
					items := make([]Item, tt.items)
					for i := range items {
						if n := p*tt.items + i; slices.Contains(tt.killers, n) {
							items[i] = Item{ID: fmt.Sprint("killer", n), Data: []byte("kill")}
						}
					}
					create(t, s, Partition{ID: fmt.Sprintf("p%03d", p)}, items...)
				}
				h := newHistory(t, s, math.MaxInt32)
				lives, most := 1, maxCrashes*len(tt.killers)+2 // the first is not counted, and the last does the rest
				for ; !h.live(t, dsn); lives++ {
					require.Less(t, lives, most, "processes")
				}
				t.Logf("%d processes", lives)
				items, err := s.Items(t.Context(), Query{Limit: 10_000})
				require.NoError(t, err)
				require.Len(t, items, tt.partitions*tt.items)
				failed := 0
				for _, it := range items {
					if string(it.Data) != "kill" {
						require.Equal(t, Complete, it.Status, it.ID)
						continue
					}
					failed++
					require.Equal(t, Failed, it.Status, it.ID)
					require.Equal(t, []string{"its process ended 2 times while it was handled"}, it.Errors)
				}
				require.Len(t, tt.killers, failed)
				var rows []sqlstore.Item
				require.NoError(t, s.sql.DB.Where("crashes IS NOT NULL").Find(&rows).Error)
				require.Empty(t, rows)
			})
		})
	}
}

// A partition that was taken over stays so when its owner returns it before it has looked at all items: the item that ended the process may be one
// of the others.
func TestTakenOverUntilAPassEnds(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		create(t, s, Partition{ID: "p"}, Item{ID: "a"}, Item{ID: "b"})
		over := func(as string) bool {
			taken, err := s.sql.Acquire(t.Context(), termsOf(as), 1, nil)
			require.NoError(t, err)
			require.Len(t, taken, 1)
			return taken[0].Over
		}
		expire := func() {
			require.NoError(t, s.sql.DB.Exec("UPDATE partitions SET until = ?", time.Now().Add(-time.Hour)).Error)
		}
		require.False(t, over("crashed"))
		expire()
		begun, stopped := make(chan string, 2), make(chan struct{})
		w := startWatcher(t, s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
			begun <- it.ID
			<-stopped
			return done()
		}), Concurrency(1), MaxCrashes(maxCrashes))
		require.Equal(t, "a", <-begun)
		w.cancel()
		close(stopped)
		require.NoError(t, w.stop(t))
		require.Empty(t, begun)
		p, err := s.Partition(t.Context(), "p")
		require.NoError(t, err)
		require.Empty(t, p.Owner)
		require.True(t, over("next"), "nobody has looked at b since the crash")
		expire()
		w = startWatcher(t, s, finish, MaxCrashes(maxCrashes))
		eventually(t, "the pass has ended", func() bool {
			p, err := s.Partition(t.Context(), "p")
			return err == nil && p.Owner == "" && counts(t, s, "p")[0].Complete == 2
		})
		require.NoError(t, w.stop(t))
		require.NoError(t, s.Insert(t.Context(), "p", Item{ID: "c"}))
		require.False(t, over("last"))
	})
}

// live runs a process until it ends, or nothing is left to do. It reports which.
func (h *history) live(t *testing.T, dsn string) (over bool) {
	t.Helper()
	cmd := h.spawn(t, dsn, crashingChild)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	eventually(t, "the process ends, or all is done", func() bool {
		var open int64
		err := h.s.sql.DB.Table("items").Where("status = 'Available'").Count(&open).Error
		over = err == nil && open == 0
		return over || len(ended) > 0
	})
	if over {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.NoError(t, <-ended)
		return true
	}
	var exit *exec.ExitError
	require.ErrorAs(t, <-ended, &exit)
	require.Equal(t, killed, exit.ExitCode(), "only a killer ends a process")
	return false
}
