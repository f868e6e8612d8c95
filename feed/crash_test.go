package feed

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	childDSN = "FEED_TEST_CHILD"
	childLog = "FEED_TEST_LOG"
	// crashConcurrency bounds what one kill can make happen twice.
	crashConcurrency = 4
	crashLease       = 300 * time.Millisecond
)

// child is a watcher in a process of its own. It writes each begin and end of a handler into a file that all share.
func child(dsn, path string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := Open(ctx, dsn)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	note := func(what string, it Item) error {
		_, err := fmt.Fprintf(log, "%s %s %s %d\n", what, it.Partition, it.ID, it.Gate)
		return err
	}
	return NewWatcher(s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
		if err := note("begin", it); err != nil {
			return Response{}, err
		}
		time.Sleep(time.Millisecond) // the work
		return Response{Done: true}, note("end", it)
	}), Concurrency(crashConcurrency), Lease(crashLease), Poll(5*time.Millisecond, 50*time.Millisecond), AutoClose(), MaxPartitions(2)).Run(ctx)
}

func spawn(t *testing.T, dsn, log string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childDSN+"="+dsn, childLog+"="+log)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func lines(t *testing.T, path string) (list []string) {
	t.Helper()
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		list = append(list, sc.Text())
	}
	return list
}

// audit holds the log of all processes to what must be: everything was done, no handler at a gate before the one below
// was drained, and no more repeats than faults can cause.
func audit(t *testing.T, s *Store, log []string, faults int) {
	t.Helper()
	ended, begun := map[string]bool{}, map[string]int{}
	below := map[string]int{} // ended at gate 0
	repeats := 0
	for _, line := range log {
		f := strings.Fields(line)
		key := f[1] + "/" + f[2]
		if f[0] == "end" {
			if !ended[key] && f[3] == "0" {
				below[f[1]]++
			}
			ended[key] = true
			continue
		}
		if begun[key]++; begun[key] > 1 {
			repeats++
		}
		if f[3] == "1" {
			require.Equal(t, counts(t, s, f[1])[0].Complete, below[f[1]], "a handler at gate 1 of %s before gate 0 was drained", f[1])
		}
	}
	require.LessOrEqual(t, repeats, faults*crashConcurrency)
	items, err := s.Items(t.Context(), Query{Limit: 100000})
	require.NoError(t, err)
	for _, it := range items {
		require.Equal(t, Complete, it.Status)
		require.EqualValues(t, 2, it.Version, "%s was saved once", it.ID)
		require.True(t, ended[it.Partition+"/"+it.ID])
	}
	t.Logf("%d faults, %d items, %d repeats", faults, len(items), repeats)
}

// TestFaults kills one of two processes, or stops it past its lease, again and again.
func TestFaults(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 4
	}
	for _, fault := range []struct {
		name string
		do   func(t *testing.T, cmd *exec.Cmd, s *Store)
	}{
		{"kill", func(t *testing.T, cmd *exec.Cmd, _ *Store) {
			require.NoError(t, cmd.Process.Kill())
			_ = cmd.Wait()
		}},
		{"stop", func(t *testing.T, cmd *exec.Cmd, s *Store) {
			require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
			before, err := s.Partitions(t.Context(), Query{})
			require.NoError(t, err)
			eventually(t, "the leases of the stopped one have expired or gone to the other", func() bool {
				list, err := s.Partitions(t.Context(), Query{})
				for i := range list {
					if list[i].Owner != "" && list[i].Owner == before[i].Owner && list[i].Epoch == before[i].Epoch && list[i].Until.After(time.Now()) && list[i].Until.Equal(before[i].Until) {
						return false
					}
				}
				return err == nil
			})
			require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *Store, dsn string) {
				path := filepath.Join(t.TempDir(), "log")
				partitions := rounds
				for p := range partitions {
					create(t, s, Partition{ID: fmt.Sprint("p", p), Sealed: true}, append(make([]Item, 40), Item{ID: "last", Gate: 1})...)
				}
				spawn(t, dsn, path)
				victim := spawn(t, dsn, path)
				for range rounds {
					seen := len(lines(t, path))
					eventually(t, "work goes on", func() bool { return len(lines(t, path)) > seen+20 || allComplete(t, s) })
					fault.do(t, victim, s)
					if victim.ProcessState != nil {
						victim = spawn(t, dsn, path)
					}
				}
				eventually(t, "all is complete", func() bool { return allComplete(t, s) })
				audit(t, s, lines(t, path), rounds)
			})
		})
	}
}

func allComplete(t *testing.T, s *Store) bool {
	t.Helper()
	for _, status := range []Status{Available, Failed} {
		list, err := s.Partitions(t.Context(), Query{Status: status, Limit: 1})
		require.NoError(t, err)
		if len(list) > 0 {
			return false
		}
	}
	return true
}
