package jobindex

import (
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// News of the schedules of a subject may arrive in different orders, twice, or in part.
func TestNewsOfSchedules(t *testing.T) {
	const subject = "broker.s.ch.x"
	add := func(seq uint64) func(*Index) {
		return func(x *Index) { x.AddSchedule("ch", subject, seq, time.Unix(50, 0)) }
	}
	fire := func(seq uint64) func(*Index) {
		return func(x *Index) { x.Fired("ch", subject, seq) }
	}
	remove := func(seq uint64) func(*Index) {
		return func(x *Index) { x.RemoveMessages("ch", []uint64{seq}) }
	}
	for name, c := range map[string]struct {
		news           []func(*Index)
		waits          uint64
		pending, fired []uint64
	}{
		"waits":                        {[]func(*Index){add(1), add(1)}, 1, []uint64{1}, nil},
		"fired":                        {[]func(*Index){add(1), fire(2), fire(2)}, 0, nil, []uint64{2}},
		"only the broadcast is left":   {[]func(*Index){fire(2)}, 0, nil, []uint64{2}},
		"cancelled":                    {[]func(*Index){add(1), remove(1), remove(1)}, 0, nil, nil},
		"pruned":                       {[]func(*Index){add(1), fire(2), remove(2)}, 0, nil, nil},
		"again after it was pruned":    {[]func(*Index){add(1), fire(2), remove(2), add(5)}, 5, []uint64{5}, nil},
		"again, its cancel was lost":   {[]func(*Index){add(1), add(5)}, 5, []uint64{5}, nil},
		"again, then the late cancel":  {[]func(*Index){add(1), add(5), remove(1)}, 5, []uint64{5}, nil},
		"again, then the late pruning": {[]func(*Index){add(1), fire(2), add(5), remove(2)}, 5, []uint64{5}, nil},
		"the last one fired":           {[]func(*Index){fire(2), add(5), fire(6), remove(2)}, 0, nil, []uint64{6}},
	} {
		t.Run(name, func(t *testing.T) {
			x := New()
			for _, news := range c.news {
				news(x)
			}
			require.Equal(t, c.waits, x.Waiting("ch", subject))
			require.Equal(t, c.pending, x.ScheduledSeqs("ch", domain.Pending, domain.Page{Limit: 9}))
			require.Equal(t, c.fired, x.ScheduledSeqs("ch", domain.Dispatched, domain.Page{Limit: 9}))
			counts := x.CountScheduled("ch")
			require.Equal(t, []int{len(c.pending), len(c.fired)}, []int{counts.Pending, counts.Dispatched})
			require.Equal(t, len(c.pending) > 0, counts.Next.Equal(time.Unix(50, 0)))
		})
	}
}

// pagesOf reads a list from the newest to the oldest page and back again.
func pagesOf(x *Index, status domain.MessageStatus, limit int) (older, newer [][]uint64) {
	page := domain.Page{Limit: limit}
	var last domain.Position
	for seqs := x.ScheduledSeqs("ch", status, page); len(seqs) > 0; seqs = x.ScheduledSeqs("ch", status, page) {
		older = append(older, seqs)
		last = domain.Position{Seq: seqs[len(seqs)-1]}
		page.After = &last
	}
	page = domain.Page{Limit: limit, Before: &last}
	for seqs := x.ScheduledSeqs("ch", status, page); len(seqs) > 0; seqs = x.ScheduledSeqs("ch", status, page) {
		newer = append(newer, seqs)
		first := domain.Position{Seq: seqs[0]}
		page.Before = &first
	}
	return older, newer
}

func TestPagesOfSchedules(t *testing.T) {
	x := New()
	for seq := uint64(1); seq <= 9; seq++ {
		if seq%3 == 0 {
			x.Fired("ch", "", seq)
		} else {
			x.AddSchedule("ch", strconv.FormatUint(seq, 10), seq, time.Unix(1, 0))
		}
	}
	for status, want := range map[domain.MessageStatus][2][][]uint64{
		0:                 {{{9, 8, 7, 6}, {5, 4, 3, 2}, {1}}, {{5, 4, 3, 2}, {9, 8, 7, 6}}},
		domain.Pending:    {{{8, 7, 5, 4}, {2, 1}}, {{7, 5, 4, 2}, {8}}},
		domain.Dispatched: {{{9, 6, 3}}, {{9, 6}}},
		1:                 {},
	} {
		older, newer := pagesOf(x, status, 4)
		require.Equal(t, want, [2][][]uint64{older, newer}, status)
	}
	require.Len(t, x.ScheduledSeqs("ch", 0, domain.Page{Limit: 4, After: &domain.Position{Seq: 100}}), 4)
	require.Len(t, x.ScheduledSeqs("ch", 0, domain.Page{Limit: 4, Before: &domain.Position{}}), 4)
	require.Empty(t, x.ScheduledSeqs("none", 0, domain.Page{Limit: 4}))
}

// A page takes memory for its own items only, however many schedules there are.
func TestAPageOfSchedulesCostsThePage(t *testing.T) {
	taken := func(depth uint64, page domain.Page) uint64 {
		x := New()
		for seq := uint64(1); seq <= depth; seq++ {
			x.AddSchedule("ch", strconv.FormatUint(seq, 10), seq, time.Unix(1, 0))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 100 {
			require.Len(t, x.ScheduledSeqs("ch", domain.Pending, page), page.Limit)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	middle := &domain.Position{Seq: 1000}
	for _, page := range []domain.Page{{Limit: 25}, {Limit: 25, After: middle}, {Limit: 25, Before: middle}} {
		require.Less(t, taken(20_000, page), 2*taken(2_000, page))
	}
}
