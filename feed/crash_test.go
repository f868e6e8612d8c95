package feed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
	"github.com/jetpull/jetpull/internal/natstest"
)

// The environment variables of a child process: the database, the log, and its end.
const (
	childDSN   = "FEED_TEST_CHILD"
	childLog   = "FEED_TEST_LOG"
	childFault = "FEED_TEST_FAULT"
)

const (
	crashConcurrency = 4
	crashLease       = 300 * time.Millisecond
)

// The faults that a process does to itself when it saves: in between are a handler's success and the statement, or the
// statement and its answer.
const (
	killBefore = "kill before save"
	killAfter  = "kill after save"
	stopBefore = "stop before save"
	// limitedChild has limits instead of a fault.
	limitedChild = "limited"
	// crashingChild has MaxCrashes, and a handler that an item ends.
	crashingChild = "crashing"
	// hangingChild has a handler that an item keeps until it is cancelled. A fault may follow.
	hangingChild = "hanging "
)

// faulty is a Store whose process has a fault when at, which counts the saves that are left before it, is 0. Saves run side by side.
type faulty struct {
	*sqlstore.Store
	fault string
	at    atomic.Int64
}

func (f *faulty) Save(ctx context.Context, t sqlstore.Terms, results []sqlstore.Result) ([]bool, error) {
	if f.at.Add(-1) != 0 {
		return f.Store.Save(ctx, t, results)
	}
	switch f.fault {
	case killBefore:
		return nil, syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case stopBefore:
		// In turn, so that the process does not stop with the lock of a SQLite database.
		if err := f.InTurn(ctx, stopSelf); err != nil {
			return nil, err
		}
	}
	saved, err := f.Store.Save(ctx, t, results)
	if f.fault == killAfter {
		return nil, syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return saved, err
}

// stopSelf returns when the process was stopped and goes on.
func stopSelf() error {
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, syscall.SIGCONT)
	defer signal.Stop(resumed)
	if err := syscall.Kill(os.Getpid(), syscall.SIGSTOP); err != nil {
		return err
	}
	<-resumed
	return nil
}

// child is a watcher in a process of its own.
func child(dsn string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := Open(ctx, dsn, NoMigrate())
	if err != nil {
		return err
	}
	log, err := appendTo(os.Getenv(childLog))
	if err != nil {
		return err
	}
	pid := strconv.Itoa(os.Getpid())
	note := func(e event) error {
		e.owner = pid + "/" + e.owner
		return e.write(log)
	}
	if err := note(event{what: "up", partition: "-", item: "-"}); err != nil {
		return err
	}
	fault := os.Getenv(childFault)
	if of, found := strings.CutPrefix(fault, hangingChild); found {
		return hanging(ctx, s, of, note)
	}
	switch fault {
	case crashingChild:
		return crashing(ctx, s, note)
	case killCancel, killDelete:
		return operator(ctx, s, fault)
	}
	f := &faulty{Store: s.sql, fault: fault}
	f.at.Store(1 + rand.N(int64(3)))
	opts := append(quick(), Concurrency(crashConcurrency), Lease(crashLease), AutoClose(), MaxPartitions(2))
	if f.fault == limitedChild {
		opts = append(opts, Limits(Limit{Concurrency: killedConcurrency, Rate: killedRate, Per: time.Hour}))
	}
	return recorded(f, finish, note, opts...).Run(ctx)
}

func (h *history) spawn(t *testing.T, dsn, fault string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDSN+"="+dsn, childLog+"="+h.path, childFault+"="+fault)
	cmd.Stderr = os.Stderr
	natstest.EndWithParent(cmd, syscall.SIGKILL)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	eventually(t, "the process is up", func() bool { return h.of(t, cmd, "up") > 0 })
	return cmd
}

// of is how many events of a kind a process has.
func (h *history) of(t *testing.T, cmd *exec.Cmd, what string) (n int) {
	t.Helper()
	for _, e := range h.events(t) {
		if e.what == what && strings.HasPrefix(e.owner, strconv.Itoa(cmd.Process.Pid)+"/") {
			n++
		}
	}
	return n
}

// stopped reports whether a process is stopped by a signal.
func stopped(cmd *exec.Cmd) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	_, rest, found := strings.Cut(string(stat), ") ")
	return err == nil && found && rest[0] == 'T'
}

// work is partitions, more of them each time.
type work struct{ partitions int }

func (w *work) add(t *testing.T, s *Store) {
	t.Helper()
	for range 6 {
		create(t, s, Partition{ID: fmt.Sprint("p", w.partitions), Sealed: true}, append(make([]Item, 15), Item{ID: "last", Gate: 1})...)
		w.partitions++
	}
}

// until waits for a condition while there is work.
func (w *work) until(t *testing.T, s *Store, what string, condition func() bool) {
	t.Helper()
	eventually(t, what, func() bool {
		if allComplete(t, s) {
			w.add(t, s)
		}
		return condition()
	})
}

func faultRounds() int {
	if testing.Short() {
		return 2
	}
	return 50
}

// TestFaults kills one of two processes, or stops it past its lease, again and again.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"kill", killBefore, killAfter, stopBefore} {
		t.Run(fault, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *Store, dsn string) {
				if s.sql.Dialect.Name == "postgres" {
					// A process may stop while it has rows locked.
					dsn += "&idle_in_transaction_session_timeout=500"
				}
				h := newHistory(t, s, crashConcurrency)
				steady := h.spawn(t, dsn, "")
				var w work
				for range faultRounds() {
					victim := h.spawn(t, dsn, fault)
					switch fault {
					case "kill":
						n := 1 + rand.N(30)
						w.until(t, s, "the process is at work", func() bool { return h.of(t, victim, "begin") >= n })
						require.NoError(t, victim.Process.Kill())
					case stopBefore:
						w.until(t, s, "the process is stopped", func() bool { return stopped(victim) })
						owned := h.lastTry(t, victim)
						w.until(t, s, "another has the leases", func() bool { return !holds(t, s, owned) })
						require.NoError(t, victim.Process.Signal(syscall.SIGCONT))
						eventually(t, "it has tried to write", func() bool { return h.of(t, victim, "refused") > 0 })
						require.NoError(t, victim.Process.Signal(syscall.SIGTERM))
					default:
						ended := make(chan struct{})
						go func() { _ = victim.Wait(); close(ended) }()
						w.until(t, s, "the process has ended", func() bool {
							select {
							case <-ended:
								return true
							default:
								return false
							}
						})
						continue
					}
					_ = victim.Wait()
				}
				eventually(t, "all is complete", func() bool { return allComplete(t, s) })
				require.NoError(t, steady.Process.Signal(syscall.SIGTERM))
				require.NoError(t, steady.Wait())
				h.check(t)
			})
		})
	}
}

// lastTry is the last write that a process tried.
func (h *history) lastTry(t *testing.T, cmd *exec.Cmd) (last event) {
	t.Helper()
	for _, e := range h.events(t) {
		if e.what == "try" && strings.HasPrefix(e.owner, strconv.Itoa(cmd.Process.Pid)+"/") {
			last = e
		}
	}
	return last
}

// holds reports whether the lease under which a write was tried is still in the table.
func holds(t *testing.T, s *Store, try event) bool {
	t.Helper()
	p, err := s.Partition(t.Context(), try.partition)
	require.NoError(t, err)
	return p.Epoch == try.epoch
}

// allComplete reports whether the database answers, and each partition is Complete.
func allComplete(t *testing.T, s *Store) bool {
	t.Helper()
	for _, status := range []Status{Available, Failed} {
		list, err := s.Partitions(t.Context(), Query{Status: status, Limit: 1})
		if err != nil || len(list) > 0 {
			return false
		}
	}
	return true
}
