package chart

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A chart begins at 0, ends at a round number that is not below its values, and states its times.
func TestScale(t *testing.T) {
	for most, want := range map[float64]float64{
		0: 1, 0.3: 1, 1: 1, 1.2: 2, 7: 8, 9: 10, 10: 10, 11: 15, 21: 25, 312: 400, 1500: 1500, 1501: 2000, 81_000: 100_000,
	} {
		require.InDelta(t, want, round(most), 0, "%v", most)
	}
	end := time.Unix(1_800_000_000, 0)
	c := Against("Pending", "messages", Series{Values: []float64{0, 100, 312}, End: end, Span: 6 * time.Hour}, 350)
	require.Equal(t, "400", c.Scale)
	require.Equal(t, "6 h", c.Span)
	require.Equal(t, end.Add(-6*time.Hour), c.Begin)
	require.Equal(t, end.Add(-3*time.Hour), c.Middle)
	require.Equal(t, end, c.End)
	require.Contains(t, c.Line, "M0.0 70.5", "0 is at the lower edge")
	require.InDelta(t, largeHeight-margin-350.0/400*(largeHeight-2*margin), c.Limit, 0.01)
	gap := math.NaN()
	c = Large("Pending", "messages", Series{Values: []float64{gap, gap, 1, 2}, End: end, Span: time.Hour})
	require.Equal(t, "30 min", c.Span, "the gap at the begin is left out")
	require.Equal(t, end.Add(-30*time.Minute), c.Begin)
}
