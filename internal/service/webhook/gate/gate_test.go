package gate

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/webhook/breaker"
)

var begin = time.Unix(0, 0)

func at(seconds float64) time.Time { return begin.Add(time.Duration(seconds * float64(time.Second))) }

// The first reason that applies is the one that is shown, with its end if it is known.
func TestReasons(t *testing.T) {
	limited := Config{Limit: 2, Window: 10 * time.Second}
	failing := breaker.Rules{InARow: 1, Open: 5 * time.Second}
	call := func(g *Gate, c Config, o Outcome, from, to float64) { g.End(c, g.Begin(c, at(from)), o, at(to)) }
	for name, tt := range map[string]struct {
		config Config
		before func(g *Gate, c Config) // 9 s after the begin at the latest
		want   Wait
	}{
		"nothing":     {},
		"elsewhere":   {config: Config{Elsewhere: true, Disabled: true}, want: Wait{For: Elsewhere}},
		"disabled":    {config: Config{Disabled: true, Paused: true}, want: Wait{For: Disabled}},
		"pause":       {config: Config{Paused: true, StoreDown: true}, want: Wait{For: Paused}},
		"store":       {config: Config{StoreDown: true}, before: func(g *Gate, _ Config) { g.Hold(at(20)) }, want: Wait{For: StoreDown}},
		"hold":        {before: func(g *Gate, _ Config) { g.Hold(at(20)); g.Hold(at(15)) }, want: Wait{Hold, at(20)}},
		"hold over":   {before: func(g *Gate, _ Config) { g.Hold(at(9)) }},
		"configured":  {before: func(g *Gate, _ Config) { g.Hold(at(20)); g.Configured() }},
		"concurrency": {config: Config{Concurrency: 1}, before: func(g *Gate, c Config) { g.Begin(c, begin) }, want: Wait{For: Concurrency}},
		"one ended":   {config: Config{Concurrency: 1}, before: func(g *Gate, c Config) { call(g, c, Success, 0, 1) }},
		"breaker": {
			config: Config{Breaker: failing}, before: func(g *Gate, c Config) { g.Hold(at(20)); call(g, c, Failure, 0, 7) },
			want: Wait{Breaker, at(12)},
		},
		"probe": {
			config: Config{Breaker: failing}, before: func(g *Gate, c Config) { call(g, c, Failure, 0, 1); g.Begin(c, at(6)) },
			want: Wait{For: Breaker},
		},
		"probe not made": {
			config: Config{Breaker: failing}, before: func(g *Gate, c Config) { call(g, c, Failure, 0, 1); call(g, c, NotMade, 6, 7) },
		},
		"to be probed": {config: Config{Breaker: failing}, before: func(g *Gate, c Config) { call(g, c, Failure, 0, 8); g.Configured() }},
		"reset":        {config: Config{Breaker: failing}, before: func(g *Gate, c Config) { call(g, c, Failure, 0, 8); g.Reset() }},
		"rate": {
			config: limited, before: func(g *Gate, c Config) { call(g, c, Success, 2, 9); call(g, c, Success, 3, 9) },
			want: Wait{Rate, at(12)},
		},
		"rate, one left": {config: limited, before: func(g *Gate, c Config) { call(g, c, Success, 2, 9) }},
		"rate, lowered": {
			config: limited,
			before: func(g *Gate, c Config) {
				c.Limit = 4
				for s := range 4 {
					call(g, c, Success, float64(s), 9)
				}
			},
			want: Wait{Rate, at(12)}, // three of the four have left
		},
		"rate, until the end": {
			config: Config{Limit: 1, Window: 5 * time.Second, UntilEnd: true}, before: func(g *Gate, c Config) { call(g, c, Success, 0, 8) },
			want: Wait{Rate, at(13)},
		},
		"rate, in progress": {
			config: Config{Limit: 1, Window: 5 * time.Second, UntilEnd: true}, before: func(g *Gate, c Config) { g.Begin(c, begin) },
			want: Wait{For: Rate},
		},
		"rate, not made": {
			config: Config{Limit: 1, Window: 5 * time.Second, UntilEnd: true}, before: func(g *Gate, c Config) { call(g, c, NotMade, 0, 9) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			var g Gate
			if tt.before != nil {
				tt.before(&g, tt.config)
			}
			require.Equal(t, tt.want, g.Next(tt.config, at(10)))
		})
	}
}

// Operators are notified of a breaker that opens or closes, and not of a probe that fails.
func TestChangesOfTheBreaker(t *testing.T) {
	var g Gate
	c := Config{Breaker: breaker.Rules{InARow: 2, Open: 5 * time.Second}}
	for i, step := range []struct {
		outcome Outcome
		change  Change
		state   breaker.State
	}{
		{Failure, Unchanged, breaker.Closed},
		{Unclear, Unchanged, breaker.Closed},
		{Failure, Opened, breaker.Open},
		{Failure, Unchanged, breaker.Open},
		{NotMade, Unchanged, breaker.HalfOpen},
		{Success, Closed, breaker.Closed},
	} {
		now := at(float64(10 * i))
		require.Zero(t, g.Next(c, now), i)
		p := g.Begin(c, now)
		require.Equal(t, step.change, g.End(c, p, step.outcome, now), i)
		require.Equal(t, State{Breaker: step.state}, g.State(c, now), i)
	}
	require.Equal(t, breaker.Closed, g.State(c, at(100)).Breaker)
}

// With many POSTs of any length no window has more than the limit, wherever between its begin and its end the receiver sees a POST. Without
// UntilEnd that holds for the begins.
func TestNoWindowHasMoreThanTheLimit(t *testing.T) {
	for _, untilEnd := range []bool{false, true} {
		const limit, posts = 7, 300
		c := Config{Limit: limit, Window: time.Second, UntilEnd: untilEnd}
		var g Gate
		var ends, seen []time.Time // the ends of the POSTs in progress, and when the receiver saw them
		now := begin
		for len(seen) < posts {
			slices.SortFunc(ends, time.Time.Compare)
			for len(ends) > 0 && !ends[0].After(now) {
				g.End(c, Permit{}, Success, ends[0])
				ends = ends[1:]
			}
			wait := g.Next(c, now)
			if wait.For == "" {
				g.Begin(c, now)
				length := rand.N(400 * time.Millisecond)
				ends = append(ends, now.Add(length))
				if untilEnd {
					seen = append(seen, now.Add(rand.N(length+1)))
				} else {
					seen = append(seen, now)
				}
				continue
			}
			next := wait.Until
			if len(ends) > 0 && (next.IsZero() || ends[0].Before(next)) {
				next = ends[0]
			}
			require.True(t, next.After(now), "%v of %v", wait, now)
			now = next
		}
		slices.SortFunc(seen, time.Time.Compare)
		for i := limit; i < posts; i++ {
			require.GreaterOrEqual(t, seen[i].Sub(seen[i-limit]), c.Window)
		}
		longest := time.Duration(posts/limit) * (c.Window + 400*time.Millisecond)
		require.Less(t, seen[posts-1].Sub(seen[0]), longest, "the limit is used")
	}
}

// The next process counts the POSTs of the one before, none of them shorter. A forged window costs neither memory nor time without bound.
func TestHandOverOfAWindow(t *testing.T) {
	c := Config{Limit: 3000, Window: time.Hour}
	var before, next Gate
	for i := range 2500 {
		before.Begin(c, at(float64(i)))
	}
	now := at(3000)
	saved := before.Window(now)
	require.Len(t, saved, 834) // one for each three
	next.SetWindow(saved, 0, now)
	require.Len(t, next.counted, 2500)
	for i, counted := range next.counted {
		late := counted.Sub(before.counted[i])
		require.True(t, late >= 0 && late < 3*time.Second, "POST %d counts %s later", i, late)
	}
	next.SetWindow([]Posts{{Age: -1 << 62, Count: 1 << 40}, {Age: time.Second, Count: -1}, {Count: 1 << 40}}, 4*time.Second, now)
	require.Len(t, next.counted, MaxLimit)
	require.Equal(t, now.Add(4*time.Second), next.counted[0])
	require.Equal(t, Wait{Rate, now.Add(c.Window + 4*time.Second)}, next.Next(c, now))
}
