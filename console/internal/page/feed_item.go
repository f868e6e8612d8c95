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
	tone, sentence := view.Plain, fmt.Sprintf("The item is %s at gate %d.", it.Status, it.Gate)
	part := view.Part{
		ID: "item", Source: view.Source{Name: feedName, Asked: r.Now},
		Facts: append(facts(it, itemColumns(partition)[1:5]), view.Fact{Name: "Version", Value: view.Number(uint64(max(0, it.Version)))},
			view.Fact{Name: "Size", Value: view.Bytes(uint64(len(it.Data)))}),
	}
	if it.Status == feed.Failed {
		tone, sentence = view.Bad, fmt.Sprintf("The item failed after %s, and holds gate %d.", view.Count(uint64(it.Attempt), "attempt"), it.Gate)
		one := func(name, label, confirm, text string, danger bool, do func(context.Context, string, ...string) (int, error)) view.Action {
			return view.Action{
				Name: name, Label: label, Target: partition + "/" + id, Confirm: confirm, Danger: danger,
				Do: act(feedRefused(partition), func(ctx context.Context, _ url.Values) (view.Outcome, error) {
					n, err := do(ctx, partition, id)
					return view.Outcome{Count: n, Text: text}, err
				}),
			}
		}
		part.Actions = []view.Action{
			one("retry", "Requeue", "", "The item is available again.", false, f.source.RetryFailed),
			one("skip", "Skip", "Count the item as complete without its work being done. This cannot be undone.", "The item counts as complete.", true,
				f.source.SkipFailed),
		}
	}
	if it.Status == feed.Available {
		part.Actions = f.waiting(partition, id)
	}
	part.Problem, part.ProblemTone = sentence, tone
	failures := &view.List{
		Found: view.Bounded(len(it.Errors), false, "failed attempt"), Path: "item", Empty: "No attempt of this step has failed.",
		Columns: view.Columns{}.Numbers("Attempt").Wide("Error"),
	}
	for i, text := range it.Errors {
		failures.Add("e-"+strconv.Itoa(i), view.Int(max(1, it.Attempt-len(it.Errors)+1+i)), view.Sentence(text))
	}
	part.List = failures
	page := &view.Page{Nav: "feed", Title: id, Crumbs: []view.Link{
		{Text: "Feed", Href: "feed"},
		{Text: partition, Href: link("partition", "id", partition)},
	}, Parts: []view.Part{part}}
	// The history ends with the attempts of this step.
	if history := it.History(); len(history) > len(it.Errors) {
		page.Parts = append(page.Parts, earlierPart(history[:len(history)-len(it.Errors)]))
	}
	page.Parts = append(page.Parts, view.Part{ID: "payload", Texts: []view.Block{payloadBlock(it.Data, r, "item", "partition", partition, "id", id)}})
	return page, nil
}

// earlierPart has the failed attempts before the last retry and of earlier steps, newest first.
func earlierPart(attempts []feed.Attempt) view.Part {
	list := &view.List{
		Found: view.Bounded(len(attempts), false, "failed attempt"), Path: "item",
		Columns: view.Columns{}.Numbers("When", "Gate", "Attempt").Wide("Error"),
	}
	for i, a := range slices.Backward(attempts) {
		list.Add("h-"+strconv.Itoa(i),
			view.Ago(a.At, "not stated"), view.Value{Text: strconv.Itoa(a.Gate)}, view.Int(a.Attempt), view.Sentence(a.Error))
	}
	return view.Part{ID: "earlier", Title: "Before a requeue or at an earlier step", List: list}
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
		Empty: "No watcher reports an item. A watcher reports what runs three times in the length of its lease.",
		Columns: []view.Column{
			{Title: "Item"},
			{Title: "Partition"},
			{Title: "Gate", Number: true},
			{Title: "Attempt", Number: true},
			{Title: "Since", Help: "When the attempt began"},
			{Title: "Host"},
			{Title: "Process", Number: true},
		},
	}
	for i, one := range all[:min(len(all), pageSize)] {
		part.List.Add("r-"+strconv.Itoa(i)+"-"+one.Item,
			view.Linked(one.Item, link("item", "partition", one.Partition, "id", one.Item)),
			view.Linked(one.Partition, link("partition", "id", one.Partition)),
			view.Value{Text: strconv.Itoa(one.Gate)},
			view.Int(one.Attempt),
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
