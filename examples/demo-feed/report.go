package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/service/progress"
)

// report prints the results. It returns an error if a ranking is wrong, or if more attempts were repeated than the killed watcher
// can have begun.
func (d *demo) report(ctx context.Context, out io.Writer) error {
	var page strings.Builder
	rows := make([][]string, len(cities))
	var wrong error
	for i, city := range cities {
		list, retried, err := d.ranked(ctx, i)
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %w", city, err))
			continue
		}
		gate, done := d.reached(func(l look) bool { return l.gate[i] >= ranking }), d.reached(func(l look) bool { return l.status[i] == feed.Complete })
		rows[i] = []string{
			city, progress.Count(d.of(i)), progress.Count(retried), progress.Short(gate), progress.Short(done),
			fmt.Sprintf("%s (%d)", list[0].Name, list[0].Score), fmt.Sprintf("%s (%d)", list[len(list)-1].Name, list[len(list)-1].Score),
		}
	}
	if wrong != nil {
		return wrong
	}
	fmt.Fprintln(&page)
	header := []string{"partition", ">résumés", ">retried", ">gate passed at", ">ranked at", "first of ten", "last of ten"}
	if err := progress.Table(&page, header, rows); err != nil {
		return err
	}
	fmt.Fprintln(&page)
	if err := d.proof(&page); err != nil {
		return err
	}
	_, err := io.WriteString(out, page.String())
	return err
}

// ranked returns the ranking of a city, and the number of failed attempts. It checks the ranking against one that it computes in a loop.
func (d *demo) ranked(ctx context.Context, city int) (list []resume, retried int, err error) {
	it, err := d.store.Item(ctx, cities[city], "ranking")
	if err != nil {
		return nil, 0, err
	}
	if err := json.Unmarshal(it.Data, &list); err != nil {
		return nil, 0, err
	}
	items := draw(city, d.of(city))
	for i := range items {
		items[i].Attempt = 1
		if busy(items[i]) {
			items[i].Attempt = 2
			retried++
		}
		r, err := classify(items[i])
		if err != nil {
			return nil, 0, err
		}
		if items[i].Data, err = json.Marshal(r); err != nil {
			return nil, 0, err
		}
		items[i].Status = feed.Complete
	}
	want, err := rank(items)
	if err != nil {
		return nil, 0, err
	}
	if !slices.Equal(list, want) {
		return nil, 0, fmt.Errorf("the ranking is %v and should be %v", list, want)
	}
	return list, retried, nil
}

// reached returns the time of the first look at which a condition held, or 0.
func (d *demo) reached(condition func(look) bool) time.Duration {
	for _, l := range d.looks {
		if condition(l) {
			return l.at
		}
	}
	return 0
}

// proof compares the calls that the watchers reported with the expected calls.
func (d *demo) proof(out io.Writer) error {
	times := map[call]int{}
	byWatcher := map[string]int{}
	for _, c := range d.calls {
		byWatcher[c.Watcher]++
		c.Watcher = ""
		times[c]++
	}
	must, repeated := 0, 0
	for i, city := range cities {
		for _, it := range append(draw(i, d.of(i)), feed.Item{ID: "ranking", Gate: ranking}) {
			it.Attempt = 1
			attempts := 1
			if it.Gate == classifying && busy(it) {
				attempts = 2
			}
			for attempt := range attempts {
				n := times[call{Partition: city, Item: it.ID, Gate: it.Gate, Attempt: attempt + 1}]
				if n == 0 {
					return fmt.Errorf("attempt %d of %s/%s was not made", attempt+1, city, it.ID)
				}
				must, repeated = must+1, repeated+n-1
			}
		}
	}
	if len(d.calls) != must+repeated {
		return fmt.Errorf("%d attempts, of which %d were not to be made", len(d.calls), len(d.calls)-must-repeated)
	}
	if repeated > concurrency {
		return fmt.Errorf("%d attempts were repeated; the killed watcher had begun %d at most", repeated, concurrency)
	}
	_, err := fmt.Fprintf(out, "%d attempts: %d by watcher A, which was killed after %s, %d by B. %d items were attempted twice, because A had "+
		"begun them when it was killed.\n",
		len(d.calls), byWatcher["A"], progress.Short(d.killed), byWatcher["B"], repeated)
	return err
}
