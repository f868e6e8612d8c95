package feed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// The faults of a watcher that is to cancel an attempt, beside those of a save, and of a process that cancels or deletes.
const (
	// killPending: the request is stored, and the watcher has not read it.
	killPending = "kill while a cancel is pending"
	// killReported: the watcher has read and deleted the request, and the handler's context has not ended.
	killReported = "kill after the report"
	killCancel   = "kill in Cancel"
	killDelete   = "kill in Delete"
)

// waiting are the items that [killDelete] deletes.
var waiting = []string{"w0", "w1", "w2", "w3", "w4"}

// hanging is a watcher of which an item that says so runs until it is cancelled. It is then Failed.
func hanging(ctx context.Context, s *Store, fault string, note func(event) error) error {
	p := ProcessorFunc(func(ctx context.Context, it Item) (Response, error) {
		if string(it.Data) != "hang" {
			return done()
		}
		<-ctx.Done()
		return Response{}, ctx.Err()
	})
	return recorded(&cancelFault{s.sql, fault}, p, note, append(quick(), Concurrency(crashConcurrency), Lease(crashLease), AutoClose(), MaxRetries(0))...).Run(ctx)
}

// cancelFault is a Store whose process is killed where it has to do with a cancelled attempt.
type cancelFault struct {
	*sqlstore.Store
	fault string
}

func (f *cancelFault) Report(ctx context.Context, t sqlstore.Terms, r sqlstore.Report) ([]sqlstore.Cancel, error) {
	cancels, err := f.Store.Report(ctx, t, r)
	if f.fault == killReported && len(cancels) > 0 {
		return nil, syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return cancels, err
}

func (f *cancelFault) Save(ctx context.Context, t sqlstore.Terms, results []sqlstore.Result) ([]bool, error) {
	cancelled := slices.IndexFunc(results, func(r sqlstore.Result) bool { return r.Status == sqlstore.Failed })
	if f.fault == killBefore && cancelled >= 0 {
		return nil, syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	saved, err := f.Store.Save(ctx, t, results)
	if f.fault == killAfter && cancelled >= 0 && err == nil && saved[cancelled] { // its row may be locked by a renewal at first
		return nil, syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	return saved, err
}

// TestCancelUnderKills kills a watcher which is to cancel an attempt. The attempt is cancelled or was not made: if another watcher makes one, the
// request does not cancel it. The attempt of the killed one is not listed after its lease has ended. Other partitions go on.
func TestCancelUnderKills(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{killPending, killReported, killBefore, killAfter} {
		t.Run(fault, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *Store, dsn string) {
				h := newHistory(t, s, crashConcurrency)
				for round := range min(faultRounds(), 10) {
					h.cancelUnderKill(t, s, dsn, fault, fmt.Sprint("p", round))
				}
				h.check(t)
			})
		})
	}
}

func (h *history) cancelUnderKill(t *testing.T, s *Store, dsn, fault, partition string) {
	create(t, s, Partition{ID: partition}, Item{ID: "hangs", Data: []byte("hang")}, Item{ID: "a"}, Item{ID: "b"})
	runs := func(pid int) (of []Running) {
		running, err := s.Running(t.Context())
		require.NoError(t, err)
		for _, r := range running {
			if r.PID == pid && r.Partition == partition {
				of = append(of, r)
			}
		}
		return of
	}
	victim := h.spawn(t, dsn, hangingChild+fault)
	pid := victim.Process.Pid
	eventually(t, "the attempt is listed", func() bool { return len(runs(pid)) == 1 })
	before, err := s.Partition(t.Context(), partition)
	require.NoError(t, err)
	cancel := func() { // a watcher that has no processor for two leases is not listed
		t.Helper()
		eventually(t, "its watcher is listed", func() bool {
			_, err := s.Cancel(t.Context(), partition, "hangs")
			require.True(t, err == nil || errors.Is(err, ErrConflict), "%v", err)
			return err == nil
		})
	}
	cancel()
	if fault == killPending {
		require.NoError(t, victim.Process.Kill())
	}
	_ = victim.Wait()
	var pending int64
	require.NoError(t, s.sql.DB.Table("feed_cancels").Where("partition_id = ?", partition).Count(&pending).Error)
	t.Logf("%d requests are left", pending)
	if fault != killPending {
		require.Zero(t, pending)
	}

	steady := h.spawn(t, dsn, hangingChild)
	create(t, s, Partition{ID: partition + "-other", Sealed: true}, make([]Item, 20)...)
	settled := func(status Status) bool {
		it, err := s.Item(t.Context(), partition, "hangs")
		require.NoError(t, err)
		return it.Status == status
	}
	eventually(t, "the lease of the killed one has ended", func() bool {
		p, err := s.Partition(t.Context(), partition)
		require.NoError(t, err)
		leased, err := s.sql.Dialect.Leased(s.sql.DB, partition)
		require.NoError(t, err)
		return !leased || p.Epoch != before.Epoch
	})
	require.Empty(t, runs(pid), "of the killed one")
	if fault == killAfter {
		require.True(t, settled(Failed))
	} else {
		var made []Running // a watcher that has no processor for two leases is not listed for a moment
		eventually(t, "another watcher makes an attempt", func() bool { made = runs(steady.Process.Pid); return len(made) == 1 })
		first := made[0]
		require.Equal(t, 1, first.Attempt, "what has no end is no attempt")
		eventually(t, "its watcher has reported again, and has read what it was asked", func() bool {
			w, err := s.sql.Dialect.Watching(s.sql.DB, first.Watcher)
			require.NoError(t, err)
			return len(w) == 1 && len(w[0].State.Running) == 1 && w[0].State.Running[0].For > crashLease
		})
		require.True(t, settled(Available), "the request was for another attempt")
		cancel()
		eventually(t, "it is cancelled", func() bool { return settled(Failed) })
	}
	it, err := s.Item(t.Context(), partition, "hangs")
	require.NoError(t, err)
	require.Len(t, it.Errors, 1)
	require.Contains(t, it.Errors[0], ErrCancelled.Error())
	require.Empty(t, runs(steady.Process.Pid))
	awaitPartition(t, s, partition+"-other", Complete)
	requireStopped(t, steady)
}

// operator cancels or deletes in a process that is killed in its transaction.
func operator(ctx context.Context, s *Store, fault string) error {
	deleted := 0
	die := func(tx *gorm.DB) {
		if tx.Statement.Table == "items" {
			deleted++
		}
		if fault == killCancel && tx.Statement.Table == "feed_cancels" || deleted == len(waiting)-1 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	on := s.sql.DB.Callback()
	err := errors.Join(on.Create().After("gorm:create").Register("test", die), on.Delete().After("gorm:delete").Register("test", die))
	switch {
	case err != nil:
		return err
	case fault == killCancel:
		_, err = s.Cancel(ctx, "p", "hangs")
	default:
		err = s.Delete(ctx, "p", waiting...)
	}
	return fmt.Errorf("it was not killed: %w", err)
}

// TestOperatorIsKilled kills a process while it cancels an attempt or deletes waiting items. Nothing of that is stored, the watcher goes on, and
// another process can do it.
func TestOperatorIsKilled(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{killCancel, killDelete} {
		t.Run(fault, func(t *testing.T) {
			onEach(t, func(t *testing.T, s *Store, dsn string) {
				items := []Item{{ID: "hangs", Data: []byte("hang")}}
				for _, id := range waiting {
					items = append(items, Item{ID: id, Gate: 1})
				}
				create(t, s, Partition{ID: "p"}, append(items, Item{ID: "last", Gate: 2})...)
				h := newHistory(t, s, crashConcurrency)
				watcher := h.spawn(t, dsn, hangingChild)
				eventually(t, "the attempt is listed", func() bool {
					running, err := s.Running(t.Context())
					require.NoError(t, err)
					return len(running) == 1
				})
				for round := range min(faultRounds(), 10) {
					cmd := h.spawn(t, dsn, fault)
					err := cmd.Wait()
					require.ErrorContains(t, err, "signal: killed")
					create(t, s, Partition{ID: fmt.Sprint("q", round), Sealed: true}, make([]Item, 5)...)
					awaitPartition(t, s, fmt.Sprint("q", round), Complete)
				}
				var cancels int64
				require.NoError(t, s.sql.DB.Table("feed_cancels").Count(&cancels).Error)
				require.Zero(t, cancels)
				left, err := s.Items(t.Context(), Query{Partition: "p", Status: Available})
				require.NoError(t, err)
				require.Len(t, left, 1+len(waiting)+1, "nothing is cancelled or deleted")

				require.NoError(t, s.Delete(t.Context(), "p", waiting...))
				eventually(t, "the attempt can be cancelled, also if it has just begun again because a lease ended on a busy machine", func() bool {
					within, err := s.Cancel(t.Context(), "p", "hangs")
					if errors.Is(err, ErrConflict) {
						return false
					}
					require.NoError(t, err)
					require.Less(t, within, time.Second)
					return true
				})
				eventually(t, "it is cancelled", func() bool {
					it, err := s.Item(t.Context(), "p", "hangs")
					require.NoError(t, err)
					return it.Status == Failed
				})
				requireStopped(t, watcher)
				h.audit(t)
			})
		})
	}
}
