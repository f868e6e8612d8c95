package jobindex

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Pages of dead jobs of all consumers have each job once, in order, also where jobs became dead at the same time.
func TestDead(t *testing.T) {
	x := New()
	r := rand.New(rand.NewPCG(1, 2))
	var all []int64
	for number := uint32(1); number <= 30; number++ {
		x.PutConsumer("ch", domain.Consumer{Stakeholder: domain.Stakeholder{Number: number}})
	}
	for seq := uint64(1); seq <= 40; seq++ {
		x.AddMessage("ch", Entry{Seq: seq, At: 1}, "")
		for number := uint32(1); number <= 30; number++ {
			at := 1 + r.Int64N(300)
			x.PutRecord(domain.Job{ID: domain.JobID{Seq: seq, Consumer: number}, Status: domain.Dead, Revision: 1, ChangedAt: FromUnixNano(at)})
			if number != 7 && at >= 20 && at < 280 {
				all = append(all, at)
			}
		}
	}
	take := func(c domain.Consumer) bool { return c.Number != 7 }
	for _, newest := range []bool{false, true} {
		slices.SortFunc(all, func(a, b int64) int {
			if newest {
				a, b = b, a
			}
			return cmp.Compare(a, b)
		})
		for _, limit := range []int{1, 3, 10, 100, 5000} {
			var got []int64
			seen := map[domain.JobID]bool{}
			for from, to := int64(20), int64(280); ; {
				jobs, last := x.Dead(take, from, to, newest, limit)
				for _, j := range jobs {
					require.False(t, seen[j.ID])
					seen[j.ID] = true
					got = append(got, j.ChangedAt.UnixNano())
				}
				if last == 0 {
					break
				}
				require.GreaterOrEqual(t, len(jobs), limit)
				if newest {
					to = last
				} else {
					from = last + 1
				}
			}
			require.Equal(t, all, got, "limit %d", limit)
		}
	}
	jobs, last := x.Dead(func(domain.Consumer) bool { return false }, 0, math.MaxInt64, true, 5)
	require.Empty(t, jobs)
	require.Zero(t, last)
}
