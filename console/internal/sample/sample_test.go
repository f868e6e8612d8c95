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

// A source that takes a second to answer is asked as if no page were open, and no page waits for it again. A page after an action waits.
func TestASlowSourceIsAskedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		var asked atomic.Int64
		l := Add(s, func(context.Context) (int, error) {
			time.Sleep(time.Second)
			return int(asked.Add(1)), nil
		})
		require.Equal(t, 1, l.Fresh(t.Context()).Value, "the first page waits")
		defer s.Watch()()
		time.Sleep(10 * time.Minute)
		require.InDelta(t, 10*time.Minute/idleInterval, asked.Load(), 3)
		began := time.Now()
		sample := l.Fresh(t.Context())
		require.Equal(t, began, time.Now())
		require.False(t, sample.Stale())
		require.Greater(t, l.Next(t.Context()).Value, sample.Value)
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
		slow.Store(int64(200 * time.Millisecond))
		begun := time.Now()
		require.False(t, l.Fresh(t.Context()).Stale())
		require.Equal(t, 200*time.Millisecond, time.Since(begun))
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

func TestASampleStatesSinceWhenItsSourceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		defer s.Close()
		var slow atomic.Int64
		l := Add(s, func(ctx context.Context) (int, error) {
			select {
			case <-time.After(time.Duration(slow.Load())):
				return 1, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
		synctest.Wait()
		require.Zero(t, l.Get().Failing)
		slow.Store(int64(3 * time.Second))
		time.Sleep(time.Second)
		l.Next(t.Context())
		time.Sleep(Patience)
		synctest.Wait()
		require.Equal(t, 3*time.Second, l.Get().Took)
		slow.Store(int64(time.Hour))
		begun := time.Now()
		require.Equal(t, begun, l.Next(t.Context()).Failing, "the request is not answered yet")
		time.Sleep(5 * askTimeout)
		require.Error(t, l.Get().Err)
		require.Equal(t, begun, l.Get().Failing, "the first of several")
		slow.Store(0)
		time.Sleep(2 * askTimeout)
		require.Zero(t, l.Get().Failing)
	})
}

func TestHistory(t *testing.T) {
	h := NewHistory(2)
	at := time.Unix(1_800_000_000, 0)
	require.True(t, math.IsNaN(h.Values(at, time.Hour, "a", 0, 360)[359]))
	h.Put(at, "a", 1, 10)
	h.Put(at.Add(time.Second), "a", 2, 20)
	h.Put(at.Add(30*time.Second), "a", 3, 30)
	values := h.Values(at.Add(30*time.Second), time.Hour, "a", 1, 360)
	require.Equal(t, []float64{20, 30}, []float64{values[356], values[359]}, "of several in a step the last stays")
	require.True(t, math.IsNaN(values[357]) && math.IsNaN(values[358]), "a gap")
	require.InDelta(t, 3, h.Values(at.Add(30*time.Second), time.Hour, "a", 0, 60)[59], 0)
	require.True(t, math.IsNaN(h.Values(at.Add(2*time.Hour), time.Hour, "a", 0, 360)[0]))
	h.Put(at.Add(2*time.Hour), "b", 1, 1)
	require.Len(t, h.hour.all, 1, "an object without values for an hour is forgotten")
	later := h.Values(at.Add(2*time.Hour), time.Hour, "b", 0, 360)
	require.InDelta(t, 1, later[359], 0)
	require.True(t, math.IsNaN(later[358]))

	for _, back := range []time.Duration{30 * time.Minute, 30 * time.Hour} { // the clock was set back
		h = NewHistory(1)
		h.Put(at.Add(-back-20*time.Second), "a", 1)
		h.Put(at, "a", 2)
		h.Put(at.Add(-back), "a", 3)
		values = h.Values(at.Add(-back), time.Hour, "a", 0, 360)
		require.InDelta(t, 3, values[359], 0)
		require.True(t, math.IsNaN(h.Values(at, time.Hour, "a", 0, 360)[359]))
	}
}

// A day has a point for each five minutes, and survives a restart. Values of the new process are kept.
func TestADayOfHistory(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	h := NewHistory(1)
	for i := range 6 * 24 {
		h.Put(at.Add(time.Duration(i)*10*time.Minute), "a", float64(i))
		h.Put(at.Add(time.Duration(i)*10*time.Minute), "", float64(-i))
	}
	end := at.Add(24*time.Hour - 10*time.Minute)
	day := h.Values(end, 24*time.Hour, "a", 0, 288)
	require.InDelta(t, 143, day[287], 0)
	require.InDelta(t, 142, day[285], 0)
	require.InDelta(t, 108, h.Values(end, 6*time.Hour, "a", 0, 72)[1], 0)
	require.True(t, math.IsNaN(day[286]))

	data, err := h.Export(1 << 20)
	require.NoError(t, err)
	next := NewHistory(1)
	next.Put(end.Add(20*time.Minute), "a", 7)
	require.NoError(t, next.Import(data))
	day = next.Values(end.Add(20*time.Minute), 24*time.Hour, "a", 0, 288)
	require.InDelta(t, 7, day[287], 0)
	require.True(t, math.IsNaN(day[285]))
	require.InDelta(t, 143, day[283], 0)
	data, err = h.Export(1)
	require.NoError(t, err)
	only := NewHistory(1)
	require.NoError(t, only.Import(data))
	require.Len(t, only.day.all, 1, "the totals")
	require.Error(t, only.Import([]byte("x")))
	require.NoError(t, NewHistory(2).Import(data), "of another version")
}
