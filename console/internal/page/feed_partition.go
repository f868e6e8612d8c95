package page

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/feed"
)

// maxCounted is how many items of each status the page of a partition counts.
const maxCounted = 10_000

// counted is a number of items that stopped at maxCounted.
func counted(n int) view.Value {
	v := view.Int(n)
	if n == maxCounted {
		v.Text, v.Title = v.Text+"+", "The console counts no more"
	}
	return v
}

func (f *Feed) one(ctx context.Context, r Request) (*view.Page, error) {
	q := r.Query
	id := q.Get("id")
	p, err := f.source.Partition(ctx, id)
	if err != nil {
		return nil, feedError(err, fmt.Sprintf("partition %q", id))
	}
	counts, more, err := f.source.CountsUpTo(ctx, id, maxCounted)
	if err != nil {
		return nil, feedError(err, fmt.Sprintf("partition %q", id))
	}
	failed, available := 0, 0
	gates := &view.List{
		Found: view.Bounded(len(counts), false, "gate"), Path: "partition", Empty: "The partition has no items.",
		Columns: view.Columns{}.Numbers("Gate").Texts("Progress").Numbers("Done", "Waiting", "Failed"),
	}
	for _, gate := range slices.Sorted(maps.Keys(counts)) {
		c := counts[gate]
		failed, available = failed+c.Failed, available+c.Available
		number := view.Text(strconv.Itoa(gate))
		if gate == p.Gate {
			number = view.Word(view.Good, strconv.Itoa(gate)+" (here)")
		}
		gates.Add("g-"+strconv.Itoa(gate),
			number,
			view.Value{Bar: view.NewBar(c.Complete, c.Available, c.Failed)},
			view.Int(c.Complete), counted(c.Available),
			quietZero(counted(c.Failed), c.Failed > 0, view.Bad))
		if more {
			row := gates.Rows[len(gates.Rows)-1].Cells
			row[1], row[2] = view.None("Not counted"), view.None("Not counted")
		}
	}
	if more {
		gates.Found = fmt.Sprintf("%s. The partition has more than %s: of each status, those of the lowest gates are counted.", gates.Found,
			view.Count(maxCounted, "item"))
	}
	now := state.Feed{Known: true, Failed: failed, Blocked: 1, Ready: available}
	if p.Owner != "" && p.Until.Before(r.Now) && available > 0 {
		now.Ended = 1
	}
	st := now.Of()
	if p.Status == feed.Complete {
		st = state.State{Level: state.Green, Sentence: "Complete: the partition is closed."}
	}
	query := feed.Query{Partition: id, Status: feed.Status(q.Get("status")), After: q.Get("after"), Limit: pageSize + 1}
	title := "Items"
	if more && (query.Status == "" || query.Status == feed.Available) {
		// No other items of a vast partition can be listed in a short time, except the failed ones.
		query.Status, query.Gate, title = feed.Available, &p.Gate, "Items that wait at the gate"
	}
	items := f.items(ctx, r, title, query)
	return &view.Page{
		Nav: "feed", Title: id, Crumbs: []view.Link{{Text: "Feed", Href: "feed"}},
		Filter: &view.Filter{Path: "partition", Fields: []view.Field{
			{Name: "id", Value: id, Hidden: true},
			choice(q, "status", "Items", options("", "all", "Failed", "failed", "Available", "available", "Complete", "complete")),
		}},
		Parts: []view.Part{
			{
				ID: "partition", Source: view.Source{Name: feedName, Asked: r.Now}, Problem: st.Sentence, ProblemTone: st.Level.Tone(),
				Actions: f.actions(p, failed), List: gates,
				Facts: append(facts(p, partitionColumns(r.Now)[1:]), view.Fact{Name: "Epoch", Value: view.Number(uint64(max(0, p.Epoch)))}),
			},
			items,
		},
	}, nil
}

// itemsPatience is how long the page of a partition waits for its items, which take longer the more it has.
const itemsPatience = time.Second

func (f *Feed) items(ctx context.Context, r Request, title string, query feed.Query) view.Part {
	q := r.Query
	ctx, cancel := context.WithTimeout(ctx, itemsPatience)
	defer cancel()
	found, err := f.source.Items(ctx, query)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("the partition has too many items to list these in %s; choose the failed ones, or use jetpull feed ls: %w",
			view.Span(itemsPatience), ctx.Err())
	}
	part := view.Part{ID: "items", Title: title, Source: reading(feedName, r, err)}
	if err != nil {
		return part
	}
	list := &view.List{
		Path: "partition", Query: q, Found: view.Bounded(min(len(found), pageSize), len(found) > pageSize, "item"), Empty: "No item matches.",
	}
	if len(found) > pageSize {
		found = found[:pageSize]
		list.Next = with(q, "after", found[pageSize-1].ID)
	}
	show(list, itemColumns(query.Partition), found, func(it feed.Item) string { return "i-" + it.ID })
	part.List = list
	return part
}

// itemColumns are those of a list of items. The page of an item has the values from the second on.
func itemColumns(partition string) []column[feed.Item] {
	return []column[feed.Item]{
		text("Item", func(it feed.Item) view.Value {
			return view.Linked(it.ID, link("item", "partition", partition, "id", it.ID))
		}),
		text("Status", func(it feed.Item) view.Value { return feedStatus(it.Status) }),
		number("Gate", func(it feed.Item) view.Value { return view.Value{Text: strconv.Itoa(it.Gate)} }),
		number("Attempt", func(it feed.Item) view.Value { return view.Int(it.Attempt) }),
		number("Not before", func(it feed.Item) view.Value { return view.Ago(it.NotBefore, "At once") }),
		text("Last error", func(it feed.Item) view.Value {
			if len(it.Errors) == 0 {
				return view.Value{}
			}
			return view.Sentence(it.Errors[len(it.Errors)-1])
		}).wide(),
	}
}

// feedRefused is why an action on a feed failed. Only the feed's own errors state that nothing was changed: a database that does not confirm may have
// committed.
func feedRefused(partition string) func(error) error {
	refusals := []error{feed.ErrNotFound, feed.ErrClosed, feed.ErrGatePassed, feed.ErrDuplicate, feed.ErrNotDone, feed.ErrConflict, feed.ErrInvalid}
	return func(err error) error {
		if slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }) {
			return &Problem{
				Status: http.StatusConflict, Text: "The feed refused this, and nothing was changed", Err: err,
				Fix: "The reason is the feed's. Correct it and try again.",
			}
		}
		return unavailable(err, "Look at the state of partition "+strconv.Quote(partition)+" on its page before you try again.",
			"The database did not confirm this, so whether it was changed is not known")
	}
}

func (f *Feed) actions(p feed.Partition, failed int) []view.Action {
	refused := feedRefused(p.ID)
	plain := func(text string, do func(context.Context, string) error) view.Do {
		return act(refused, func(ctx context.Context, _ url.Values) (view.Outcome, error) { return done(text), do(ctx, p.ID) })
	}
	failures := func(now string, do func(context.Context, string, ...string) (int, error)) view.Do {
		return act(refused, func(ctx context.Context, _ url.Values) (view.Outcome, error) {
			n, err := do(ctx, p.ID)
			return view.Outcome{Count: n, Text: view.CountIs(uint64(n), "item") + " " + now + "."}, err
		})
	}
	var all []view.Action
	if failed > 0 {
		all = append(all,
			view.Action{
				Name: "retry", Label: "Requeue all failed", Target: p.ID, Confirm: fmt.Sprintf("Requeue %s of partition %s, with no attempts counted.",
					view.Count(uint64(failed), "failed item"), p.ID),
				Do: failures("available again", f.source.RetryFailed),
			},
			view.Action{
				Name: "skip", Label: "Skip all failed", Target: p.ID, Danger: true,
				Confirm: fmt.Sprintf("Count %s of partition %s as complete without its work being done, so that the gate opens. This cannot be undone.",
					view.Count(uint64(failed), "failed item"), p.ID),
				Do: failures("counted as complete", f.source.SkipFailed),
			})
	}
	if p.Status != feed.Available {
		all = append(all, view.Action{
			Name: "reopen", Label: "Reopen", Target: p.ID,
			Do: plain("Reopened. The partition takes items again.", f.source.Reopen),
		})
	}
	if p.Status == feed.Complete {
		return all
	}
	if !p.Sealed {
		all = append(all, view.Action{
			Name: "seal", Label: "Seal", Target: p.ID,
			Confirm: "Seal partition " + p.ID + ". No more items can be added, until it is reopened.",
			Do:      plain("Sealed. No more items will come.", f.source.Seal),
		})
	}
	return append(all,
		view.Action{
			Name: "advance", Label: "Advance", Target: p.ID,
			Confirm: "Advance partition " + p.ID + " to a gate. The feed refuses this while an item below it is not complete. It cannot be undone.",
			Fields:  []view.Field{{Name: "gate", Label: "To gate", Value: strconv.Itoa(p.Gate + 1), Type: "number", Required: true}},
			Do: act(refused, func(ctx context.Context, form url.Values) (view.Outcome, error) {
				gate, err := parseGate(form.Get("gate"))
				if err != nil {
					return view.Outcome{}, err
				}
				return done(fmt.Sprintf("Advanced to gate %d.", gate)), f.source.Advance(ctx, p.ID, gate)
			}),
		},
		view.Action{
			Name: "close", Label: "Close", Target: p.ID, Confirm: "Close partition " + p.ID + ". The feed refuses this while an item is not complete.",
			Do: plain("Closed.", f.source.ClosePartition),
		})
}

func parseGate(text string) (int, error) {
	gate, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 0, invalid("Give a whole number.", "%q is no gate.", text)
	}
	return gate, nil
}

// failedOnly reports whether an action is for partitions that failures hold.
func failedOnly(action string) bool { return action == "retry" || action == "skip" }
