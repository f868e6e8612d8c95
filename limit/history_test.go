package limit

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// handling is a handler that ran, in any process.
type handling struct {
	key        string
	begin, end time.Duration
}

// judge returns the windows of a key with more begins than Rate, and the moments with more handlers than Concurrent.
func judge(history []handling, c Config) (faults []string) {
	keys := map[string][]handling{}
	for _, h := range history {
		keys[h.key] = append(keys[h.key], h)
	}
	for key, hs := range keys {
		slices.SortFunc(hs, func(a, b handling) int { return cmp.Compare(a.begin, b.begin) })
		for i := c.Rate; c.Rate > 0 && i < len(hs); i++ {
			if d := hs[i].begin - hs[i-c.Rate].begin; d < c.Window {
				faults = append(faults, fmt.Sprintf("%q: %d begin within %v, from %v", key, c.Rate+1, d, hs[i-c.Rate].begin))
			}
		}
		var running []handling
		for _, h := range hs {
			running = append(slices.DeleteFunc(running, func(other handling) bool { return other.end <= h.begin }), h)
			if c.Concurrent > 0 && len(running) > c.Concurrent {
				faults = append(faults, fmt.Sprintf("%q: %d run at %v", key, len(running), h.begin))
			}
		}
	}
	return faults
}

// TestJudgeFindsPlantedErrors: the judge finds a window that begins anywhere, and handlers that overlap.
func TestJudgeFindsPlantedErrors(t *testing.T) {
	const ms = time.Millisecond
	rate := Config{Rate: 2, Window: 100 * ms}
	good := []handling{{"a", 0, 1}, {"a", 99 * ms, 1}, {"a", 100 * ms, 1}, {"b", 50 * ms, 1}, {"a", 199 * ms, 1}}
	require.Empty(t, judge(good, rate))
	require.Len(t, judge(append(good, handling{"a", 198 * ms, 1}), rate), 2, "198 with 99 and 100, and with 100 and 199")
	require.Len(t, judge(append(good, handling{"b", 50 * ms, 1}, handling{"b", 149 * ms, 1}), rate), 1)

	two := Config{Concurrent: 2}
	good = []handling{{"a", 0, 10}, {"a", 5, 20}, {"a", 10, 30}, {"b", 6, 7}, {"a", 20, 25}}
	require.Empty(t, judge(good, two))
	require.Len(t, judge(append(good, handling{"a", 24, 26}), two), 1)
	require.Len(t, judge(append(good, handling{"a", 9, 9}), two), 1, "an end that is its begin")
}
