package engine

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// A line of the log has the addresses of the database and the reasons, which pgx writes on lines of their own.
func TestOneLine(t *testing.T) {
	err := errors.New("failed to connect to `user=u database=d`:\n\t127.0.0.1:1 (h): connection refused\n\t[::1]:1 (h): connection refused")
	require.Equal(t, "failed to connect to `user=u database=d`: 127.0.0.1:1 (h): connection refused [::1]:1 (h): connection refused", oneLine(err))
}

// othersTable has nothing to lease, and counts the statements that find it out.
type othersTable struct {
	oneTable
	statements atomic.Int64
}

func (o *othersTable) Acquire(context.Context, sqlstore.Terms, int, []string) ([]sqlstore.Taken, error) {
	o.statements.Add(1)
	return nil, nil
}

func (o *othersTable) Soonest(context.Context, sqlstore.Terms) (time.Duration, error) {
	o.statements.Add(1)
	return -1, nil
}

// TestWakeUpsForOthers: a watcher whose wake-ups are all for partitions of others makes few statements, and makes one at once for a
// wake-up that comes after a while without any.
func TestWakeUpsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &othersTable{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		e := New(ctx, testConfig(), o, newCalls(), &Tally{})
		e.PollMin, e.PollMax = 100*time.Millisecond, 5*time.Second
		ended := make(chan bool, 1)
		go func() { ended <- e.Run(ctx) }()
		synctest.Wait() // it has subscribed
		time.Sleep(time.Minute)
		o.statements.Store(0)
		const seconds = 20
		for range seconds * 500 {
			o.wake("other's")
			time.Sleep(2 * time.Millisecond)
		}
		require.LessOrEqual(t, o.statements.Load(), int64(seconds*10))
		require.Greater(t, o.statements.Load(), int64(seconds*3), "they are scanned for")
		time.Sleep(time.Minute)
		o.statements.Store(0)
		o.wake("any")
		synctest.Wait()
		require.NotZero(t, o.statements.Load(), "at once")
		cancel()
		require.True(t, <-ended)
	})
}
