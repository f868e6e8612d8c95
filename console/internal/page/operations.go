package page

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
)

// operations has the last operations of each system.
type operations struct {
	systems []string
	latest  map[string]*sample.Latest[[]operation.Operation]
}

// Operations returns the pages of the operations of all systems. The sampler asks each source.
func Operations(s *sample.Sampler, sources []operation.Source) Family {
	o := &operations{latest: map[string]*sample.Latest[[]operation.Operation]{}}
	for _, one := range sources {
		o.systems = append(o.systems, one.System())
		o.latest[one.System()] = sample.Add(s, one.Operations)
	}
	return Family{"Operations", "operations", map[string]Func{"operations": o.list, "operation": o.one}}
}

func operationLink(system, id string) string { return link("operation", "system", system, "id", id) }

func (o *operations) list(ctx context.Context, r Request) (*view.Page, error) {
	q := r.Query
	return &view.Page{
		Nav: "operations", Title: "Operations",
		Filter: []view.Field{
			searchField(q, "q", "Search", "kind, who or what"),
			choice(q, "state", "State", options("", "all", operation.Running, "running", "ended", "ended")),
		},
		Parts: together(o.systems, func(system string) view.Part { return o.part(q, r.Now, system, o.latest[system].Fresh(ctx)) }),
	}, nil
}

func (o *operations) part(q url.Values, now time.Time, system string, s sample.Sample[[]operation.Operation]) view.Part {
	rows := selected(q, s.Value, func(q url.Values, op operation.Operation) bool {
		want := q.Get("state")
		return contains(q.Get("q"), op.Kind, op.By, op.What, op.ID) && (want == "" || (want == operation.Running) == (op.State == operation.Running))
	})
	slices.SortStableFunc(rows, func(a, b operation.Operation) int {
		return cmp.Or(cmp.Compare(boolInt(a.State != operation.Running), boolInt(b.State != operation.Running)), b.Began.Compare(a.Began))
	})
	list := &view.List{
		Path: "operations", Found: view.Bounded(len(rows), false, "operation") + " of the " + system, Empty: inSentence("no operations", nil),
	}
	table(list, q, rows, "", 0, "operation", func(op operation.Operation) string { return "o-" + system + "-" + op.ID }, operationColumns(now))
	return view.Part{ID: "operations-" + system, Title: system, Source: source(system, s), List: list}
}

// operationColumns returns the columns of a list. The page of an operation shows the values from the second on.
func operationColumns(now time.Time) []column[operation.Operation] {
	return []column[operation.Operation]{
		text("Operation", func(op operation.Operation) view.Value { return view.Linked(op.Kind, operationLink(op.System, op.ID)) }),
		text("State", func(op operation.Operation) view.Value { return view.Word(operationTones[op.State], op.State) }),
		text("For", func(op operation.Operation) view.Value { return view.Text(op.What) }).wide(),
		text("By", func(op operation.Operation) view.Value { return view.Text(cmp.Or(op.By, "not stated")) }),
		number("Began", func(op operation.Operation) view.Value { return view.Ago(op.Began, "not stated") }),
		number("Done", progress),
		number("Skipped", func(op operation.Operation) view.Value { return view.Int(op.Skipped) }),
		number("Failed", func(op operation.Operation) view.Value { return view.Int(op.Failed) }),
		number("Rate", func(op operation.Operation) view.Value { return view.Rate(perSecond(op)) }),
		number("End", func(op operation.Operation) view.Value { return operationEnd(op, now) }),
	}
}

var operationTones = map[string]view.Tone{
	operation.Running: view.Good, "failed": view.Bad, "cancelled": view.Warn, "interrupted": view.Warn,
}

func progress(op operation.Operation) view.Value {
	v := view.Value{
		Text:  fmt.Sprintf("%s of %s", view.Int(op.Done).Text, view.Int(op.Matched).Text),
		Title: fmt.Sprintf("%d of %d", op.Done, op.Matched),
	}
	if op.Matched > 0 {
		v.Text += fmt.Sprintf(" (%d %%)", 100*op.Ended()/op.Matched)
	}
	return v
}

// perSecond returns the mean rate of an operation.
func perSecond(op operation.Operation) float64 {
	took := op.Changed.Sub(op.Began).Seconds()
	if took <= 0 {
		return 0
	}
	return float64(op.Ended()) / took
}

// operationEnd returns when an operation ended, or when it will end at its current rate.
func operationEnd(op operation.Operation, now time.Time) view.Value {
	rate := perSecond(op)
	switch {
	case op.State != operation.Running:
		return view.Ago(op.Changed, "not stated")
	case rate == 0:
		return view.None("It has no rate yet")
	}
	return view.Value{Time: now.Add(time.Duration(float64(op.Left()) / rate * float64(time.Second))).Truncate(time.Second), Prefix: "expected "}
}

func (o *operations) one(ctx context.Context, r Request) (*view.Page, error) {
	system, id := r.Query.Get("system"), r.Query.Get("id")
	latest := o.latest[system]
	if latest == nil {
		return nil, notFound("The list of operations shows all that there are.", "There is no system %q here.", system)
	}
	op, s, found := lookup(ctx, latest, whole, func(op operation.Operation) bool { return op.ID == id })
	if !found && !s.Stale() {
		return nil, notFound("Operations that ended long ago are forgotten. The list has those that are known.", "There is no operation %q in %s.", id,
			system)
	}
	part := view.Part{ID: "operation", Source: source(system, s)}
	if found {
		part.Problem, part.Lines, part.Facts = inSentence("operation", op), op.Notes, facts(op, operationColumns(r.Now)[1:])
	}
	if op.State == operation.Running {
		part.Actions = thenAsk(latest, []view.Action{cancelOperation(op)})
	}
	return &view.Page{
		Nav: "operations", Title: cmp.Or(op.Kind, id), Crumbs: []view.Link{{Text: "Operations", Href: "operations"}}, Parts: []view.Part{part},
	}, nil
}

func cancelOperation(op operation.Operation) view.Action {
	refused := func(err error) error {
		return unavailable(err, "Try again.", "%s did not cancel the operation. It goes on", op.System)
	}
	return view.Action{
		Name: "cancel", Label: "Cancel the operation", Target: op.System + "/" + op.ID,
		Confirm: inSentence("cancel operation", op),
		Do: act(refused, func(ctx context.Context, _ url.Values) (view.Outcome, error) {
			return done("Cancelled. The finished part stays, and the rest is not touched."), op.Cancel(ctx)
		}),
	}
}

// begins makes an action start an operation of a system. begin returns its ID and the number of its objects, below 0 if it is unknown. With dry, it
// only counts them. An action without fields applies to one object, whose page shows the outcome.
func begins(a view.Action, system, noun, verb string, begin func(ctx context.Context, form url.Values, rate float64, dry bool) (string, int, error),
) view.Action {
	a.Preview = func(ctx context.Context, form url.Values) string {
		_, n, err := begin(ctx, form, 0, true)
		if err != nil {
			return "How many these are is not known: " + err.Error()
		}
		return fmt.Sprintf("That is %s of the %s at this moment. Nothing has been changed yet.", view.Count(uint64(max(0, n)), noun), system)
	}
	a.Do = act(systemRefused(system), func(ctx context.Context, form url.Values) (view.Outcome, error) {
		rate, err := parseRate(form.Get("rate"))
		if err != nil {
			return view.Outcome{}, err
		}
		id, n, err := begin(ctx, form, rate, false)
		out := view.Outcome{Count: max(0, n), Text: fmt.Sprintf("Began to %s %s of the %s.", verb, view.Count(uint64(n), noun), system)}
		if n < 0 {
			out.Text = fmt.Sprintf("Began to %s %ss of the %s.", verb, noun, system)
		}
		if len(a.Fields) > 0 {
			out.Then = operationLink(system, id)
		}
		return out, err
	})
	return a
}

var logColumns = []column[view.Entry]{
	text("Time", func(e view.Entry) view.Value { return view.Ago(e.Time, "") }),
	text("Who", func(e view.Entry) view.Value { return view.Text(e.Who) }),
	text("Action", func(e view.Entry) view.Value { return view.Text(e.Action) }),
	text("Target", func(e view.Entry) view.Value { return view.Text(e.Target) }),
	number("Count", func(e view.Entry) view.Value { return view.Int(e.Count) }),
	text("Result", func(e view.Entry) view.Value {
		return map[bool]view.Value{true: view.Word(view.Bad, "failed"), false: view.Word(view.Good, "done")}[e.Failed]
	}),
	text("Outcome", func(e view.Entry) view.Value { return view.Prose(e.Outcome) }),
}

var actionLog = &objects[view.Entry]{
	noun: "action", name: func(e view.Entry) string { return fmt.Sprint(e.Time.UnixNano()) },
	fits: func(q url.Values, e view.Entry) bool {
		return contains(q.Get("q"), e.Who, e.Action, e.Target, e.Outcome) && (q.Get("outcome") == "" || (q.Get("outcome") == "failed") == e.Failed)
	},
}

// Log returns the page of the log of actions. all returns the actions, newest first.
func Log(all func() []view.Entry) Family {
	return Family{"Log of actions", "log", map[string]Func{"log": func(_ context.Context, r Request) (*view.Page, error) {
		list := &view.List{
			Path: "log", Empty: "This list shows who did what on this console, in the last 1,000 actions. The process's log has each action too.",
		}
		return actionLog.page(r, "Log of actions", view.Source{}, list, all(), logColumns, searchField(r.Query, "q", "Search", "who, action or target"),
			choice(r.Query, "outcome", "Result", options("", "all", "done", "done", "failed", "failed"))), nil
	}}}
}
