package jetpull

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// pinEvent is one thing that can happen to the pin state of a group.
type pinEvent struct {
	name string
	do   func(p *pins) (tell []string)
}

func pinEvents() []pinEvent {
	events := []pinEvent{}
	for _, id := range []string{"A", "B"} {
		events = append(events, pinEvent{"gain " + id, func(p *pins) []string {
			replaced, changed := p.gain("g", id)
			switch {
			case !changed:
				return nil
			case replaced != "":
				return []string{"-" + replaced, "+" + id}
			}
			return []string{"+" + id}
		}})
		events = append(events, pinEvent{"lose " + id, func(p *pins) []string {
			if p.lose("g", id) {
				return []string{"-" + id}
			}
			return nil
		}})
	}
	return append(events, pinEvent{"lose none", func(p *pins) []string {
		if p.lose("g", "") {
			return []string{"-"}
		}
		return nil
	}})
}

// TestPinStatesExhaustively walks all sequences of six events and holds the
// state to a model: what was told last is what is held, each change is told
// once, and an id is lost only while it is the current one.
func TestPinStatesExhaustively(t *testing.T) {
	events := pinEvents()
	const depth = 6
	total := 1
	for range depth {
		total *= len(events)
	}
	for n := range total {
		var p pins
		held := ""
		path := ""
		for k, rest := 0, n; k < depth; k, rest = k+1, rest/len(events) {
			e := events[rest%len(events)]
			path += e.name + ", "
			before := held
			for _, tell := range e.do(&p) {
				switch {
				case tell[0] == '+' && held == "":
					held = tell[1:]
				case tell[0] == '-' && held == tell[1:] && held != "":
					held = ""
				default:
					require.Fail(t, "told what cannot be", "%s told %s while %q is held", path, tell, held)
				}
			}
			want := before
			switch e.name {
			case "gain A", "gain B":
				want = e.name[5:]
			case "lose " + before:
				want = ""
			}
			if want != held || p.id("g") != held || p.id("other") != "" {
				require.Fail(t, "wrong state", "%s held %q, told %q, want %q", path, p.id("g"), held, want)
			}
		}
	}
}

func TestPinsOfDifferentGroups(t *testing.T) {
	var p pins
	p.gain("a", "1")
	p.gain("b", "2")
	require.Equal(t, "1", p.id("a"))
	require.False(t, p.lose("a", "2"))
	require.True(t, p.lose("b", "2"))
	require.Equal(t, "1", p.id("a"))
	require.Empty(t, p.id("b"))
}

func pinnedWorld(t *testing.T) (*world, func(*claim)) {
	w := newWorld(t, limits{pinned: true, pinTTL: time.Minute})
	return w, in(w.r.laneOf(groupTerms{group: "g"}, 0, false))
}

func TestAPinIsStoredAndSent(t *testing.T) {
	w, inGroup := pinnedWorld(t)
	w.post(1, 5*time.Second, inGroup)
	p := w.pulled(pullQuick)[0]
	require.JSONEq(t, `{"batch":1,"no_wait":true,"group":"g"}`, string(p.req.Append(nil)))
	w.arrive(p.inbox, "pin1")
	require.Equal(t, []string{"pinned g pin1"}, w.notices)

	// Every later pull sends it, in each phase and with +NXT.
	w.post(1, 5*time.Second, inGroup, carriedBy(w.message("done")))
	p = w.pulled(pullQuick)[0]
	require.Equal(t, "pin1", p.req.ID)
	w.empty(p)
	p = w.pulled(pullOnce)[0]
	require.Equal(t, "pin1", p.req.ID)
	w.arrive(p.inbox, "pin1")
	require.Len(t, w.notices, 1, "a refresh is no change")

	// Another id replaces it.
	w.post(1, 5*time.Second, inGroup)
	w.arrive(w.pulled(pullQuick)[0].inbox, "pin2")
	require.Equal(t, []string{"pinned g pin1", "unpinned g pin1", "pinned g pin2"}, w.notices)
	// A message without an id says nothing about the pin.
	w.post(1, 5*time.Second, inGroup)
	w.arrive(w.pulled(pullQuick)[0].inbox, "")
	require.Len(t, w.notices, 3)
	require.Equal(t, "pin2", w.r.pins.id("g"))
	w.atRest()
}

func TestBoth423TextsClearThePin(t *testing.T) {
	for _, text := range []string{"Nats-Pin-Id mismatch", "Nats-Wrong-Pin-Id"} {
		t.Run(text, func(t *testing.T) {
			w, inGroup := pinnedWorld(t)
			w.post(1, 5*time.Second, inGroup)
			w.arrive(w.pulled(pullQuick)[0].inbox, "pin1")
			c := w.post(1, 5*time.Second, inGroup)
			p := w.pulled(pullQuick)[0]
			w.pending(p, 423, text, 1)
			w.waits(c)
			require.Equal(t, []string{"pinned g pin1", "unpinned g pin1"}, w.notices)
			q := w.pulled(pullQuick)[0]
			require.Empty(t, q.req.ID, "pulling goes on without it, and at once")
			w.empty(q)
			long := w.pulled(pullOnce)[0]
			w.arrive(long.inbox, "pin2")
			w.ended(c, 1, nil)
			require.Equal(t, "pin2", w.r.pins.id("g"))
			w.atRest()
		})
	}
}

func TestAStale423DoesNotClearANewPin(t *testing.T) {
	w, inGroup := pinnedWorld(t)
	w.post(1, 5*time.Second, inGroup)
	w.arrive(w.pulled(pullQuick)[0].inbox, "old")
	a := w.newClaim(2, 10*time.Second, inGroup, fill)
	w.postLong(a)
	old := w.pulled(pullPlain)[0]
	require.Equal(t, "old", old.req.ID)
	b := w.post(1, 5*time.Second, inGroup)
	quick := w.pulled(pullQuick)[0]
	w.arrive(quick.inbox, "new")
	w.waits(b)
	w.pending(old, 423, "Nats-Wrong-Pin-Id", 2)
	require.Equal(t, "new", w.r.pins.id("g"))
	require.Equal(t, []string{"pinned g old", "unpinned g old", "pinned g new"}, w.notices)
	for _, p := range w.sent[w.seen:] {
		require.Equal(t, "new", p.req.ID)
	}
	// A pull that never had an id cannot clear one.
	w = newWorld(t, limits{pinned: true})
	inGroup = in(w.r.laneOf(groupTerms{group: "g"}, 0, false))
	w.post(1, 5*time.Second, inGroup)
	p := w.pulled(pullQuick)[0]
	require.Empty(t, p.req.ID)
	w.r.pinGained("g", "mine")
	w.status(p, 423, "Nats-Pin-Id mismatch")
	require.Equal(t, "mine", w.r.pins.id("g"))
}

func TestALeaderChangeClearsThePin(t *testing.T) {
	w, inGroup := pinnedWorld(t)
	w.post(1, 5*time.Second, inGroup)
	w.arrive(w.pulled(pullQuick)[0].inbox, "pin1")
	c := w.post(1, 5*time.Second, inGroup)
	w.status(w.pulled(pullQuick)[0], 409, "Leadership Change")
	require.Equal(t, []string{"pinned g pin1", "unpinned g pin1"}, w.notices)
	w.pass(250 * time.Millisecond)
	p := w.pulled(pullQuick)[0]
	require.Empty(t, p.req.ID)
	w.deliver(p, 1)
	w.ended(c, 1, nil)
	w.drained()
	w.atRest()
}

func TestAMessageWithMyPinIdIsNoPinOnOtherPolicies(t *testing.T) {
	w := newWorld(t, limits{})
	w.post(1, 5*time.Second)
	p := w.pulled(pullQuick)[0]
	w.deliver(p, 1)
	w.post(1, 5*time.Second)
	require.Empty(t, w.pulled(pullQuick)[0].req.ID)
	require.Empty(t, w.notices)
}

func TestAdvisoriesAreParsed(t *testing.T) {
	for _, tt := range []struct {
		name, subject, body string
		want                PinAdvisory
		fails               bool
	}{
		{
			"pinned", pinnedAdvisory + ".S.C",
			`{"type":"io.nats.jetstream.advisory.v1.consumer_group_pinned","id":"x","timestamp":"2026-11-20T10:00:00.5Z","stream":"S","consumer":"C","domain":"hub","group":"g","pinned_id":"abc"}`,
			PinAdvisory{Pinned: true, Stream: "S", Consumer: "C", Group: "g", ID: "abc", Domain: "hub", Time: time.Date(2026, 11, 20, 10, 0, 0, 5e8, time.UTC)},
			false,
		},
		{
			"unpinned", unpinnedAdvisory + ".S.C",
			`{"timestamp":"2026-11-20T10:00:00Z","stream":"S","consumer":"C","group":"g","reason":"timeout"}`,
			PinAdvisory{Stream: "S", Consumer: "C", Group: "g", Reason: "timeout", Time: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)},
			false,
		},
		{"no json", pinnedAdvisory + ".S.C", `{`, PinAdvisory{}, true},
		{"bad time", pinnedAdvisory + ".S.C", `{"timestamp":"soon"}`, PinAdvisory{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseAdvisory(&nats.Msg{Subject: tt.subject, Data: []byte(tt.body)})
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.fails, err != nil, "%v", err)
			if tt.fails {
				require.ErrorContains(t, err, tt.subject)
			}
		})
	}
}

func TestUnpinRefusesBadNames(t *testing.T) {
	js, err := jetstream.New(new(nats.Conn))
	require.NoError(t, err)
	for _, tt := range []struct{ stream, consumer, group, names string }{
		{"S", "C", "", "Group"},
		{"S", "C", "far too long a name", "Group"},
		{"S", "C", "a b", "Group"},
		{"", "C", "g", "stream"},
		{"S", "a.b", "g", "consumer"},
		{"S", "*", "g", "consumer"},
	} {
		err := Unpin(t.Context(), js, tt.stream, tt.consumer, tt.group)
		require.ErrorIs(t, err, ErrInvalidOption)
		require.ErrorContains(t, err, tt.names)
	}
	for range 2 { // the loop can be run again
		for _, err := range Advisories(t.Context(), js, "a.b", "C") {
			require.ErrorIs(t, err, ErrInvalidOption)
		}
	}
}

func TestRequestErrors(t *testing.T) {
	err := requestError("unpin", "a.b", fmt.Errorf("x: %w", nats.ErrNoResponders))
	require.ErrorIs(t, err, ErrNoResponders)
	require.ErrorContains(t, err, "a.b")
	err = requestError("unpin", "a.b", nats.ErrTimeout)
	require.ErrorIs(t, err, ErrTimeout)
	other := errors.New("other")
	err = requestError("unpin", "a.b", other)
	require.ErrorIs(t, err, other)
	require.NotErrorIs(t, err, ErrTimeout)
	err = requestError("unpin", "a.b", nats.ErrConnectionClosed)
	require.ErrorIs(t, err, nats.ErrConnectionClosed)
	require.ErrorIs(t, err, ErrClosed)
}
