package pull

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// kinds are the pulls that a status can answer; % is the status.
var kinds = []string{
	"post a some 3 5s; p1 %",
	"post a some 3 5s nowait; p1 %",
	"post a some 3 2s; p1 404; +950ms; p2 %",
	"post a fill 3 2s; p1 404; +950ms; p2 %",
	"post s stand 9 hb=15s; +15s; p1 %",
}

// TestConditions lists the immediate effects of each status (% again), by kind.
func TestConditions(t *testing.T) {
	for names, effects := range map[string][]string{
		"100":          {"", "", "", "", ""},
		"400 412 push": {"a=!%", "a=!%", "unsub i2; a=!%", "unsub i2; a=!%", "s=!% end"},
		"404 408 empty pending interest batch": {
			"sub i2; p2 i2 3 once 4.9s hb1s", "a=!empty", "unsub i2; sub i3; p3 i3 3 once 950ms hb212.5ms",
			"unsub i2; sub i3; p3 i3 3 950ms hb212.5ms", "p2 i1 9 30s hb15s",
		},
		"bytes":               {"a=!%", "a=!%", "unsub i2; a=!%", "unsub i2; a=!%", "p2 i1 1 30s hb15s"},
		"limit longer larger": {"doubt; a=!%", "doubt; a=!%", "unsub i2; doubt; a=!%", "unsub i2; doubt; a=!%", "doubt; s %"},
		"waiting other":       {"", "", "unsub i2", "unsub i2", "s %"},
		"423 wrongpin":        {"", "", "unsub i2", "unsub i2", ""},
		"503":                 {"doubt", "doubt", "unsub i2; doubt", "unsub i2; doubt", "doubt; s %"},
		"leader shutdown":     {"prove", "prove", "prove", "prove", "prove; s %"},
		"deleted lower": {
			"prove; doubt; a=!%", "prove; doubt; a=!%", "prove; doubt; a=!%", "prove; doubt; a=!%",
			"prove; doubt; s=!% end",
		},
	} {
		for _, name := range strings.Fields(names) {
			for i, kind := range kinds {
				w := newWorld(t, Limits{}, 1000)
				for _, event := range strings.Split(strings.ReplaceAll(kind, "%", name), ";") {
					w.log = nil
					w.event(strings.Fields(event))
					w.act()
				}
				require.Equal(t, strings.ReplaceAll(effects[i], "%", name), strings.Join(w.log, "; "), "%s to %s", name, kind)
				w.end()
			}
		}
	}
}

// A server that answers each pull with the same status, as fast as it can, gets at most a
// few pulls a second. But it gets more pulls if that can help.
func TestNoConditionMakesPullsRunInCircles(t *testing.T) {
	for name, status := range statuses {
		for _, kind := range kinds {
			w := newWorld(t, Limits{Pinned: true}, 1000)
			w.event(strings.Fields(strings.Split(kind, ";")[0]))
			w.act()
			d, answered := w.demands[0], 0
			for w.now < 5*time.Second && !d.Done {
				for n := len(w.pulls); answered < n; answered++ {
					w.status(w.pulls[answered], status)
					w.act()
				}
				for len(w.draining) > 0 {
					w.drained(w.draining[0])
				}
				w.pass(w.now + time.Millisecond)
			}
			require.Less(t, len(w.pulls), 35, "pulls in 5 s after %s to %s", name, kind)
			require.True(t, d.Done || len(w.pulls) > 4 || name == "100", "%d pulls in 5 s after %s to %s", len(w.pulls), name, kind)
			w.end()
		}
	}
}

func TestExpiryAndHeartbeat(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		time.Hour: time.Hour - 100*time.Millisecond, 200 * time.Millisecond: 100 * time.Millisecond, 190 * time.Millisecond: 171 * time.Millisecond,
		101 * time.Millisecond: 90900 * time.Microsecond, time.Millisecond: time.Millisecond, 1: time.Millisecond, -time.Second: time.Millisecond,
	} {
		require.Equal(t, want, expiresIn(left), "%v left", left)
	}
	for wait := 200 * time.Millisecond; wait < time.Minute; wait += 37 * time.Millisecond {
		expires := expiresIn(wait)
		if beat := callHeartbeat(0, expires); beat > 0 {
			require.LessOrEqual(t, 2*beat+ExpiresMargin, min(3*time.Second, wait/2), "two missed heartbeats of a wait of %v", wait)
			require.LessOrEqual(t, 2*beat, expires)
		} else {
			require.Less(t, wait, 300*time.Millisecond)
		}
	}
}

func TestBackOffIsJittered(t *testing.T) {
	e, low, high := New("b", Limits{}, 1, 7), time.Hour, time.Duration(0)
	for range 1000 {
		d := backOff(1, silentBackOff, e.rng)
		low, high = min(low, d), max(high, d)
	}
	require.InDelta(t, 400*time.Millisecond, low, 1e7)
	require.InDelta(t, 600*time.Millisecond, high, 1e7)
}
