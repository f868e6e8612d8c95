package domain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var breakerConfig = BreakerRules{FailurePercent: 50, MinCallbacks: 4, Window: time.Minute, Open: 30 * time.Second}

// Each step is a second after the one before: the callback that began last succeeds (+) or fails (-), the one that began
// first does (s, f), one is asked for and begins (a) or must not (x), or a wait of 30 s (w).
func TestBreaker(t *testing.T) {
	for steps, want := range map[string]BreakerState{
		"":                 BreakerClosed,
		"a-a-a-":           BreakerClosed, // too few
		"a-a-a-a-x":        BreakerOpen,
		"a+a+a-a-x":        BreakerOpen, // half of them
		"a+a+a+a-a-":       BreakerClosed,
		"a-a-a-wwa-":       BreakerClosed,   // two windows
		"a-a-a-a-xwax":     BreakerHalfOpen, // one probe
		"a-a-a-a-wa+a":     BreakerClosed,
		"a-a-a-a-wa-x":     BreakerOpen,
		"a-a-a-a-wa-wa+aa": BreakerClosed,
		"aa-a-a-a-sx":      BreakerOpen,     // one that began before
		"aa-a-a-a-wasx":    BreakerHalfOpen, // the probe decides, not that one
		"aa-a-a-a-waf+a":   BreakerClosed,
		"aa-a-a-a-wa+f":    BreakerClosed,
		"a-a-a-a-wa+a-a-a": BreakerClosed,
	} {
		t.Run(steps, func(t *testing.T) {
			var b Breaker
			first, last := -1, 0
			now := time.Unix(0, 0)
			for i, step := range steps {
				now = now.Add(time.Second)
				switch step {
				case '+', '-':
					b.Outcome(breakerConfig, last, step == '+', now)
				case 's', 'f':
					b.Outcome(breakerConfig, first, step == 's', now)
				case 'w':
					now = now.Add(30 * time.Second)
				default:
					ok, turn, _ := b.Allow(breakerConfig, now)
					require.Equal(t, step == 'a', ok, "step %d", i)
					if ok && first < 0 {
						first = turn
					}
					if ok {
						last = turn
					}
				}
			}
			require.Equal(t, want, b.Current())
		})
	}
	off := BreakerRules{}
	var b Breaker
	for range 100 {
		require.False(t, b.Outcome(off, 0, false, time.Unix(0, 0)))
		ok, _, _ := b.Allow(off, time.Unix(0, 0))
		require.True(t, ok)
	}
}
