package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/feed"
)

// objects are the objects of a list. The list offers the actions of their pages for all objects that match its filter. Such an operation first reads
// the names of these objects, and then runs the action of each object's page.
type objects[T any] struct {
	runner  *operation.Runner
	noun    string            // of one object; the nouns of all lists differ
	name    func(T) string    // unique among the objects
	created func(T) time.Time // an object that was deleted and created again is another one; nil: that does not matter
	actions func(T) []view.Action
	// continued specifies whether operations continue after a restart.
	continued bool
	offers    []offer
	fits      func(url.Values, T) bool // whether the list with a query has an object
	// matching returns the objects that currently match a query of the list. It may leave out objects for which the action is not possible. It
	// stops after most objects, and reports whether there are more. 0 means no limit.
	matching func(ctx context.Context, q url.Values, action string, most int) (found []T, more bool, err error)
	// find returns the current object with a name. If there is none, the error is errGone or [feed.ErrNotFound].
	find func(ctx context.Context, name string) (T, error)
}

// offer is an action of an object's page that a list offers for all objects.
type offer struct {
	name, label string // of the object's action
	confirm     string // what happens to the objects
	danger      bool
	// filtered offers the action only if a filter is set. The user must type the action's name.
	filtered bool
	fields   []view.Field
	// check refuses values that are wrong for every object, and may replace values. nil means no check.
	check func(form url.Values) error
}

var errGone = errors.New("it does not exist any more")

// objectTimeout limits the action on one object.
const objectTimeout = 30 * time.Second

// add adds the kinds of operations to the runner.
func (o *objects[T]) add() *objects[T] {
	for _, each := range o.offers {
		o.runner.AddNamed(o.kind(each), o.continued, func(ctx context.Context, name string, of operation.Chosen) error {
			return o.do(ctx, each.name, name, of)
		})
	}
	return o
}

// kind returns the kind of an action's operations, such as "pause consumers".
func (o *objects[T]) kind(each offer) string { return strings.ToLower(each.label) + " " + o.noun + "s" }

// sampled completes objects that are all in the sample of a system, and adds them.
func sampled[T, S any](o objects[T], system string, latest *sample.Latest[S], all func(S) []T) *objects[T] {
	now := func(s sample.Sample[S]) ([]T, error) {
		if s.Stale() {
			return nil, fmt.Errorf("%s does not answer: %w", system, cmp.Or(s.Err, context.DeadlineExceeded))
		}
		return all(s.Value), nil
	}
	o.find = func(ctx context.Context, name string) (one T, err error) {
		all, err := now(latest.Fresh(ctx))
		if i := slices.IndexFunc(all, func(one T) bool { return o.name(one) == name }); i >= 0 {
			return all[i], nil
		}
		return one, cmp.Or(err, errGone)
	}
	o.matching = func(ctx context.Context, q url.Values, _ string, _ int) (found []T, more bool, err error) {
		all, err := now(latest.Next(ctx))
		return selected(q, all, o.fits), false, err
	}
	return o.add()
}

// lookup finds an object in the sample of a system, or in the next sample, because it may be new.
func lookup[S, T any](ctx context.Context, latest *sample.Latest[S], all func(S) []T, is func(T) bool) (one T, s sample.Sample[S], found bool) {
	for _, ask := range []func(context.Context) sample.Sample[S]{latest.Fresh, latest.Next} {
		s = ask(ctx)
		if i := slices.IndexFunc(all(s.Value), is); i >= 0 {
			return all(s.Value)[i], s, true
		}
	}
	return one, s, false
}

// page returns the page of a list: the objects that match its query, and the actions for all of them.
func (o *objects[T]) page(r Request, title string, from view.Source, list *view.List, all []T, columns []column[T], fields ...view.Field) *view.Page {
	filter := ordered(r.Query, fields...)
	rows := selected(r.Query, all, o.fits)
	shown := table(list, r.Query, rows, "state", len(all), o.noun, func(one T) string { return list.Path + "-" + o.name(one) }, columns)
	part := view.Part{ID: list.Path, Source: from, List: list, Actions: o.forAll(r, from.Stale, filter, shown, len(rows) > len(shown))}
	return &view.Page{Nav: list.Path, Title: title, Filter: filter, Parts: []view.Part{part}}
}

// do runs an action on the object with a name, if its page still offers it. If the object cannot be read, it returns operation.ErrNotTried.
func (o *objects[T]) do(ctx context.Context, action, name string, of operation.Chosen) error {
	ctx, cancel := context.WithTimeout(ctx, objectTimeout)
	defer cancel()
	one, err := o.find(ctx, name)
	switch {
	case errors.Is(err, errGone), errors.Is(err, feed.ErrNotFound):
		return errGone
	case err != nil:
		return fmt.Errorf("%w: %w", operation.ErrNotTried, err)
	case o.created != nil && !of.Created.IsZero() && o.created(one).After(of.Created):
		return errors.New("it was deleted and created again")
	}
	do := o.action(one, action)
	if do == nil {
		return errors.New("its state has changed, and this is not possible now")
	}
	values := url.Values{}
	for _, f := range do.Fields {
		values.Set(f.Name, cmp.Or(of.Form.Get(f.Name), f.Value))
	}
	_, err = do.Do(ctx, values)
	return err
}

// action returns the action with a name on the page of an object, or nil if the page does not offer it.
func (o *objects[T]) action(one T, name string) *view.Action {
	return (&view.Page{Parts: []view.Part{{Actions: o.actions(one)}}}).Action(name)
}

// choose returns the objects for which an action is possible. n is the number of objects that match.
func (o *objects[T]) choose(ctx context.Context, q url.Values, action string, most int) (all operation.Chosen, n int, more bool, err error) {
	found, more, err := o.matching(ctx, q, action, most)
	for _, one := range found {
		if o.action(one, action) == nil {
			continue
		}
		all.Names = append(all.Names, o.name(one))
		if o.created != nil && o.created(one).After(all.Created) {
			all.Created = o.created(one)
		}
	}
	slices.Sort(all.Names)
	return all, len(found), more, err
}

// forAll returns the actions for all objects that match the query of a list. The list shows shown; more means that there are others. A stale list has
// no actions.
func (o *objects[T]) forAll(r Request, stale bool, filter []view.Field, shown []T, more bool) (all []view.Action) {
	rate := rateField("no limit")
	rate.Value = "50" // each of these actions is a separate request
	var filters []string
	for _, f := range filter {
		if f.Value != "" && f.Name != "sort" && f.Name != "desc" && f.Name != "all" {
			filters = append(filters, strings.ToLower(cmp.Or(f.Label, f.Name))+" "+f.Value)
		}
	}
	what := o.noun + "s"
	if len(filters) > 0 {
		what += " that match " + strings.Join(filters, ", ")
	}
	for _, each := range o.offers {
		if each.filtered && len(filters) == 0 || stale ||
			!more && !slices.ContainsFunc(shown, func(one T) bool { return o.action(one, each.name) != nil }) {
			continue
		}
		all = append(all, view.Action{
			Name: each.name + "-all", Label: each.label + " all that match", Target: what, Danger: each.danger,
			Fields:  append(slices.Clone(each.fields), rate),
			Confirm: fmt.Sprintf("%s all %s. %s The operation runs in the background, and can be cancelled.", each.label, what, each.confirm),
			Preview: func(ctx context.Context, _ url.Values) string { return o.preview(ctx, r.Query, each.name) },
			Do: func(ctx context.Context, form url.Values) (view.Outcome, error) {
				return o.begin(ctx, r, each, what, form)
			},
		})
		if each.filtered {
			all[len(all)-1].Word = each.name
		}
	}
	return all
}

// preview describes how many objects an action applies to, with the first names.
func (o *objects[T]) preview(ctx context.Context, q url.Values, action string) string {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	all, n, more, err := o.choose(ctx, q, action, maxScanned)
	return inSentence("preview", map[string]any{
		"Noun": o.noun, "Names": all.Names, "Matched": n, "Left": n - len(all.Names), "More": more, "Err": err,
	})
}

// begin starts an operation on all objects for which the action is possible now.
func (o *objects[T]) begin(ctx context.Context, r Request, each offer, what string, form url.Values) (view.Outcome, error) {
	rate, err := parseRate(form.Get("rate"))
	if err == nil && each.check != nil {
		err = each.check(form)
	}
	if err != nil {
		return view.Outcome{}, err
	}
	all, _, _, err := o.choose(ctx, r.Query, each.name, 0)
	switch {
	case err != nil:
		return view.Outcome{}, unavailable(err, "Try again.", "Which objects match is not known now. Nothing was changed")
	case len(all.Names) == 0:
		return view.Outcome{}, impossible("Look at the list again.", "This is possible for no object that matches now. Nothing was changed.")
	}
	all.Form = form
	return begun(o.runner.BeginNamed(ctx, o.kind(each), r.User, what, all, rate))
}

// begun returns the outcome of an action that has started an operation of the console.
func begun(o operation.Operation, err error) (view.Outcome, error) {
	if err != nil {
		return view.Outcome{}, unconfirmed(err, "Try again.", "The operation did not begin. Nothing was changed")
	}
	return view.Outcome{
		Count: o.Matched, Then: operationLink(o.System, o.ID), Text: fmt.Sprintf("Began to %s: %s.", o.Kind, view.Count(uint64(o.Matched), "object")),
	}, nil
}

// thenAsk makes each action ask a source again afterwards, so that the next page shows its effect.
func thenAsk[T any](latest *sample.Latest[T], all []view.Action) []view.Action {
	for i, a := range all {
		all[i].Do = func(ctx context.Context, form url.Values) (view.Outcome, error) {
			outcome, err := a.Do(ctx, form)
			if err == nil {
				latest.Next(ctx)
			}
			return outcome, err
		}
	}
	return all
}
