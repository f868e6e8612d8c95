package breaker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var breakerConfig = Rules{FailurePercent: 50, MinCallbacks: 4, Window: time.Minute, Open: 30 * time.Second}

// Each step is a second after the one before: the callback that began last succeeds (+) or fails (-), the one that began
// first does (s, f), one is asked for and begins (a) or must not (x), or a wait of 30 s (w).
func TestBreaker(t *testing.T) {
	for steps, want := range map[string]State{
		"":                 Closed,
		"a-a-a-":           Closed, // too few
		"a-a-a-a-x":        Open,
		"a+a+a-a-x":        Open, // half of them
		"a+a+a+a-a-":       Closed,
		"a-a-a-a+a":        Closed, // a success opens nothing
		"a-a-a-a+a-x":      Open,
		"a-a-a-wwa-":       Closed,   // two windows
		"a-a-a-a-xwax":     HalfOpen, // one probe
		"a-a-a-a-wa+a":     Closed,
		"a-a-a-a-wa-x":     Open,
		"a-a-a-a-wa-wa+aa": Closed,
		"aa-a-a-a-sx":      Open,     // one that began before
		"aa-a-a-a-wasx":    HalfOpen, // the probe decides, not that one
		"aa-a-a-a-waf+a":   Closed,
		"aa-a-a-a-wa+f":    Closed,
		"a-a-a-a-wa+a-a-a": Closed,
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
					turn, ok := b.Allow(now)
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
	off := Rules{}
	var b Breaker
	for range 100 {
		require.False(t, b.Outcome(off, 0, false, time.Unix(0, 0)))
		_, ok := b.Allow(time.Unix(0, 0))
		require.True(t, ok)
	}
}

// Failures in a row open a breaker, a success between them does not let it open, and each probe that fails doubles the time that it is
// open, up to a bound. A call that is withdrawn lets another probe begin, and Probe ends the wait.
func TestBreakerInARow(t *testing.T) {
	rules := Rules{InARow: 3, Open: time.Second, MostOpen: 5 * time.Second}
	var b Breaker
	now := time.Unix(0, 0)
	call := func(success bool) {
		turn, ok := b.Allow(now)
		require.True(t, ok)
		b.Outcome(rules, turn, success, now)
	}
	for _, success := range []bool{false, false, true, false, false} {
		call(success)
	}
	require.Equal(t, Closed, b.Current())
	late, _ := b.Allow(now)
	call(false)
	require.Equal(t, Open, b.Current())
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		require.Equal(t, want, b.Wait(now))
		now = now.Add(want)
		turn, ok := b.Allow(now)
		require.True(t, ok)
		require.False(t, b.Outcome(rules, late, true, now), "it began before the breaker opened")
		require.Equal(t, Forever, b.Wait(now))
		b.Withdraw(turn)
		require.Zero(t, b.Wait(now))
		call(false)
	}
	b.Probe()
	call(true)
	require.Equal(t, Closed, b.Current())
	call(false)
	call(false)
	call(false)
	require.Equal(t, time.Second, b.Wait(now), "it was closed meanwhile")
}
