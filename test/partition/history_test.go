package partition

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// verdict is what a history shows.
type verdict struct {
	faults   []string
	handled  int // different messages that succeeded
	repeated int // further successes
	attempts int
	assigned int
}

// handling is one call of a handler.
type handling struct {
	member     string
	number     int
	begin, end time.Time
	ok         bool
	frozen     bool // its process was stopped meanwhile: it may outlast its partition
}

// frozen is a time for which a member's process was stopped, or from which it was dead.
type frozen struct {
	member   string
	from, to time.Time
	dead     bool
}

// judge checks the order of each key over all members. events are in each member's order.
func judge(events []event, stops []frozen) verdict {
	var v verdict
	keys := map[string][]*handling{}
	open := map[string]*handling{}
	slices.SortStableFunc(events, func(a, b event) int { return a.Time.Compare(b.Time) })
	end := time.Now()
	for _, e := range events {
		id := fmt.Sprint(e.member, " ", e.Key, " ", e.Number)
		switch e.Kind {
		case "begin":
			h := &handling{member: e.member, number: e.Number, begin: e.Time, end: end}
			open[id] = h
			keys[e.Key] = append(keys[e.Key], h)
			v.attempts++
		case "ok", "failed":
			h := open[id]
			h.end, h.ok = e.Time, e.Kind == "ok"
			delete(open, id)
		case "assign":
			v.assigned++
		}
	}
	for key, hs := range keys {
		for _, h := range hs {
			for _, s := range stops {
				switch {
				case s.member != h.member || !h.end.After(s.from):
				case s.dead: // a signal takes a moment, so it may have begun since
					h.end = s.from
				case h.begin.Before(s.to):
					h.frozen = true
				}
			}
		}
		v.judgeKey(key, hs)
	}
	slices.Sort(v.faults)
	return v
}

// judgeKey checks the handlings of a key, which are sorted by their beginning.
func (v *verdict) judgeKey(key string, hs []*handling) {
	first := map[int]time.Time{} // success of each message
	for _, h := range hs {
		if !h.ok {
			continue
		}
		if t, ok := first[h.number]; !ok || h.end.Before(t) {
			first[h.number] = h.end
		}
	}
	v.handled += len(first)
	for i, h := range hs {
		if h.ok && !h.end.Equal(first[h.number]) {
			v.repeated++
		}
		if h.number > 0 {
			if t, ok := first[h.number-1]; !ok || t.After(h.begin) {
				v.faults = append(v.faults, fmt.Sprintf("%s: %d begins with %s at %v before %d has succeeded", key, h.number, h.member,
					h.begin.Format("05.000000"), h.number-1))
			}
		}
		for _, other := range hs[:i] {
			if other.end.After(h.begin) && !other.frozen {
				v.faults = append(v.faults, fmt.Sprintf("%s: %d begins with %s while %s handles %d", key, h.number, h.member, other.member, other.number))
			}
		}
	}
}

// The judge finds what a partition must not do.
func TestJudgeFindsPlantedErrors(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond) }
	line := func(member, kind string, n, ms int) event {
		return event{Kind: kind, Key: "k", Number: n, Time: at(ms), member: member}
	}
	good := []event{
		line("a", "begin", 0, 0), line("a", "failed", 0, 1), line("b", "begin", 0, 2), line("b", "ok", 0, 3), line("a", "begin", 1, 4),
		line("a", "ok", 1, 5),
	}
	require.Empty(t, judge(slices.Clone(good), nil).faults)

	early := append(slices.Clone(good), line("b", "begin", 3, 6), line("b", "ok", 3, 7))
	require.Len(t, judge(early, nil).faults, 1)

	overlap := append(slices.Clone(good), line("a", "begin", 2, 6), line("a", "ok", 2, 9), line("b", "begin", 2, 7), line("b", "ok", 2, 8))
	require.Len(t, judge(overlap, nil).faults, 1)
	require.Empty(t, judge(slices.Clone(overlap), []frozen{{member: "a", from: at(6).Add(time.Microsecond), to: at(8)}}).faults)

	killed := append(slices.Clone(good), line("a", "begin", 2, 6), line("b", "begin", 2, 9), line("b", "ok", 2, 10))
	require.Len(t, judge(slices.Clone(killed), nil).faults, 1)
	v := judge(killed, []frozen{{member: "a", from: at(7), dead: true}})
	require.Empty(t, v.faults)
	require.Equal(t, 3, v.handled)
}
