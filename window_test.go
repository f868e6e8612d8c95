package jetpull

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWindowStartsAndGrows(t *testing.T) {
	w := newWindow(0, 1, 0, 30*time.Second)
	require.Equal(t, firstWindow, w.size)
	require.Equal(t, 2*firstWindow, w.starved())
	for range 20 {
		w.starved()
	}
	require.Equal(t, maxPrefetch, w.size, "never over what may be on order")
	require.Equal(t, 128, newWindow(0, 64, 0, time.Second).size, "two for each worker")
}

// TestWindowIsEnoughForAWhile: the window need not starve its workers to grow.
func TestWindowIsEnoughForAWhile(t *testing.T) {
	w := newWindow(0, 64, 0, 30*time.Second)
	w.measured(1, time.Millisecond, 10)
	require.Equal(t, 640, w.size, "what 64 workers handle in 10 ms")
	w.measured(1, 100*time.Millisecond, 10)
	require.Equal(t, 640, w.size, "it does not shrink while that is within a quarter of AckWait")

	w = newWindow(0, 64, 0, 30*time.Second)
	w.ahead = 20 * time.Millisecond
	w.measured(1, time.Millisecond, 10)
	require.Equal(t, 1280, w.size)

	w = newWindow(0, 64, 666, 30*time.Second)
	w.measured(1, time.Millisecond, 10)
	w.measured(1, time.Microsecond, 10)
	require.Equal(t, 666, w.size, "MaxAckPending bounds it")

	w = newWindow(0, 4, 0, 40*time.Millisecond)
	w.measured(1, time.Millisecond, 10)
	require.Equal(t, 40, w.size, "a quarter of AckWait bounds it")

	w = newWindow(0, 1, 0, 30*time.Second)
	w.measured(1, 20*time.Millisecond, 10)
	require.Equal(t, firstWindow, w.size, "a slow handler needs no more")
}

// TestWindowGoesByTheFirstMeasure: as it is, not as one of many.
func TestWindowGoesByTheFirstMeasure(t *testing.T) {
	w := newWindow(0, 1, 0, time.Second)
	for range 5 {
		w.starved()
	}
	w.measured(1, 20*time.Millisecond, 10)
	require.Equal(t, 12, w.size)
}

func TestWindowKeepsWithinAQuarterOfAckWait(t *testing.T) {
	for _, tc := range []struct {
		name    string
		workers int
		ackWait time.Duration
		each    time.Duration
		want    int
	}{
		{"20 ms handlers and AckWait 1 s", 1, time.Second, 20 * time.Millisecond, 12},
		{"four workers", 4, time.Second, 20 * time.Millisecond, 50},
		{"slower than AckWait", 1, time.Second, 10 * time.Second, 2},
		{"slower than AckWait, four workers", 4, time.Second, 10 * time.Second, 5},
		{"fast", 1, 30 * time.Second, time.Microsecond, maxPrefetch},
		{"nothing is redelivered", 1, 0, time.Second, maxPrefetch},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWindow(0, tc.workers, 0, tc.ackWait)
			for range 100 {
				w.starved()
				w.measured(1, tc.each, 10)
			}
			require.InDelta(t, tc.want, w.size, 1)
			if tc.ackWait > 0 && tc.each < tc.ackWait/4 {
				wait := time.Duration(w.size) * tc.each / time.Duration(tc.workers)
				require.LessOrEqual(t, wait, tc.ackWait/4+tc.each, "the last message of a full window")
			}
		})
	}
}

func TestWindowShrinksAndRecovers(t *testing.T) {
	w := newWindow(0, 1, 0, 4*time.Second)
	for range 10 {
		w.starved()
	}
	require.Equal(t, maxPrefetch, w.size)
	for range 30 {
		w.measured(1, 100*time.Millisecond, 10)
	}
	require.InDelta(t, 10, w.size, 1, "the handler has become slow")
	for range 60 {
		w.measured(1, time.Millisecond, 10)
		w.starved()
	}
	require.InDelta(t, 1000, w.size, 100, "and fast again")
}

func TestWindowBytes(t *testing.T) {
	w := newWindow(0, 1, 0, 30*time.Second)
	for range 60 {
		w.starved()
		w.measured(32, 32*time.Microsecond, 1<<20)
	}
	require.InDelta(t, windowBytes>>20, w.size, 1, "about %d bytes of 1 MiB messages", windowBytes)
	for range 200 {
		w.measured(1, time.Microsecond, windowBytes*2)
	}
	require.Equal(t, 2, w.size, "never less than a message being handled and one at hand")
}

func TestWindowOfMoreBytes(t *testing.T) {
	w := newWindow(0, 1, 0, 30*time.Second)
	w.bytes = 4 * windowBytes
	for range 60 {
		w.starved()
		w.measured(32, 32*time.Microsecond, 1<<20)
	}
	require.InDelta(t, 4*windowBytes>>20, w.size, 1, "PrefetchBytes over the default")
}

func TestWindowFixed(t *testing.T) {
	w := newWindow(7, 3, 0, time.Second)
	require.Equal(t, 7, w.size)
	require.Equal(t, 7, w.starved())
	require.Equal(t, 7, w.measured(1, time.Minute, windowBytes))
}

func TestPaceMeasuresFastHandlersInRuns(t *testing.T) {
	var now at
	read := 0
	clock := func() at { read++; return now }
	p := pace{run: 1}
	beat := int32(0)
	p.restart(now)
	step := func(d time.Duration) (int, time.Duration) {
		now += d
		return p.handled(clock, beat)
	}
	n, d := step(time.Microsecond)
	require.Equal(t, 1, n)
	require.Equal(t, time.Microsecond, d)
	for range paceRun - 1 {
		n, _ = step(time.Microsecond)
		require.Zero(t, n)
	}
	n, d = step(time.Microsecond)
	require.Equal(t, paceRun, n)
	require.Equal(t, paceRun*time.Microsecond, d)
	require.Equal(t, 2, read, "one look at the clock a run")

	for range paceRun - 1 {
		step(time.Millisecond)
	}
	n, _ = step(time.Millisecond)
	require.Equal(t, paceRun, n)
	for range int(paceEvery/time.Millisecond) - 1 {
		n, _ = step(time.Millisecond)
		require.Zero(t, n)
	}
	n, d = step(time.Millisecond)
	require.Equal(t, int(paceEvery/time.Millisecond), n, "a slower one is measured as often")
	require.Equal(t, paceEvery, d)
	for range int(paceEvery / time.Millisecond) {
		step(time.Second)
	}
	n, _ = step(time.Second)
	require.Equal(t, 1, n, "a slow one is measured each time")

	for range 2 {
		step(time.Microsecond)
	}
	step(time.Second)
	beat++
	n, d = step(time.Second)
	require.Equal(t, 3, n, "a run ends with the beat")
	require.Equal(t, 2*time.Second+time.Microsecond, d)
}

func TestWindowUnderMaxAckPending(t *testing.T) {
	for _, tt := range []struct {
		pending int
		trip    time.Duration
		want    int
	}{
		{1000, 100 * time.Microsecond, 666},
		{1000, 5 * time.Millisecond, 0}, // acknowledgements are long under way
		{20000, 5 * time.Millisecond, 13333},
		{1, 0, 0}, // nothing to spare
		{-1, 0, 0},
		{0, 0, 0},
	} {
		require.Equal(t, tt.want, windowBound(tt.pending, tt.trip), "%+v", tt)
	}
	w := newWindow(0, 1, 100, 30*time.Second)
	for range 10 {
		w.starved()
	}
	require.Equal(t, 100, w.size)
	w = newWindow(0, 200, 100, 30*time.Second)
	require.Equal(t, 201, w.starved(), "all workers are kept busy")
}
