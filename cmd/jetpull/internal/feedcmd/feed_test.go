package feedcmd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDoubling(t *testing.T) {
	for _, tt := range []struct {
		first   time.Duration
		attempt int
		want    time.Duration
	}{
		{time.Second, 1, time.Second},
		{time.Second, 3, 4 * time.Second},
		{time.Second, 7, time.Minute},
		{time.Second, 1000, time.Minute},
		{0, 20, 0},
		{time.Hour, 1, time.Hour},
		{48 * time.Hour, 17, 48 * time.Hour},
		{48 * time.Hour, 1000, 48 * time.Hour},
	} {
		require.Equal(t, tt.want, doubling(tt.first)(tt.attempt), "%v, attempt %d", tt.first, tt.attempt)
	}
}

func TestLimitFlag(t *testing.T) {
	var l limits
	for _, text := range []string{"2=10", "-1=100/1s", "3=10,5/2h0m0s"} {
		require.NoError(t, l.add(text))
	}
	require.Equal(t, limits{
		{Gate: 2, Concurrency: 10},
		{Gate: -1, Rate: 100, Per: time.Second},
		{Gate: 3, Concurrency: 10, Rate: 5, Per: 2 * time.Hour},
	}, l)
	for text, want := range map[string]string{
		"": "does not begin with a gate's number", "10": "does not begin", "x=1": "does not begin", "1=": "is not one number", "1=0": "is not one number",
		"1=1,2": "is not one number", "1=1/1s,2/1s": "is not one number", "1=5/s": `"s" is not a duration`, "1=5/": "is not a duration",
		"1=-4": "is not one number",
		"2=1":  "gate 2 is given twice", "1=5/1ms": "1ms is not in 1s..24h", "1=5/25h": "25h0m0s is not in 1s..24h",
	} {
		require.ErrorContains(t, l.add(text), want, text)
	}
}

func FuzzLimitFlag(f *testing.F) {
	f.Add("2=10,100/1s")
	f.Fuzz(func(t *testing.T, text string) {
		var l limits
		if l.add(text) == nil {
			require.Len(t, l, 1)
			require.Positive(t, l[0].Concurrency+l[0].Rate)
			var parts []string
			if n := l[0].Concurrency; n > 0 {
				parts = append(parts, fmt.Sprint(n))
			}
			if n := l[0].Rate; n > 0 {
				parts = append(parts, fmt.Sprintf("%d/%v", n, l[0].Per))
			}
			var again limits
			require.NoError(t, again.add(fmt.Sprintf("%d=%s", l[0].Gate, strings.Join(parts, ","))))
			require.Equal(t, l, again)
		}
	})
}
