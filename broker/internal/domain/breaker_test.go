package domain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var breakerConfig = BreakerRules{FailurePercent: 50, MinCallbacks: 4, Window: time.Minute, Open: 30 * time.Second}

// Each step is a second after the one before: a callback that succeeds (+), fails (-),
// is asked for and begins (a) or must not (x), or a wait of 30 s (w).
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
		"a-a-a-a-+x":       BreakerOpen, // one that began before
		"a-a-a-a-wa+a-a-a": BreakerClosed,
	} {
		t.Run(steps, func(t *testing.T) {
			var b Breaker
			now := time.Unix(0, 0)
			for i, step := range steps {
				now = now.Add(time.Second)
				switch step {
				case '+', '-':
					b.Outcome(breakerConfig, step == '+', now)
				case 'w':
					now = now.Add(30 * time.Second)
				default:
					ok, _ := b.Allow(breakerConfig, now)
					require.Equal(t, step == 'a', ok, "step %d", i)
				}
			}
			require.Equal(t, want, b.Current())
		})
	}
	off := BreakerRules{}
	var b Breaker
	for range 100 {
		require.False(t, b.Outcome(off, false, time.Unix(0, 0)))
		ok, _ := b.Allow(off, time.Unix(0, 0))
		require.True(t, ok)
	}
}
