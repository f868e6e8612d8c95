package feed

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"github.com/jetpull/jetpull/feed/internal/engine"
	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// A running attempt is listed, and cancelled: its context ends with the cause, and the attempt has failed.
func TestRunningAndCancel(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		create(t, s, Partition{ID: "p"}, Item{ID: "hangs"}, Item{ID: "fast"}, Item{ID: "later", Gate: 1})
		var attempts atomic.Int64
		causes := make(chan error, 10)
		w := NewWatcher(s, ProcessorFunc(func(ctx context.Context, it Item) (Response, error) {
			if it.ID != "hangs" || attempts.Add(1) > 1 {
				return Response{Done: true}, nil
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return Response{}, ctx.Err()
		}), Lease(time.Second), Poll(10*time.Millisecond, 50*time.Millisecond), Backoff(func(int) time.Duration { return 0 }))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()

		var running []Running
		require.Eventually(t, func() bool {
			var err error
			running, err = s.Running(t.Context())
			require.NoError(t, err)
			return len(running) == 1
		}, time.Minute, 10*time.Millisecond)
		p, err := s.Partition(t.Context(), "p")
		require.NoError(t, err)
		r := running[0]
		require.Equal(t, []any{"p", "hangs", 0, 1, p.Owner}, []any{r.Partition, r.Item, r.Gate, r.Attempt, r.Watcher})
		require.NotZero(t, r.PID)
		require.WithinDuration(t, time.Now(), r.Since, time.Minute)

		for item, want := range map[string]error{"fast": ErrConflict, "later": ErrConflict, "none": ErrNotFound} {
			_, err := s.Cancel(t.Context(), "p", item)
			require.ErrorIs(t, err, want, item)
		}
		_, err = s.Cancel(t.Context(), "none", "hangs")
		require.ErrorIs(t, err, ErrNotFound)
		within, err := s.Cancel(t.Context(), "p", "hangs")
		require.NoError(t, err)
		require.Equal(t, time.Second/3, within)
		require.ErrorIs(t, <-causes, ErrCancelled)
		require.Eventually(t, func() bool {
			it, err := s.Item(t.Context(), "p", "hangs")
			require.NoError(t, err)
			return it.Status == Complete
		}, time.Minute, 10*time.Millisecond)
		it, err := s.Item(t.Context(), "p", "hangs")
		require.NoError(t, err)
		require.Contains(t, fmt.Sprint(it.History()), "feed: the attempt was cancelled: context canceled")
		require.Eventually(t, func() bool {
			running, err = s.Running(t.Context())
			require.NoError(t, err)
			return len(running) == 0
		}, time.Minute, 10*time.Millisecond)
		stop()
		require.NoError(t, <-ended)
	})
}

// lostAnswers are tables whose answer to a report is lost if it has what to cancel.
type lostAnswers struct{ engine.Tables }

func (l lostAnswers) Report(ctx context.Context, t sqlstore.Terms, r sqlstore.Report) ([]sqlstore.Cancel, error) {
	cancels, err := l.Tables.Report(ctx, t, r)
	if len(cancels) > 0 {
		err = errors.Join(err, errors.New("the answer was lost"))
	}
	return cancels, err
}

// An attempt is cancelled though the answer to the deletion of the request is lost.
func TestCancelWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		create(t, s, Partition{ID: "p"}, Item{ID: "hangs"})
		causes := make(chan error, 1)
		w := NewWatcher(s, ProcessorFunc(func(ctx context.Context, _ Item) (Response, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return Response{Done: true}, nil
		}), Lease(time.Second), Poll(10*time.Millisecond, 50*time.Millisecond))
		w.tables = lostAnswers{s.sql}
		ended := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { ended <- w.Run(ctx) }()
		eventually(t, "the attempt is listed, and cancelled", func() bool {
			_, err := s.Cancel(t.Context(), "p", "hangs")
			return err == nil
		})
		eventually(t, "its context ends", func() bool { return len(causes) == 1 })
		require.ErrorIs(t, <-causes, ErrCancelled)
		stop()
		require.NoError(t, <-ended)
	})
}

// A request to cancel is for one attempt: not for a later one, and not for one of another watcher. The rows of watchers that are gone are deleted.
func TestCancelIsForOneAttempt(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		create(t, s, Partition{ID: "p"}, Item{ID: "a"})
		first := termsOf("first")
		l := leaseOne(t, s, first)
		a := fetchAll(t, s, first, l)[0]
		report := sqlstore.Report{Every: time.Second, Running: []sqlstore.RunningReport{{Partition: "p", Item: "a", Version: a.Version, Attempt: 1}}}
		cancels, err := s.sql.Report(t.Context(), first, report)
		require.NoError(t, err)
		require.Empty(t, cancels)
		for range 2 { // the second takes the place of the first
			_, err = s.Cancel(t.Context(), "p", "a")
			require.NoError(t, err)
		}
		cancels, err = s.sql.Report(t.Context(), first, report)
		require.NoError(t, err)
		require.Equal(t, []sqlstore.Cancel{{PartitionID: "p", ItemID: "a", Owner: "first", Version: a.Version}}, cancels)
		cancels, err = s.sql.Report(t.Context(), first, report)
		require.NoError(t, err)
		require.Empty(t, cancels, "it was read")

		_, err = s.Cancel(t.Context(), "p", "a")
		require.NoError(t, err)
		require.True(t, end(t, s, first, l, a, sqlstore.Available), "the attempt ends")
		running, err := s.Running(t.Context())
		require.NoError(t, err)
		require.Empty(t, running)
		_, err = s.Cancel(t.Context(), "p", "a")
		require.ErrorIs(t, err, ErrConflict)

		require.NoError(t, s.sql.DB.Exec("UPDATE partitions SET until = ?", time.Now().Add(-time.Hour)).Error)
		require.NoError(t, s.sql.DB.Exec("UPDATE feed_watchers SET until = ?", time.Now().Add(-time.Hour)).Error)
		_, err = s.sql.Report(t.Context(), termsOf("second"), sqlstore.Report{})
		require.NoError(t, err)
		var owners, left []string
		require.NoError(t, s.sql.DB.Table("feed_watchers").Pluck("owner", &owners).Error)
		require.NoError(t, s.sql.DB.Table("feed_cancels").Pluck("owner", &left).Error)
		require.Equal(t, []string{"second"}, owners)
		require.Empty(t, left)
	})
}

// Waiting items are deleted, all or none, unless a watcher may have them.
func TestDelete(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		create(t, s, Partition{ID: "p"}, Item{ID: "a"}, Item{ID: "b"}, Item{ID: "c", Gate: 1}, Item{ID: "d", Gate: 2})
		l := leaseOne(t, s, termsOf("w"))
		require.ErrorIs(t, s.Delete(t.Context(), "p", "c", "a"), ErrConflict)
		require.ErrorIs(t, s.Delete(t.Context(), "p", "c", "none"), ErrNotFound)
		require.ErrorIs(t, s.Delete(t.Context(), "none", "c"), ErrNotFound)
		require.ErrorIs(t, s.Delete(t.Context(), "p"), ErrInvalid)
		_, err := s.Item(t.Context(), "p", "c")
		require.NoError(t, err, "nothing is deleted after an error")
		require.NoError(t, s.Delete(t.Context(), "p", "c"))
		require.NoError(t, s.sql.Release(t.Context(), termsOf("w"), takenOf(l)))
		require.NoError(t, s.Delete(t.Context(), "p", "a"), "nobody has the lease")

		again := leaseOne(t, s, termsOf("w"))
		left := fetchAll(t, s, termsOf("w"), again)
		require.Equal(t, []string{"b"}, ids(left))
		require.True(t, end(t, s, termsOf("w"), again, left[0], Complete))
		require.ErrorIs(t, s.Delete(t.Context(), "p", "b"), ErrConflict, "it is Complete")
		settleAs(t, s, termsOf("w"), again, sqlstore.Passed)
		p, err := s.Partition(t.Context(), "p")
		require.NoError(t, err)
		require.Equal(t, 2, p.Gate, "the gate of the deleted item is passed")
	})
}

// A statement that cannot be run is an error, also of a statement that takes its value. GORM has no row for it.
func TestStatementsThatCannotBeRun(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		lost := errors.New("lost")
		require.NoError(t, s.sql.DB.Callback().Row().Before("gorm:row").Register("lost", func(db *gorm.DB) { _ = db.AddError(lost) }))
		if s.sql.Dialect.Name != "postgres" { // there the clock is an expression in the statement
			_, err := s.sql.Report(t.Context(), termsOf("w"), sqlstore.Report{})
			require.ErrorIs(t, err, lost)
		}
		_, err := s.sql.Soonest(t.Context(), termsOf("w"))
		require.ErrorIs(t, err, lost)
		_, err = s.Backlog(t.Context())
		require.ErrorIs(t, err, lost)
	})
}

// The times of a report are exact: a watcher trusts its leases for the whole of their length.
func TestTimesHaveMicroseconds(t *testing.T) {
	t.Parallel()
	s := openStore(t, backends[1].fresh(t))
	terms := sqlstore.Terms{Owner: "w", Length: 100*time.Millisecond + 450*time.Microsecond}
	_, err := s.sql.Report(t.Context(), terms, sqlstore.Report{})
	require.NoError(t, err)
	var row struct{ Seen, Until time.Time }
	require.NoError(t, s.sql.DB.Table("feed_watchers").Take(&row).Error)
	require.Equal(t, 2*terms.Length, row.Until.Sub(row.Seen))
}
