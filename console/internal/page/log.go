package page

import (
	"context"
	"strconv"

	"github.com/jetpull/jetpull/console/internal/view"
)

// Log is the page of the actions, of which all returns the newest first.
func Log(all func() []view.Entry) Func {
	return func(_ context.Context, r Request) (*view.Page, error) {
		q := r.Query
		entries := all()
		var rows []view.Entry
		for _, e := range entries {
			if contains(q.Get("q"), e.Who, e.Action, e.Target, e.Outcome) && (q.Get("outcome") == "" || (q.Get("outcome") == "failed") == e.Failed) {
				rows = append(rows, e)
			}
		}
		shown, previous, next := slice(q, rows)
		list := &view.List{
			Found: view.Bounded(len(rows), false, "action"), Path: "log", Query: q, Previous: previous, Next: next,
			Empty: "This list shows who did what on this console since it was started. The process's log has each action too.",
			Columns: []view.Column{
				{Title: "Time"}, {Title: "Who"}, {Title: "Action"}, {Title: "Target"}, {Title: "Count", Number: true}, {Title: "Result"}, {Title: "Outcome"},
			},
		}
		if len(rows) == 0 && len(entries) > 0 {
			list.Empty = "None of the " + view.Count(uint64(len(entries)), "action") + " matches this filter."
		}
		for _, e := range shown {
			result := view.Word(view.Good, "done")
			if e.Failed {
				result = view.Word(view.Bad, "failed")
			}
			list.Rows = append(list.Rows, view.Row{ID: "a-" + strconv.Itoa(e.ID), Cells: []view.Value{
				view.Ago(e.Time, ""), view.Text(e.Who), view.Text(e.Action), view.Text(e.Target), view.Int(e.Count), result, view.Sentence(e.Outcome),
			}})
		}
		return &view.Page{
			Nav: "log", Title: "Log of actions",
			Filter: &view.Filter{Path: "log", Fields: []view.Field{
				{Name: "q", Label: "Search", Value: q.Get("q"), Type: "search", Placeholder: "who, action or target"},
				choice(q, "outcome", "Result", view.Option{Value: "", Text: "all"}, view.Option{Value: "done", Text: "done"}, view.Option{Value: "failed", Text: "failed"}),
			}},
			Parts: []view.Part{{ID: "log", List: list}},
		}, nil
	}
}
