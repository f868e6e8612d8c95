package sqlstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asker is a watcher that asks at random, uses begins until the last moment, dies, and loses answers.
type asker struct {
	terms         Terms
	active        []time.Time // begun; each runs for less than the lease
	share, begins int
	at, backAt    int64
	back          int
	usable        time.Time
}

// TestNoWindowIsExceeded: whatever watchers do, no window has more begins than the rate, and at no time is more active than the shares
// of those that live.
func TestNoWindowIsExceeded(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		limit := Limit{Gate: 1, Concurrency: 1 + r.IntN(6), Rate: 1 + r.IntN(20), Per: time.Duration(1+r.IntN(3)) * time.Second}
		var state LimitState
		now := time.UnixMilli(1_000_000)
		watchers := []*asker{{}, {}, {}}
		for i, w := range watchers {
			w.terms = Terms{Owner: string(rune('a' + i)), Length: time.Second}
		}
		var begun []time.Time
		for range 600 {
			now = now.Add(time.Duration(r.IntN(60)) * time.Millisecond)
			w := watchers[r.IntN(len(watchers))]
			for i := range w.active {
				if r.IntN(3) == 0 {
					w.active = slices.Delete(w.active, i, i+1)
					break
				}
			}
			w.ask(r, &state, limit, now)
			if r.IntN(50) == 0 { // it dies, and its successor is another one
				w.terms.Owner += "'"
				w.share, w.begins, w.back, w.active = 0, 0, 0, nil
			}
			for _, w := range watchers {
				for w.begins > 0 && len(w.active) < w.share && !now.After(w.usable) && r.IntN(2) == 0 {
					begun, w.active = append(begun, now), append(w.active, now)
					w.begins--
				}
			}
			running := 0
			for _, w := range watchers {
				running += len(w.active)
			}
			require.LessOrEqual(t, running, limit.Concurrency, "seed %d", seed)
		}
		for i := limit.Rate; i < len(begun); i++ {
			require.GreaterOrEqual(t, begun[i].Sub(begun[i-limit.Rate]), limit.Per, "seed %d: %d begins", seed, limit.Rate+1)
		}
		require.NotEmpty(t, begun)
	}
}

func (w *asker) ask(r *rand.Rand, state *LimitState, limit Limit, now time.Time) {
	a := Ask{
		Limit: limit, Keep: max(len(w.active), w.share), Demand: max(len(w.active), w.share) + r.IntN(4), Begins: r.IntN(10),
		Use: 50 * time.Millisecond, BackAt: w.backAt, Back: w.back,
	}
	if r.IntN(3) == 0 {
		w.share = len(w.active)
		a.Keep, a.Demand = w.share, w.share
	}
	g := state.Grant(now, w.terms, &a)
	w.back = 0
	if r.IntN(20) == 0 {
		return // the answer is lost
	}
	w.backAt, w.back = w.at, w.begins
	w.share, w.begins, w.at, w.usable = g.Share, g.Begins, g.At, now.Add(a.Use)
}

// TestLimitsThatDiffer: each watcher obeys its own limit, and with a window of a second beside one of an hour the row stays small.
func TestLimitsThatDiffer(t *testing.T) {
	var state LimitState
	now := time.UnixMilli(1_000_000_000)
	limits := []Limit{{Concurrency: 4, Rate: 8, Per: time.Hour}, {Concurrency: 6, Rate: 10, Per: time.Second}}
	for n := range 30_000 {
		now = now.Add(300 * time.Millisecond)
		l := limits[n%2]
		g := state.Grant(now, Terms{Owner: fmt.Sprint(l.Per), Length: time.Minute}, &Ask{Limit: l, Demand: 9, Begins: 3, Use: 50 * time.Millisecond})
		require.LessOrEqual(t, g.Share, l.Concurrency)
		require.Less(t, len(state.Begins), 110)
	}
	require.LessOrEqual(t, state.Shares["1s"].Share+state.Shares["1h0m0s"].Share, 6)
}

// TestSharesAreFair: watchers that wait get their part once those with more have ended what they had.
func TestSharesAreFair(t *testing.T) {
	for _, tt := range []struct {
		watchers, concurrency int
		want                  []int
	}{
		{1, 10, []int{10}},
		{2, 10, []int{5, 5}},
		{3, 10, []int{3, 3, 4}},
		{4, 5, []int{1, 1, 1, 2}},
		// One has none at a time, which changes.
		{2, 1, nil},
		{3, 2, nil},
		{5, 3, nil},
	} {
		var state LimitState
		shares, had := make([]int, tt.watchers), make([]int, tt.watchers)
		for round := range 40 {
			for i := range shares {
				g := state.Grant(time.UnixMilli(int64(1000+round)), Terms{Owner: string(rune('a' + i)), Length: time.Minute},
					&Ask{Limit: Limit{Concurrency: tt.concurrency}, Demand: 20})
				shares[i] = g.Share
				had[i] += g.Share
			}
		}
		require.Greater(t, 3*slices.Min(had), slices.Max(had), "%+v: %v", tt, had)
		if tt.want == nil {
			continue
		}
		slices.Sort(shares)
		require.Equal(t, tt.want, shares, "%+v", tt)
	}
}

// TestFewBeginsAreFair: watchers that wait get about the same number of begins, also if one is free at a time and the same watcher
// always asks first.
func TestFewBeginsAreFair(t *testing.T) {
	const every = 500
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 0))
		limit := Limit{Rate: 1 + r.IntN(20), Per: time.Minute}
		had, phase := make([]int, 2+r.IntN(3)), make([]int, 4)
		for i := range phase {
			phase[i] = r.IntN(every)
		}
		var state LimitState
		for ms := range 11 * 60_000 {
			for i := range had {
				if ms%every == phase[i] {
					g := state.Grant(time.UnixMilli(int64(1_000_000+ms)), Terms{Owner: string(rune('a' + i)), Length: 30 * time.Second},
						&Ask{Limit: limit, Begins: 30, Use: time.Second})
					if ms > 60_000 { // in the first window the first one takes what it wants
						had[i] += g.Begins
					}
				}
			}
		}
		total := 0
		for _, n := range had {
			total += n
		}
		require.GreaterOrEqual(t, total, limit.Rate*9, "seed %d: %v", seed, had)
		require.Greater(t, 3*slices.Min(had)+3, 2*slices.Max(had), "seed %d: %v of %d", seed, had, limit.Rate)
	}
}
