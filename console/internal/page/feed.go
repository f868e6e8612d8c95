package page

import (
	"cmp"
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

	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/feed"
)

// FeedWatcher counts the items that a watcher of this process has completed. A [feed.Watcher] is one.
type FeedWatcher interface{ Stats() feed.Stats }

// Feed are the pages of a feed.
type Feed struct {
	open    func(context.Context) (FeedSource, error)
	opening chan struct{} // has an element while a page or a sample opens the feed or sees that it is open
	source  FeedSource    // used after ready alone
	watcher FeedWatcher   // nil: none is in this process
	runner  *Runner
	latest  *sample.Latest[feed.Backlog]
	all     *objects[feed.Partition]
	history *sample.History
}

// The values of the feed's history.
const (
	histReady = iota
	histFailed
	histCompleted
	feedWidth
)

const feedName = "feed"

// NewFeed makes the pages, and has the sampler ask the feed, which open opens. The runner runs operations on many partitions. A nil watcher is
// none.
func NewFeed(s *sample.Sampler, open func(context.Context) (FeedSource, error), watcher FeedWatcher, runner *Runner) *Feed {
	f := &Feed{open: open, opening: make(chan struct{}, 1), watcher: watcher, runner: runner, history: sample.NewHistory(feedWidth)}
	f.all = f.allPartitions()
	var completed meter
	f.latest = sample.Add(s, func(ctx context.Context) (b feed.Backlog, err error) {
		if err = f.ready(ctx); err == nil {
			b, err = f.source.Backlog(ctx)
		}
		now := time.Now()
		if watcher != nil {
			completed = completed.next(now, uint64(watcher.Stats().Completed))
		}
		if err == nil {
			f.history.Put(now, total, float64(b.Ready), float64(b.Failed), completed.rate)
		}
		return b, err
	})
	return f
}

// Pages are the functions of the pages by their paths.
func (f *Feed) Pages() map[string]Func {
	return map[string]Func{"feed": f.list, "partition": f.opened(f.one), "item": f.opened(f.item)}
}

func feedState(b feed.Backlog) state {
	switch {
	case b.BlockedPartitions > 0:
		return state{"blocked", view.Bad, fmt.Sprintf("%s held by %s, until somebody retries or skips them.", countIs(uint64(b.BlockedPartitions), "partition"), view.Count(uint64(b.Failed), "failed item"))}
	case b.Ready > 0 && b.Oldest > time.Minute:
		return state{"slow", view.Warn, fmt.Sprintf("%s ready, the oldest for %s.", countIs(uint64(b.Ready), "item"), view.Span(b.Oldest))}
	case b.Ready > 0:
		return state{"working", view.Good, countIs(uint64(b.Ready), "item") + " ready."}
	}
	return state{"idle", view.Plain, "No item is ready."}
}

func (f *Feed) list(ctx context.Context, r Request) (*view.Page, error) {
	s := f.latest.Fresh(ctx)
	st := feedState(s.Value)
	q := r.Query
	head := view.Part{
		ID: "feed", Source: source(feedName, s),
		Facts: []view.Fact{
			{Name: "Ready", Value: view.Int(s.Value.Ready)},
			{Name: "Delayed", Value: view.Int(s.Value.Delayed)},
			{Name: "Behind a gate", Value: view.Int(s.Value.Gated)},
			{Name: "Failed", Value: quietZero(view.Int(s.Value.Failed), s.Value.Failed > 0, view.Bad)},
			{Name: "Blocked partitions", Value: quietZero(view.Int(s.Value.BlockedPartitions), s.Value.BlockedPartitions > 0, view.Bad)},
			{Name: "Oldest ready", Value: view.Duration(s.Value.Oldest.Round(time.Second))},
		},
	}
	if !s.At.IsZero() {
		head.Problem, head.ProblemTone = st.sentence, st.tone
	}
	query := partitionQuery(q, pageSize+1)
	query.After = q.Get("after")
	var found []feed.Partition
	err := f.ready(ctx)
	if err == nil {
		found, err = f.source.Partitions(ctx, query)
	}
	part := view.Part{ID: "partitions", Title: "Partitions", Source: view.Source{Name: feedName, Asked: r.Now}}
	if err != nil {
		part.Source = view.Source{Name: feedName, Error: err.Error()}
	}
	list := &view.List{
		Path: "feed", Query: q, Found: view.Bounded(min(len(found), pageSize), len(found) > pageSize, "partition"),
		Empty:   "No partition matches. This list shows the partitions of the feed; `jetpull feed add NAME` makes one of the lines of its input.",
		Columns: []view.Column{{Title: "Partition"}, {Title: "Status"}, {Title: "Gate", Number: true}, {Title: "Sealed"}, {Title: "Lease"}, {Title: "Until", Number: true}},
	}
	more := len(found) > pageSize
	if more {
		found = found[:pageSize]
		list.Next = with(q, "after", found[pageSize-1].ID)
	}
	for i, p := range found {
		list.Rows = append(list.Rows, view.Row{ID: "p-" + strconv.Itoa(i) + "-" + p.ID, Cells: []view.Value{
			view.Linked(p.ID, link("partition", "id", p.ID)), feedStatus(p.Status), {Text: strconv.Itoa(p.Gate)}, yes(p.Sealed), lease(p), until(p, r.Now),
		}})
	}
	part.List = list
	page := &view.Page{
		Nav: "feed", Title: "Feed",
		Filter: &view.Filter{Path: "feed", Fields: []view.Field{
			{Name: "q", Label: "Partition", Value: q.Get("q"), Type: "search", Placeholder: "its whole name"},
			choice(q, "status", "Status", view.Option{Value: "", Text: "all"}, view.Option{Value: "Failed", Text: "failed"}, view.Option{Value: "Available", Text: "available"}, view.Option{Value: "Complete", Text: "complete"}),
		}},
		Parts: []view.Part{head, part},
	}
	all := f.all.forAll(err != nil, q, page.Filter, found, more || query.After != "")
	for i, a := range all {
		if failedOnly(strings.TrimSuffix(a.Name, "-all")) && !s.Stale() {
			all[i].Confirm += fmt.Sprintf(" The whole feed has %s in %s.", view.Count(uint64(s.Value.Failed), "failed item"), view.Count(uint64(s.Value.BlockedPartitions), "blocked partition"))
		}
	}
	page.Parts[1].Actions = all
	return page, nil
}

func feedStatus(s feed.Status) view.Value {
	tone := view.Plain
	switch s {
	case feed.Failed:
		tone = view.Bad
	case feed.Complete:
		tone = view.Good
	}
	return view.Word(tone, string(s))
}

func yes(b bool) view.Value {
	if b {
		return view.Value{Text: "yes"}
	}
	return view.Word(view.Muted, "no")
}

func lease(p feed.Partition) view.Value {
	if p.Owner == "" {
		return view.None("Nobody holds the lease")
	}
	return view.Code(p.Owner)
}

func until(p feed.Partition, now time.Time) view.Value {
	if p.Owner == "" {
		return view.None("Nobody holds the lease")
	}
	v := view.Ago(p.Until, "not stated")
	if p.Until.Before(now) {
		v.Tone, v.Prefix = view.Warn, "ended "
	}
	return v
}

func feedError(err error, what string) error {
	if errors.Is(err, feed.ErrNotFound) {
		return notFound("The list of partitions shows all that there are.", "There is no %s.", what)
	}
	return &Problem{Status: http.StatusBadGateway, Text: "The database of the feed does not answer", Err: err, Fix: "Try again. If it stays so, look at the database."}
}

func (f *Feed) one(ctx context.Context, r Request) (*view.Page, error) {
	q := r.Query
	id := q.Get("id")
	p, err := f.source.Partition(ctx, id)
	if err != nil {
		return nil, feedError(err, fmt.Sprintf("partition %q", id))
	}
	counts, err := f.source.Counts(ctx, id)
	if err != nil {
		return nil, feedError(err, fmt.Sprintf("partition %q", id))
	}
	failed, available := 0, 0
	gates := &view.List{
		Found: view.Bounded(len(counts), false, "gate"), Path: "partition", Empty: "The partition has no items.",
		Columns: []view.Column{{Title: "Gate", Number: true}, {Title: "Progress"}, {Title: "Done", Number: true}, {Title: "Waiting", Number: true}, {Title: "Failed", Number: true}},
	}
	for _, gate := range slices.Sorted(maps.Keys(counts)) {
		c := counts[gate]
		failed, available = failed+c.Failed, available+c.Available
		number := view.Text(strconv.Itoa(gate))
		if gate == p.Gate {
			number = view.Word(view.Good, strconv.Itoa(gate)+" (here)")
		}
		gates.Rows = append(gates.Rows, view.Row{ID: "g-" + strconv.Itoa(gate), Cells: []view.Value{
			number, {Bar: view.NewBar(c.Complete, c.Available, c.Failed)}, view.Int(c.Complete), view.Int(c.Available), quietZero(view.Int(c.Failed), c.Failed > 0, view.Bad),
		}})
	}
	sentence, tone := countIs(uint64(available), "item")+" waiting.", view.Plain
	switch {
	case failed > 0:
		sentence, tone = fmt.Sprintf("Gate %d is held by failures: %s failed, %s waiting.", p.Gate, view.Count(uint64(failed), "item"), countIs(uint64(available), "item")), view.Bad
	case p.Status == feed.Complete:
		sentence, tone = "Complete: the partition is closed.", view.Good
	}
	items, err := f.items(ctx, q, id)
	if err != nil {
		return nil, err
	}
	return &view.Page{
		Nav: "feed", Title: id, Crumbs: []view.Link{{Text: "Feed", Href: "feed"}},
		Filter: &view.Filter{Path: "partition", Fields: []view.Field{
			{Name: "id", Value: id, Hidden: true},
			choice(q, "status", "Items", view.Option{Value: "", Text: "all"}, view.Option{Value: "Failed", Text: "failed"}, view.Option{Value: "Available", Text: "available"}, view.Option{Value: "Complete", Text: "complete"}),
		}},
		Parts: []view.Part{
			{
				ID: "partition", Source: view.Source{Name: feedName, Asked: r.Now}, Problem: sentence, ProblemTone: tone, Actions: f.actions(p, failed), List: gates,
				Facts: []view.Fact{
					{Name: "Status", Value: feedStatus(p.Status)},
					{Name: "Gate", Value: view.Value{Text: strconv.Itoa(p.Gate)}},
					{Name: "Sealed", Value: yes(p.Sealed)},
					{Name: "Lease held by", Value: lease(p)},
					{Name: "Lease until", Value: until(p, r.Now)},
					{Name: "Epoch", Value: view.Number(uint64(max(0, p.Epoch)))},
				},
			},
			items,
		},
	}, nil
}

func (f *Feed) items(ctx context.Context, q url.Values, partition string) (view.Part, error) {
	found, err := f.source.Items(ctx, feed.Query{Partition: partition, Status: feed.Status(q.Get("status")), After: q.Get("after"), Limit: pageSize + 1})
	if err != nil {
		return view.Part{}, feedError(err, "such item")
	}
	list := &view.List{
		Path: "partition", Query: q, Found: view.Bounded(min(len(found), pageSize), len(found) > pageSize, "item"), Empty: "No item matches.",
		Columns: []view.Column{{Title: "Item"}, {Title: "Status"}, {Title: "Gate", Number: true}, {Title: "Attempt", Number: true}, {Title: "Not before", Number: true}, {Title: "Last error", Wide: true}},
	}
	if len(found) > pageSize {
		found = found[:pageSize]
		list.Next = with(q, "after", found[pageSize-1].ID)
	}
	for i, it := range found {
		last := ""
		if len(it.Errors) > 0 {
			last = it.Errors[len(it.Errors)-1]
		}
		list.Rows = append(list.Rows, view.Row{ID: "i-" + strconv.Itoa(i) + "-" + it.ID, Cells: []view.Value{
			view.Linked(it.ID, link("item", "partition", partition, "id", it.ID)), feedStatus(it.Status), {Text: strconv.Itoa(it.Gate)}, view.Int(it.Attempt), view.Ago(it.NotBefore, "At once"), view.Sentence(last),
		}})
	}
	return view.Part{ID: "items", Title: "Items", List: list}, nil
}

func (f *Feed) actions(p feed.Partition, failed int) []view.Action {
	act := func(do func(ctx context.Context, form url.Values) (int, string, error)) func(context.Context, url.Values) (view.Outcome, error) {
		return func(ctx context.Context, form url.Values) (view.Outcome, error) {
			n, text, err := do(ctx, form)
			if known, ok := errors.AsType[*Problem](err); ok {
				return view.Outcome{}, known
			}
			if err != nil {
				return view.Outcome{}, &Problem{Status: http.StatusConflict, Text: "The feed refused this, and nothing was changed", Err: err, Fix: "The reason is the feed's. Correct it and try again."}
			}
			return view.Outcome{Count: n, Text: text}, nil
		}
	}
	plain := func(text string, do func(context.Context, string) error) func(context.Context, url.Values) (view.Outcome, error) {
		return act(func(ctx context.Context, _ url.Values) (int, string, error) { return 1, text, do(ctx, p.ID) })
	}
	var all []view.Action
	if failed > 0 {
		all = append(all,
			view.Action{
				Name: "retry", Label: "Retry all failed", Target: p.ID, Confirm: fmt.Sprintf("Try %s of partition %s again, with no attempts counted.", view.Count(uint64(failed), "failed item"), p.ID),
				Do: act(func(ctx context.Context, _ url.Values) (int, string, error) {
					n, err := f.source.RetryFailed(ctx, p.ID)
					return n, fmt.Sprintf("%s available again.", countIs(uint64(n), "item")), err
				}),
			},
			view.Action{
				Name: "skip", Label: "Skip all failed", Target: p.ID, Danger: true,
				Confirm: fmt.Sprintf("Count %s of partition %s as complete without its work being done, so that the gate opens. This cannot be undone.", view.Count(uint64(failed), "failed item"), p.ID),
				Do: act(func(ctx context.Context, _ url.Values) (int, string, error) {
					n, err := f.source.SkipFailed(ctx, p.ID)
					return n, fmt.Sprintf("%s counted as complete.", countIs(uint64(n), "item")), err
				}),
			})
	}
	if p.Status != feed.Available {
		all = append(all, view.Action{Name: "reopen", Label: "Reopen", Target: p.ID, Do: plain("Reopened. The partition takes items again.", f.source.Reopen)})
	}
	if p.Status == feed.Complete {
		return all
	}
	if !p.Sealed {
		all = append(all, view.Action{Name: "seal", Label: "Seal", Target: p.ID, Confirm: "Seal partition " + p.ID + ". No more items can be added, until it is reopened.", Do: plain("Sealed. No more items will come.", f.source.Seal)})
	}
	return append(all,
		view.Action{
			Name: "advance", Label: "Advance", Target: p.ID, Confirm: "Advance partition " + p.ID + " to a gate. That is refused while an item below it is not complete, and cannot be undone.", Fields: []view.Field{{Name: "gate", Label: "To gate", Value: strconv.Itoa(p.Gate + 1), Type: "number", Required: true}},
			Do: act(func(ctx context.Context, form url.Values) (int, string, error) {
				gate, err := parseGate(form.Get("gate"))
				if err != nil {
					return 0, "", err
				}
				return 1, fmt.Sprintf("Advanced to gate %d.", gate), f.source.Advance(ctx, p.ID, gate)
			}),
		},
		view.Action{Name: "close", Label: "Close", Target: p.ID, Confirm: "Close partition " + p.ID + ". That is refused while an item is not complete.", Do: plain("Closed.", f.source.ClosePartition)})
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
		return nil, feedError(err, fmt.Sprintf("item %q in a partition %q", id, partition))
	}
	if r.Query.Has("download") {
		return download(id, it.Data)
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
			return view.Action{Name: name, Label: label, Target: partition + "/" + id, Confirm: confirm, Danger: danger, Do: func(ctx context.Context, _ url.Values) (view.Outcome, error) {
				n, err := do(ctx, partition, id)
				if err != nil {
					return view.Outcome{}, systemRefused(feedName, err)
				}
				return view.Outcome{Count: n, Text: text}, nil
			}}
		}
		part.Actions = []view.Action{
			one("retry", "Retry", "", "The item is available again.", false, f.source.RetryFailed),
			one("skip", "Skip", "Count the item as complete without its work being done. This cannot be undone.", "The item counts as complete.", true, f.source.SkipFailed),
		}
	}
	part.Problem, part.ProblemTone = sentence, tone
	failures := &view.List{Found: view.Bounded(len(it.Errors), false, "failed attempt"), Path: "item", Empty: "No attempt of this step has failed.", Columns: []view.Column{{Title: "Attempt", Number: true}, {Title: "Error", Wide: true}}}
	for i, text := range it.Errors {
		failures.Rows = append(failures.Rows, view.Row{ID: "e-" + strconv.Itoa(i), Cells: []view.Value{view.Int(max(1, it.Attempt-len(it.Errors)+1+i)), view.Sentence(text)}})
	}
	part.List = failures
	page := &view.Page{Nav: "feed", Title: id, Crumbs: []view.Link{{Text: "Feed", Href: "feed"}, {Text: partition, Href: link("partition", "id", partition)}}, Parts: []view.Part{part}}
	// The history ends with the attempts of this step.
	if history := it.History(); len(history) > len(it.Errors) {
		page.Parts = append(page.Parts, earlierPart(history[:len(history)-len(it.Errors)]))
	}
	page.Parts = append(page.Parts, view.Part{ID: "payload", Texts: []view.Block{payloadBlock(it.Data, r.Query, "item", "partition", partition, "id", id)}})
	return page, nil
}

// earlierPart has the failed attempts before the last retry and of earlier steps, newest first.
func earlierPart(attempts []feed.Attempt) view.Part {
	list := &view.List{
		Found: view.Bounded(len(attempts), false, "failed attempt"), Path: "item",
		Columns: []view.Column{{Title: "When", Number: true}, {Title: "Gate", Number: true}, {Title: "Attempt", Number: true}, {Title: "Error", Wide: true}},
	}
	for i, a := range slices.Backward(attempts) {
		list.Rows = append(list.Rows, view.Row{ID: "h-" + strconv.Itoa(i), Cells: []view.Value{
			view.Ago(a.At, "not stated"), {Text: strconv.Itoa(a.Gate)}, view.Int(a.Attempt), view.Sentence(a.Error),
		}})
	}
	return view.Part{ID: "earlier", Title: "Before a retry or at an earlier step", List: list}
}

// partitionsPage is how many partitions are read at once.
const partitionsPage = 500

// failedOnly reports whether an action is for partitions that failures hold.
func failedOnly(action string) bool { return action == "retry" || action == "skip" }

// allPartitions are the actions for all partitions that match.
func (f *Feed) allPartitions() *objects[feed.Partition] {
	return (&objects[feed.Partition]{
		runner: f.runner, noun: "partition", matching: f.matching, find: f.find, name: func(p feed.Partition) string { return p.ID },
		actions: func(p feed.Partition) []view.Action {
			failed := 0
			if p.Status == feed.Failed {
				failed = 1 // the number is not known, and no operation needs it
			}
			return f.actions(p, failed)
		},
		offers: []offer{
			{name: "retry", label: "Retry the failed items of", confirm: "No attempts are counted."},
			{
				name: "skip", label: "Skip the failed items of", danger: true,
				confirm: "They count as complete without their work being done, so that the gates open. This cannot be undone.",
			},
			{name: "reopen", label: "Reopen", confirm: "They take items again."},
			{name: "seal", label: "Seal", confirm: "No more items can be added, until they are reopened."},
			{
				name: "advance", label: "Advance", danger: true, fields: []view.Field{{Name: "gate", Label: "To gate (empty: each to its next one)", Type: "number"}},
				confirm: "A partition refuses while an item below the gate is not complete. This cannot be undone.",
				check: func(form url.Values) error {
					_, err := parseGate(cmp.Or(form.Get("gate"), "0"))
					return err
				},
			},
			{name: "close", label: "Close", confirm: "A partition refuses while an item is not complete."},
		},
	}).add()
}

// matching reads the partitions that the query of the list selects, for an action.
func (f *Feed) matching(ctx context.Context, q url.Values, action string, most int) (all []feed.Partition, more bool, err error) {
	query := partitionQuery(q, partitionsPage)
	if failedOnly(action) && query.Status == "" {
		query.Status = feed.Failed // few of a million are
	}
	for ; ; query.After = all[len(all)-1].ID {
		found, err := f.source.Partitions(ctx, query)
		all = append(all, found...)
		switch {
		case err != nil || len(found) < partitionsPage:
			return all, false, err
		case most > 0 && len(all) >= most:
			return all[:most], true, nil
		}
	}
}

// partitionQuery is the query of the list.
func partitionQuery(q url.Values, limit int) feed.Query {
	return feed.Query{Partition: strings.TrimSpace(q.Get("q")), Status: feed.Status(q.Get("status")), Limit: limit}
}

// find reads partitions one by one. It leaves out those that do not exist any more.
func (f *Feed) find(ctx context.Context, ids []string) (all []feed.Partition, err error) {
	for _, id := range ids {
		p, err := f.source.Partition(ctx, id)
		if err != nil && !errors.Is(err, feed.ErrNotFound) {
			return nil, err
		}
		if err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}
