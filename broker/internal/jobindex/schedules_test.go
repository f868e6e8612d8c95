package jobindex

import (
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// News of the schedules of one subject, in every order that nodes may hear it in.
func TestNewsOfSchedules(t *testing.T) {
	const subject = "broker.s.ch.x"
	first := Scheduled{Seq: 1, ID: "x", At: 10}
	fired := Scheduled{Seq: 2, ID: "x", At: 10, DispatchedAt: 11, Message: 2}
	second := Scheduled{Seq: 5, ID: "x", At: 50}
	add := func(e Scheduled) func(*Schedules) {
		return func(x *Schedules) { x.Add("ch", subject, e) }
	}
	fire := func(x *Schedules) {
		x.Fired("ch", subject, fired)
	}
	prune := func(x *Schedules) { x.Pruned("ch", []uint64{2}) }
	pending := []Scheduled{second}
	for name, c := range map[string]struct {
		news []func(*Schedules)
		want []Scheduled
	}{
		"fired":                                 {[]func(*Schedules){add(first), fire}, []Scheduled{{Seq: 1, ID: "x", At: 10, DispatchedAt: 11, Message: 2}}},
		"fired, told twice":                     {[]func(*Schedules){add(first), fire, fire, add(first)}, []Scheduled{{Seq: 1, ID: "x", At: 10, DispatchedAt: 11, Message: 2}}},
		"only the broadcast is left":            {[]func(*Schedules){fire}, []Scheduled{fired}},
		"pruned":                                {[]func(*Schedules){add(first), fire, prune}, nil},
		"pruned after a start":                  {[]func(*Schedules){fire, prune}, nil},
		"again after it was pruned":             {[]func(*Schedules){add(first), fire, prune, add(second)}, pending},
		"again, and nobody told of the pruning": {[]func(*Schedules){add(first), fire, add(second)}, pending},
		"again, and the pruning is told late":   {[]func(*Schedules){add(first), fire, add(second), prune}, pending},
		"again, and the broadcast is told late": {[]func(*Schedules){add(first), add(second), fire}, pending},
		"again after a start":                   {[]func(*Schedules){fire, add(second)}, pending},
		"the first is told late":                {[]func(*Schedules){add(second), add(first)}, pending},
		"a later broadcast, its schedule gone": {
			[]func(*Schedules){fire, func(x *Schedules) {
				x.Fired("ch", subject, Scheduled{Seq: 6, ID: "x", At: 50, DispatchedAt: 51, Message: 6})
			}, prune},
			[]Scheduled{{Seq: 6, ID: "x", At: 50, DispatchedAt: 51, Message: 6}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := NewSchedules()
			for _, news := range c.news {
				news(x)
			}
			var got []Scheduled
			for _, e := range x.channels["ch"].scheduled {
				e := *e
				e.subject = ""
				got = append(got, e)
			}
			require.Equal(t, c.want, got)
			waiting := uint64(0)
			if len(c.want) > 0 && c.want[0].DispatchedAt == 0 {
				waiting = c.want[0].Seq
			}
			require.Equal(t, waiting, x.Pending(subject))
		})
	}
}

// A node hears of its own schedule twice, and it may be cancelled before, between
// and after.
func TestOwnScheduleThatIsCancelled(t *testing.T) {
	const subject = "broker.s.ch.x"
	e := Scheduled{Seq: 3, ID: "x", At: 10}
	var seen uint64
	own := func(x *Schedules) { x.AddOwn("ch", subject, e, func() uint64 { return seen }) }
	stream := func(x *Schedules) { x.Add("ch", subject, e); seen = 3 }
	cancelled := func(x *Schedules) { x.Remove("ch", subject, 3, seen) }
	for name, news := range map[string][]func(*Schedules){
		"own, stream, cancelled": {own, stream, cancelled},
		"own, cancelled, stream": {own, cancelled, stream},
		"cancelled, own, stream": {cancelled, own, stream},
		"cancelled, stream, own": {cancelled, stream, own},
		"stream, cancelled, own": {stream, cancelled, own},
		"stream, own, cancelled": {stream, own, cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			seen = 0
			x := NewSchedules()
			for _, f := range news {
				f(x)
			}
			require.Empty(t, x.List("ch", "ch", 0, domain.Page{Limit: 1}))
			require.Empty(t, x.pendingAt)
			require.Empty(t, x.cancelled)
		})
	}
}

// pagesOf reads a list from the newest to the oldest page and back again.
func pagesOf(x *Schedules, status domain.ScheduledStatus, limit int) (older, newer [][]uint64) {
	seqs := func(views []domain.Scheduled) (seqs []uint64) {
		for _, v := range views {
			seqs = append(seqs, v.Seq)
		}
		return seqs
	}
	page := domain.Page{Limit: limit}
	var last domain.Position
	for views := x.List("ch", "ch", status, page); len(views) > 0; views = x.List("ch", "ch", status, page) {
		older = append(older, seqs(views))
		last = domain.Position{Seq: views[len(views)-1].Seq}
		page.After = &last
	}
	page = domain.Page{Limit: limit, Before: &last}
	for views := x.List("ch", "ch", status, page); len(views) > 0; views = x.List("ch", "ch", status, page) {
		newer = append(newer, seqs(views))
		first := domain.Position{Seq: views[0].Seq}
		page.Before = &first
	}
	return older, newer
}

func TestPagesOfSchedules(t *testing.T) {
	x := NewSchedules()
	for seq := uint64(1); seq <= 9; seq++ {
		e := Scheduled{Seq: seq}
		if seq%3 == 0 {
			e.DispatchedAt = 1
		}
		x.Add("ch", strconv.FormatUint(seq, 10), e)
	}
	for status, want := range map[domain.ScheduledStatus][2][][]uint64{
		0:                          {{{9, 8, 7, 6}, {5, 4, 3, 2}, {1}}, {{5, 4, 3, 2}, {9, 8, 7, 6}}},
		domain.ScheduledPending:    {{{8, 7, 5, 4}, {2, 1}}, {{7, 5, 4, 2}, {8}}},
		domain.ScheduledDispatched: {{{9, 6, 3}}, {{9, 6}}},
		1:                          {},
	} {
		older, newer := pagesOf(x, status, 4)
		require.Equal(t, want, [2][][]uint64{older, newer}, status)
	}
	require.Len(t, x.List("ch", "ch", 0, domain.Page{Limit: 4, After: &domain.Position{Seq: 100}}), 4)
	require.Len(t, x.List("ch", "ch", 0, domain.Page{Limit: 4, Before: &domain.Position{}}), 4)
	require.Empty(t, x.List("none", "none", 0, domain.Page{Limit: 4}))
}

// A page takes the memory of what it has, however many there are, wherever it is.
func TestAPageOfSchedulesCostsThePage(t *testing.T) {
	taken := func(depth uint64, page domain.Page) uint64 {
		x := NewSchedules()
		for seq := uint64(1); seq <= depth; seq++ {
			x.Add("ch", strconv.FormatUint(seq, 10), Scheduled{Seq: seq})
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 100 {
			require.Len(t, x.List("ch", "ch", domain.ScheduledPending, page), page.Limit)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	middle := &domain.Position{Seq: 1000}
	for _, page := range []domain.Page{{Limit: 25}, {Limit: 25, After: middle}, {Limit: 25, Before: middle}} {
		require.Less(t, taken(20_000, page), 2*taken(2_000, page))
	}
}
