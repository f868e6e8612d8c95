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
		Facts: []view.Fact{
			{Name: "Status", Value: feedStatus(it.Status)},
			{Name: "Gate", Value: view.Value{Text: strconv.Itoa(it.Gate)}},
			{Name: "Attempt", Value: view.Int(it.Attempt)},
			{Name: "Not before", Value: view.Ago(it.NotBefore, "At once")},
			{Name: "Version", Value: view.Number(uint64(max(0, it.Version)))},
			{Name: "Size", Value: view.Bytes(uint64(len(it.Data)))},
		},
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
