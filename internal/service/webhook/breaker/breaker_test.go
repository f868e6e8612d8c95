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
					_, blocked := b.Blocked(now)
					require.Equal(t, step == 'x', blocked, "step %d", i)
					if blocked {
						continue
					}
					last = b.Begin()
					if first < 0 {
						first = last
					}
				}
			}
			require.Equal(t, want, b.Current())
		})
	}
	off := Rules{}
	var b Breaker
	for range 100 {
		b.Outcome(off, b.Begin(), false, time.Unix(0, 0))
		require.Equal(t, Closed, b.Current())
	}
}

// Failures in a row open a breaker, a success between them does not let it open, and each probe that fails doubles the time that it is
// open, up to a bound. A call that is withdrawn lets another probe begin, and Probe ends the wait.
func TestBreakerInARow(t *testing.T) {
	rules := Rules{InARow: 3, Open: time.Second, MostOpen: 5 * time.Second}
	var b Breaker
	now := time.Unix(0, 0)
	begin := func() (turn int) {
		_, blocked := b.Blocked(now)
		require.False(t, blocked)
		return b.Begin()
	}
	call := func(success bool) { b.Outcome(rules, begin(), success, now) }
	opens := func(after time.Duration) {
		until, blocked := b.Blocked(now)
		require.True(t, blocked)
		require.Equal(t, now.Add(after), until)
	}
	for _, success := range []bool{false, false, true, false, false} {
		call(success)
	}
	require.Equal(t, Closed, b.Current())
	late := begin()
	call(false)
	require.Equal(t, Open, b.Current())
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		opens(want)
		now = now.Add(want)
		probe := begin()
		b.Outcome(rules, late, true, now) // it began before the breaker opened
		until, blocked := b.Blocked(now)
		require.True(t, blocked)
		require.Zero(t, until)
		b.Withdraw(probe)
		call(false)
	}
	b.Probe()
	call(true)
	require.Equal(t, Closed, b.Current())
	call(false)
	call(false)
	call(false)
	opens(time.Second) // it was closed meanwhile
}
