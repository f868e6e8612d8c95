package bulk

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/stored"
)

// Items that cannot be done are counted and reported once. Those behind them are done.
func TestItemsThatFailArePassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newThings(20), newBucket()
		s.failing = map[int]error{1: errors.New("malformed"), 7: stored.ErrNotFound, 20: errors.New("malformed")}
		var log bytes.Buffer
		r := b.runner("a", s, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		defer r.running(t)()
		o, err := r.Begin(t.Context(), ofGroup("g"))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		o, err = r.Get(t.Context(), o.ID)
		require.NoError(t, err)
		require.Equal(t, Done, o.State)
		require.Equal(t, []int{17, 0, 3}, []int{o.Done, o.Skipped, o.Failed})
		require.Equal(t, 3, strings.Count(log.String(), "level=WARN"), &log)
		require.Contains(t, log.String(), "malformed")
	})
}

// An operation whose items cannot be selected ends, with one line in the log.
func TestSelectionThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b := newThings(1), newBucket()
		var log bytes.Buffer
		r := b.runner("a", s, func(c *Config) {
			kind := c.Kinds["make"]
			kind.Select = func(context.Context, Operation, uint64, int) ([]Item, uint64, error) {
				return nil, 0, errors.New("malformed")
			}
			c.Kinds = map[string]Kind{"make": kind}
			c.Log = slog.New(slog.NewTextHandler(&log, nil))
		})
		defer r.running(t)()
		o := ofGroup("g")
		o.ID, o.Number, o.State, o.Next = ID("g", 1), 1, Running, 1
		o, err := b.Put(t.Context(), o)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		o, err = r.Get(t.Context(), o.ID)
		require.NoError(t, err)
		require.Equal(t, Cancelled, o.State)
		require.Equal(t, 1, strings.Count(log.String(), "malformed"), &log)
	})
}
