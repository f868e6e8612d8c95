package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func assign(owners, members []string) []string {
	r := newRecord(len(owners))
	for n, o := range owners {
		r.Owners[n].ID = o
	}
	for _, m := range members {
		r.Members[m] = false
	}
	return r.targets()
}

// Shares differ by at most one, owners keep as many partitions as they may, and members reach the same result in any order.
func TestAssign(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		owners := make([]string, 1+rng.IntN(20))
		var members []string
		for m := range 1 + rng.IntN(6) {
			members = append(members, fmt.Sprint("m", m))
		}
		for n := range owners {
			if rng.IntN(3) > 0 {
				owners[n] = members[rng.IntN(len(members))]
			}
		}
		target := assign(owners, members)
		count, owned, kept := map[string]int{}, map[string]int{}, 0
		for n := range target {
			require.Contains(t, members, target[n])
			count[target[n]]++
			if owners[n] != "" {
				owned[owners[n]]++
			}
			if owners[n] == target[n] {
				kept++
			}
		}
		least, most := len(owners), 0
		for _, m := range members {
			least, most = min(least, count[m]), max(most, count[m])
		}
		require.LessOrEqual(t, most-least, 1)
		want := 0 // the partitions that owners can keep: each its share
		for _, m := range members {
			want += min(owned[m], count[m])
		}
		require.Equal(t, want, kept, "only what is too much moves: %q to %q", owners, target)

		// Owners release, and targets take, in any order.
		for range 10 * len(owners) {
			n := rng.IntN(len(owners))
			switch now := assign(owners, members); {
			case owners[n] == "":
				owners[n] = now[n]
			case owners[n] != now[n]:
				owners[n] = ""
			}
		}
		require.Equal(t, owners, assign(owners, members), "it comes to rest")
	}
	require.Equal(t, []string{"", ""}, assign([]string{"", ""}, nil))
}

func TestTransformAndOf(t *testing.T) {
	require.Equal(t, "orders.{{partition(64,1)}}.{{wildcard(1)}}", Transform(64, "orders.*").Destination)
	require.Equal(t, "a.{{partition(4,1)}}.{{wildcard(1)}}.b.{{wildcard(2)}}.>", Transform(4, "a.*.b.*.>").Destination)
	require.Equal(t, "plain", Transform(4, "plain").Destination)
	require.Zero(t, Of("k", 0))
	var seen []int
	for n := range 100 {
		p := Of(fmt.Sprint("key", n), 7)
		require.True(t, p >= 0 && p < 7)
		if !slices.Contains(seen, p) {
			seen = append(seen, p)
		}
	}
	require.Len(t, seen, 7)
}

func TestServersThatAreTooOldAreRefused(t *testing.T) {
	for version, want := range map[string]struct {
		resets bool
		text   string
	}{
		"2.10.29": {false, "server 2.10.29 has no pinned priority groups: use 2.11 or later"},
		"1.4.0":   {false, "server 1.4.0 has no"},
		"":        {false, "connect first"},
		"2.11.0":  {false, ""},
		"2.14.1":  {true, ""},
		"3.0.0":   {true, ""},
	} {
		resets, err := checkServer(version)
		require.Equal(t, want.resets, resets, version)
		if want.text == "" {
			require.NoError(t, err, version)
		} else {
			require.ErrorContains(t, err, want.text)
		}
	}
}
