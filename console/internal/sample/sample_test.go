package sample

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASourceIsAskedOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		var count atomic.Int64
		asked := func() int { return int(count.Load()) }
		l := Add(s, func(context.Context) (int, error) { return int(count.Add(1)), nil })
		synctest.Wait()
		require.Equal(t, 1, asked())
		require.Equal(t, 1, l.Fresh(t.Context()).Value, "a sample of this second is not asked for again")
		time.Sleep(idleInterval)
		synctest.Wait()
		require.Equal(t, 2, asked(), "nobody looks")
		var ends []func()
		for range 100 {
			ends = append(ends, s.Watch())
		}
		synctest.Wait()
		before := asked()
		time.Sleep(10*watchedInterval + watchedInterval/2)
		synctest.Wait()
		require.Equal(t, 10, asked()-before, "100 pages cost what one costs")
		for _, end := range ends {
			end()
		}
		time.Sleep(watchedInterval)
		synctest.Wait()
		before = asked()
		time.Sleep(idleInterval + watchedInterval)
		synctest.Wait()
		require.Equal(t, 1, asked()-before)
		before = asked()
		require.Equal(t, before+1, l.Next(t.Context()).Value)
	})
}

func TestSourcesAreAskedAtTheSameTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		defer s.Watch()()
		asked := make([]time.Time, 3)
		for i := range asked {
			Add(s, func(context.Context) (int, error) {
				asked[i] = time.Now()
				time.Sleep(time.Duration(i) * 70 * time.Millisecond)
				return 0, nil
			})
		}
		time.Sleep(time.Minute + watchedInterval/2)
		synctest.Wait()
		require.Equal(t, []time.Time{asked[0], asked[0], asked[0]}, asked)
	})
}

func TestAPageWaitsForASource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		away := errors.New("away")
		var fails atomic.Bool
		var slow atomic.Int64
		l := Add(s, func(ctx context.Context) (int, error) {
			select {
			case <-time.After(time.Duration(slow.Load())):
				if fails.Load() {
					return 0, away
				}
				return 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
		synctest.Wait()
		time.Sleep(3 * time.Second)
		slow.Store(int64(time.Second))
		begun := time.Now()
		require.False(t, l.Fresh(t.Context()).Stale())
		require.Equal(t, time.Second, time.Since(begun))
		time.Sleep(3 * time.Second)
		slow.Store(int64(time.Hour))
		begun = time.Now()
		require.True(t, l.Fresh(t.Context()).Stale(), "the last sample")
		require.Equal(t, Patience, time.Since(begun))
		time.Sleep(askTimeout)
		synctest.Wait()
		slow.Store(0)
		fails.Store(true)
		begun = time.Now()
		require.Error(t, l.Fresh(t.Context()).Err)
		require.Zero(t, time.Since(begun), "a source that failed is not waited for")
		require.ErrorIs(t, l.Next(t.Context()).Err, away)
		require.Equal(t, 1, l.Get().Value, "what was known stays")
	})
}

func TestHistory(t *testing.T) {
	h := NewHistory(2)
	at := time.Unix(1_800_000_000, 0)
	require.True(t, math.IsNaN(h.Values(at, "a", 0, 360)[359]))
	h.Put(at, "a", 1, 10)
	h.Put(at.Add(time.Second), "a", 2, 20)
	h.Put(at.Add(30*time.Second), "a", 3, 30)
	values := h.Values(at.Add(30*time.Second), "a", 1, 360)
	require.Equal(t, []float64{20, 30}, []float64{values[356], values[359]}, "of several in a step the last stays")
	require.True(t, math.IsNaN(values[357]) && math.IsNaN(values[358]), "a gap")
	require.InDelta(t, 3, h.Values(at.Add(30*time.Second), "a", 0, 60)[59], 0)
	require.True(t, math.IsNaN(h.Values(at.Add(2*time.Hour), "a", 0, 360)[0]))
	h.Put(at.Add(2*time.Hour), "b", 1, 1)
	require.Len(t, h.rings, 1, "an object without values for an hour is forgotten")
	later := h.Values(at.Add(2*time.Hour), "b", 0, 360)
	require.InDelta(t, 1, later[359], 0)
	require.True(t, math.IsNaN(later[358]))
}
