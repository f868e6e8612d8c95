package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The rate is the present one: an hour of full speed does not hide that a run stands still.
func TestTheLiveRateIsThePresentOne(t *testing.T) {
	begin, n := time.Now(), 0
	var r rate
	at := func(d time.Duration, more int) int64 { n += more; return r.add(begin.Add(d), n) }
	require.Zero(t, at(0, 0))
	for d := liveEvery; d < time.Hour; d += liveEvery {
		require.EqualValues(t, 200, at(d, 100))
	}
	for d := time.Duration(0); d <= rateOver; d += liveEvery {
		at(time.Hour+d, 0)
	}
	require.Zero(t, at(time.Hour+rateOver+liveEvery, 0))
	require.LessOrEqual(t, len(r.samples), int(rateOver/liveEvery)+2)

	w := &Run{tally: Tally{Acked: 12_345, Failed: 2, Terminated: 1}, running: 12}
	require.Equal(t, []string{"12,345 handled", "0/s", "3 failed", "1,000 pending", "12 in flight"}, w.state(&rate{}, "1,000 pending"))
}
