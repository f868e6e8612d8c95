package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/view"
)

// grouped are the reasons that at least some failures have, the most frequent first. Fact makes one of a reason, which leads to its failures, and
// gets their number; more: there may be others.
func grouped(counts map[string]int, least int, more bool, fact func(reason string) view.Fact) (all []view.Fact) {
	const most = 8
	for _, reason := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	}) {
		if len(all) == most || reason == "" || counts[reason] < least {
			continue
		}
		one := fact(reason)
		n := view.Int(counts[reason])
		n.Href = one.Value.Href
		if one.Value = n; more {
			one.Value.Text += "+"
		}
		all = append(all, one)
	}
	return all
}

// tally is how many of the newest failures of a list have each reason.
type tally struct {
	counts map[string]int
	more   bool // the list has others
	begun  time.Time
	took   time.Duration
}

// tally counts the failures of a system that its filter selects. It is the last count while a new one costs too much, or if the system does not
// answer.
func (f *Failures) tally(ctx context.Context, s *failureList, filter map[string]string) tally {
	const pages, most = 10, 100
	key := fmt.Sprint(s.name, filter)
	f.mu.Lock()
	last := f.tallies[key]
	f.mu.Unlock()
	if time.Since(last.begun) < recountAfter*last.took {
		return last
	}
	filter, cursor := maps.Clone(filter), ""
	filter["limit"] = "100"
	now := tally{counts: map[string]int{}, more: true, begun: time.Now()}
	for i := 0; i < pages && now.more; i++ {
		found, next, err := s.list(ctx, filter, cursor)
		if err != nil {
			return last
		}
		for _, one := range found {
			now.counts[one.reason]++
		}
		cursor, now.more = next, next != ""
	}
	now.took = time.Since(now.begun)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.tallies) >= most {
		clear(f.tallies)
	}
	f.tallies[key] = now
	return now
}
