package partition

import (
	"cmp"
	"slices"
)

// assign returns the member of each partition. owners has the present owner of each partition, or "" where it has none or its
// owner is not among the members. Counts differ by at most one, and a partition moves only where its owner has too many. All
// members compute the same result from the same owners and members.
func assign(owners, members []string) []string {
	target := make([]string, len(owners))
	if len(members) == 0 {
		return target
	}
	owned := make(map[string]int, len(members))
	for _, o := range owners {
		owned[o]++
	}
	// Members that own the most get the larger shares, so that the fewest partitions move.
	order := slices.Clone(members)
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Or(cmp.Compare(owned[b], owned[a]), cmp.Compare(a, b))
	})
	free := make(map[string]int, len(members))
	for i, m := range order {
		free[m] = len(owners) / len(order)
		if i < len(owners)%len(order) {
			free[m]++
		}
	}
	for n, o := range owners {
		if free[o] > 0 {
			target[n] = o
			free[o]--
		}
	}
	slices.Sort(order)
	for n := range target {
		if target[n] != "" {
			continue
		}
		for free[order[0]] == 0 {
			order = order[1:]
		}
		target[n] = order[0]
		free[order[0]]--
	}
	return target
}
