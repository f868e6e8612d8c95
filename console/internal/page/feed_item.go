package page

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/feed"
)

func (f *Feed) item(ctx context.Context, r Request) (*view.Page, error) {
	partition, id := r.Query.Get("partition"), r.Query.Get("id")
	it, err := f.source.Item(ctx, partition, id)
	if err != nil {
		return nil, feedError(err, fmt.Sprintf("item %q in a partition %q", id, partition))
	}
	if r.Query.Has("download") {
		return download(r, id, it.Data)
	}
	part := view.Part{
		ID: "item", Source: view.Source{Name: feedName, Asked: r.Now}, Problem: fmt.Sprintf("The item is %s at gate %d.", it.Status, it.Gate),
		List: attempts(it),
		Facts: append(facts(it, itemColumns(partition)[1:5]), view.Fact{Name: "Version", Value: view.Number(uint64(max(0, it.Version)))},
			view.Fact{Name: "Size", Value: view.Bytes(uint64(len(it.Data)))}),
	}
	switch target := partition + "/" + id; it.Status {
	case feed.Failed:
		part.ProblemTone = view.Bad
		part.Problem = fmt.Sprintf("The item failed after %s, and holds gate %d.", view.Count(uint64(it.Attempt), "attempt"), it.Gate)
		part.Actions = []view.Action{
			{Name: "retry", Label: "Requeue", Target: target, Do: failures("available again", partition, f.source.RetryFailed, id)},
			{
				Name: "skip", Label: "Skip", Target: target, Danger: true,
				Confirm: "Count the item as complete without its work being done. This cannot be undone.",
				Do:      failures("counted as complete", partition, f.source.SkipFailed, id),
			},
		}
	case feed.Available:
		part.Actions = f.waiting(partition, id)
	}
	return &view.Page{
		Nav: "feed", Title: id, Crumbs: []view.Link{{Text: "Feed", Href: "feed"}, {Text: partition, Href: link("partition", "id", partition)}},
		Parts: []view.Part{
			part, {ID: "payload", Texts: []view.Block{payloadBlock(it.Data, r, "item", "partition", partition, "id", id)}},
		},
	}, nil
}

// attempts lists the failed attempts of an item, newest first. Those of its present step are the last.
func attempts(it feed.Item) *view.List {
	all := it.History()
	if len(all) < len(it.Errors) {
		all = nil
		for i, text := range it.Errors {
			all = append(all, feed.Attempt{Gate: it.Gate, Attempt: max(1, it.Attempt-len(it.Errors)+1+i), Error: text})
		}
	}
	list := &view.List{
		Found: view.Bounded(len(all), false, "failed attempt"), Path: "item", Empty: "No attempt has failed.",
		Columns: view.Columns{}.Numbers("When", "Gate", "Attempt").Texts("Step").Wide("Error"),
	}
	for i, a := range slices.Backward(all) {
		step := view.Text("this one")
		if i < len(all)-len(it.Errors) {
			step = view.Word(view.Muted, "before a requeue, or an earlier one")
		}
		list.Add("h-"+strconv.Itoa(i),
			view.Ago(a.At, "not stated"), view.Value{Text: strconv.Itoa(a.Gate)}, view.Int(a.Attempt), step, view.Sentence(a.Error))
	}
	return list
}

// running are the attempts that watchers report.
func (f *Feed) running(ctx context.Context, r Request) view.Part {
	all, err := f.source.Running(ctx)
	part := view.Part{ID: "running", Title: "Running items", Source: reading(feedName, r, err)}
	if err != nil {
		return part
	}
	part.List = &view.List{
		Found: view.Bounded(min(len(all), pageSize), len(all) > pageSize, "item"), Path: "feed", Query: r.Query,
		Empty:   "No watcher reports an item. A watcher reports what runs three times in the length of its lease.",
		Columns: view.Texts("Item", "Partition").Numbers("Gate", "Attempt").Texts("Since", "Host").Numbers("Process"),
	}
	for i, one := range all[:min(len(all), pageSize)] {
		part.List.Add("r-"+strconv.Itoa(i)+"-"+one.Item,
			view.Linked(one.Item, link("item", "partition", one.Partition, "id", one.Item)),
			view.Linked(one.Partition, link("partition", "id", one.Partition)), view.Value{Text: strconv.Itoa(one.Gate)}, view.Int(one.Attempt),
			view.Ago(one.Since, "not stated"), view.Text(one.Host), view.Int(one.PID))
	}
	return part
}

// waiting are the actions on an item that is Available.
func (f *Feed) waiting(partition, id string) []view.Action {
	target := partition + "/" + id
	return []view.Action{
		{
			Name: "cancel", Label: "Cancel the attempt", Target: target, Danger: true,
			Confirm: "Cancel the attempt that a watcher makes at this item, if it is on the list of running items. The attempt then counts as failed, and " +
				"the item is retried.",
			Do: act(feedRefused(partition), func(ctx context.Context, _ url.Values) (view.Outcome, error) {
				within, err := f.source.Cancel(ctx, partition, id)
				return done("The watcher ends the attempt within " + view.Span(within) + "."), err
			}),
		},
		{
			Name: "delete", Label: "Delete", Target: target, Danger: true,
			Confirm: "Delete this item. Nobody processes it any more. An item that a watcher may have read is not deleted. This cannot be undone.",
			Do: act(feedRefused(partition), func(ctx context.Context, _ url.Values) (view.Outcome, error) {
				return view.Outcome{Count: 1, Text: "The item is deleted.", Then: link("partition", "id", partition)},
					f.source.Delete(ctx, partition, id)
			}),
		},
	}
}
