package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// overTable is a table whose partition is taken over, and which does not store the first begins.
type overTable struct {
	oneTable
	missed int   // how many begins are not stored
	err    error // of a begin that is not stored; nil: a transaction has the partition locked
	stored []int64
}

func (o *overTable) Acquire(ctx context.Context, t sqlstore.Terms, n int, holds []string) ([]sqlstore.Taken, error) {
	taken, err := o.oneTable.Acquire(ctx, t, n, holds)
	for i := range taken {
		taken[i].Over = true
	}
	return taken, err
}

func (o *overTable) Save(ctx context.Context, t sqlstore.Terms, results []sqlstore.Result) ([]bool, error) {
	if len(results) == 0 || results[0].Crashes == nil {
		return o.oneTable.Save(ctx, t, results)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	saved := make([]bool, len(results))
	if o.missed--; o.missed >= 0 {
		return saved, o.err
	}
	for i, r := range results {
		o.items[i].Version++
		o.stored, saved[i] = append(o.stored, *r.Crashes), true
	}
	return saved, nil
}

// TestBeginsThatAreNotStored: an item that may have ended a process begins only after that is stored, however often that fails before.
func TestBeginsThatAreNotStored(t *testing.T) {
	for name, err := range map[string]error{"locked": nil, "no answer": errors.New("no answer")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &overTable{missed: 3, err: err}
				o.settled, o.items = sqlstore.Idle, []sqlstore.Item{{PartitionID: "p", ID: "a", Seq: 1, Version: 1}}
				c, tally, cfg := newCalls(), &Tally{}, testConfig()
				cfg.MaxCrashes = 2
				ctx, cancel := context.WithCancel(t.Context())
				e, ended := New(ctx, cfg, o, c, tally), make(chan bool, 1)
				go func() { ended <- e.Run(ctx) }()
				time.Sleep(time.Minute)
				require.EqualValues(t, 1, tally.Completed.Load())
				require.Equal(t, []int64{1}, o.stored)
				cancel()
				require.True(t, <-ended)
			})
		})
	}
}
