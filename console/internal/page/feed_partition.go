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

// maxCounted is the maximum number of items per status that the page of a partition counts.
const maxCounted = 10_000

// counted returns a number of items whose count stops at maxCounted.
func counted(n int) view.Value {
	v := view.Int(n)
	if n == maxCounted {
		v.Text, v.Title = v.Text+"+", "The console counts no more"
	}
	return v
}

func (f *Feed) one(ctx context.Context, r Request) (*view.Page, error) {
	q, id := r.Query, r.Query.Get("id")
	counts, more, err := f.source.CountsUpTo(ctx, id, maxCounted)
	var p feed.Partition
	if err == nil {
		p, err = f.source.Partition(ctx, id)
	}
	if err != nil {
		return nil, notShown(feedName, err, "The list of partitions shows all that there are.", "partition %q", id)
	}
	gates := &view.List{
		Found: view.Bounded(len(counts), false, "gate"), Path: "partition", Empty: "The partition has no items.",
		Columns: view.Columns(">Gate", "Progress", ">Done", ">Waiting", ">Failed"),
	}
	if more {
		gates.Found = fmt.Sprintf("%s. The partition has more than %s: of each status, those of the lowest gates are counted.", gates.Found,
			view.Count(maxCounted, "item"))
	}
	now := state.Feed{Known: true, Blocked: 1}
	for _, gate := range slices.Sorted(maps.Keys(counts)) {
		c, number := counts[gate], view.Text(strconv.Itoa(gate))
		now.Failed, now.Ready = now.Failed+c.Failed, now.Ready+c.Available
		if gate == p.Gate {
			number = view.Word(view.Good, strconv.Itoa(gate)+" (here)")
		}
		bar, complete := view.Value{Bar: view.NewBar(c.Complete, c.Available, c.Failed)}, view.Int(c.Complete)
		if more {
			bar, complete = view.None("Not counted"), view.None("Not counted")
		}
		gates.Add("g-"+strconv.Itoa(gate), number, bar, complete, counted(c.Available), quietZero(counted(c.Failed), c.Failed > 0, view.Bad))
	}
	if p.Owner != "" && p.Until.Before(r.Now) && now.Ready > 0 {
		now.Ended = 1
	}
	st := now.Of()
	query := feed.Query{Partition: id, Status: feed.Status(q.Get("status")), After: q.Get("after"), Limit: pageSize + 1}
	title := "Items"
	if more && (query.Status == "" || query.Status == feed.Available) {
		// In a vast partition, only these items and the failed ones can be listed quickly.
		query.Status, query.Gate, title = feed.Available, &p.Gate, "Items that wait at the gate"
	}
	return &view.Page{
		Nav: "feed", Title: id, Crumbs: []view.Link{{Text: "Feed", Href: "feed"}},
		Filter: []view.Field{hidden(q, "id"), choice(q, "status", "Items", feedStates)},
		Parts: []view.Part{
			{
				ID: "partition", Source: view.Source{Name: feedName, Asked: r.Now}, Problem: st.Sentence, ProblemTone: st.Level.Tone(),
				Actions: f.actions(p, now.Failed), List: gates,
				Facts: append(facts(p, partitionColumns(r.Now)[1:]), view.Fact{Name: "Epoch", Value: view.Number(uint64(max(0, p.Epoch)))}),
			},
			f.items(ctx, r, title, query),
		},
	}, nil
}

// itemsPatience is how long the page of a partition waits for its items. The more it has, the longer they take.
const itemsPatience = time.Second

func (f *Feed) items(ctx context.Context, r Request, title string, query feed.Query) view.Part {
	ctx, cancel := context.WithTimeout(ctx, itemsPatience)
	defer cancel()
	found, err := f.source.Items(ctx, query)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("the partition has too many items to list these in %s; choose the failed ones, or use jetpull feed ls: %w",
			view.Span(itemsPatience), ctx.Err())
	}
	part := view.Part{ID: "items", Title: title, Source: reading(feedName, r, err)}
	if err == nil {
		part.List = &view.List{Path: "partition", Query: r.Query, Empty: "No item matches."}
		next := func(last feed.Item) url.Values { return with(r.Query, "after", last.ID) }
		firstPage(part.List, found, "item", func(it feed.Item) string { return "i-" + it.ID }, next, itemColumns(query.Partition))
	}
	return part
}

// itemColumns returns the columns of a list of items. The page of an item shows the values from the second on.
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

// feedRefused returns why an action on a feed failed. Only the feed's own errors mean that nothing was changed. A database that does not confirm may
// have committed.
func feedRefused(err error) error {
	refusals := []error{feed.ErrNotFound, feed.ErrClosed, feed.ErrGatePassed, feed.ErrDuplicate, feed.ErrNotDone, feed.ErrConflict, feed.ErrInvalid}
	if slices.ContainsFunc(refusals, func(refusal error) bool { return errors.Is(err, refusal) }) {
		return &Problem{
			Status: http.StatusConflict, Text: "The feed refused this, and nothing was changed", Err: err,
			Fix: "The reason is the feed's. Correct it and try again.",
		}
	}
	return unavailable(err, "Look at the state of the partition before you try again.",
		"The database did not confirm this, so whether it was changed is not known")
}

// failures returns a Do for failed items: all of a partition, or those with the given IDs.
func failures(now, partition string, do func(context.Context, string, ...string) (int, error), items ...string) view.Do {
	return act(feedRefused, func(ctx context.Context, _ url.Values) (view.Outcome, error) {
		n, err := do(ctx, partition, items...)
		return view.Outcome{Count: n, Text: view.CountIs(uint64(n), "item") + " " + now + "."}, err
	})
}

// actions returns the actions for a partition with that number of failed items.
func (f *Feed) actions(p feed.Partition, failed int) (all []view.Action) {
	add := func(possible bool, name, label, confirm string, do view.Do, fields ...view.Field) {
		if possible {
			a := view.Action{Name: name, Label: label, Target: p.ID, Danger: name == "skip", Confirm: confirm, Fields: fields}
			a.Do = act(feedRefused, do)
			all = append(all, a)
		}
	}
	set := func(text string, do func(context.Context, string) error) view.Do {
		return func(ctx context.Context, _ url.Values) (view.Outcome, error) { return done(text), do(ctx, p.ID) }
	}
	advance := func(ctx context.Context, form url.Values) (view.Outcome, error) {
		gate, err := parseGate(form.Get("gate"))
		if err != nil {
			return view.Outcome{}, err
		}
		return done(fmt.Sprintf("Advanced to gate %d.", gate)), f.source.Advance(ctx, p.ID, gate)
	}
	items, open := view.Count(uint64(failed), "failed item")+" of partition "+p.ID, p.Status != feed.Complete
	add(failed > 0, "retry", "Requeue all failed", "Requeue "+items+". Attempts are counted from zero again.",
		failures("available again", p.ID, f.source.RetryFailed))
	add(failed > 0, "skip", "Skip all failed", "Count "+items+" as complete though the work is not done, so that the gate opens. This cannot be undone.",
		failures("counted as complete", p.ID, f.source.SkipFailed))
	add(p.Status != feed.Available, "reopen", "Reopen", "", set("Reopened. The partition takes items again.", f.source.Reopen))
	add(open && !p.Sealed, "seal", "Seal", "Seal partition "+p.ID+". No more items can be added, until it is reopened.",
		set("Sealed. No more items will come.", f.source.Seal))
	add(open, "advance", "Advance",
		"Advance partition "+p.ID+" to a gate. The feed refuses this while an item below it is not complete. It cannot be undone.", advance,
		view.Field{Name: "gate", Label: "To gate", Value: strconv.Itoa(p.Gate + 1), Type: "number", Required: true})
	add(open, "close", "Close", "Close partition "+p.ID+". The feed refuses this while an item is not complete.",
		set("Closed.", f.source.ClosePartition))
	return all
}

func parseGate(text string) (int, error) {
	gate, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return 0, invalid("Give a whole number.", "%q is no gate.", text)
	}
	return gate, nil
}

func (f *Feed) item(ctx context.Context, r Request) (*view.Page, error) {
	partition, id := r.Query.Get("partition"), r.Query.Get("id")
	it, err := f.source.Item(ctx, partition, id)
	if err != nil {
		return nil, notShown(feedName, err, "The page of its partition shows all that there are.", "item %q in a partition %q", id, partition)
	}
	if r.Query.Has("download") {
		return download(r, id, it.Data)
	}
	part := view.Part{
		ID: "item", Source: view.Source{Name: feedName, Asked: r.Now}, Problem: inSentence("item", it),
		List: attempts(it),
		Facts: append(facts(it, itemColumns(partition)[1:5]), view.Fact{Name: "Version", Value: view.Number(uint64(max(0, it.Version)))},
			view.Fact{Name: "Size", Value: view.Bytes(uint64(len(it.Data)))}),
	}
	if target := partition + "/" + id; it.Status == feed.Failed {
		part.ProblemTone = view.Bad
		part.Actions = []view.Action{
			{Name: "retry", Label: "Requeue", Target: target, Do: failures("available again", partition, f.source.RetryFailed, id)},
			{
				Name: "skip", Label: "Skip", Target: target, Danger: true,
				Confirm: "Count the item as complete though its work is not done. This cannot be undone.",
				Do:      failures("counted as complete", partition, f.source.SkipFailed, id),
			},
		}
	}
	return &view.Page{
		Nav: "feed", Title: id, Crumbs: []view.Link{{Text: "Feed", Href: "feed"}, {Text: partition, Href: link("partition", "id", partition)}},
		Parts: []view.Part{
			part, {ID: "payload", Texts: []view.Block{payloadBlock(it.Data, r, "item", "partition", partition, "id", id)}},
		},
	}, nil
}

// attempts lists the failed attempts of an item, newest first. Those of its current step are the last.
func attempts(it feed.Item) *view.List {
	all := it.History()
	list := &view.List{
		Found: view.Bounded(len(all), false, "failed attempt"), Path: "item", Empty: "No attempt has failed.",
		Columns: view.Columns(">When", ">Gate", ">Attempt", "Step", "*Error"),
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
