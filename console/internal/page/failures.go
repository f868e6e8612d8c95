package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jetpull/jetpull/console/internal/view"
)

// Failures is the page of the failures of all systems. A system that is nil is not there.
type Failures struct {
	relay   *Relay
	broker  *Broker
	letters *DeadLetters
	feed    *Feed

	mu   sync.Mutex
	seen map[string]seen // the last answers, by what was asked
}

// seen is what a system answered once.
type seen struct {
	at    time.Time
	found []failure
	next  string
	tally tally // of the first page, unless the filter has a reason
}

// maxSeen is how many answers are kept for the time when their systems do not answer.
const maxSeen = 100

// NewFailures makes the page.
func NewFailures(relay *Relay, broker *Broker, letters *DeadLetters, feed *Feed) *Failures {
	return &Failures{relay: relay, broker: broker, letters: letters, feed: feed, seen: map[string]seen{}}
}

// Pages are the functions of the pages by their paths.
func (f *Failures) Pages() map[string]Func { return map[string]Func{"failed": f.list} }

// ask asks the systems, except those whose list has ended, at the same time. A system that does not answer has the answer that it last gave.
func (f *Failures) ask(ctx context.Context, systems []*failedSystem, r Request) {
	var asked sync.WaitGroup
	first := !slices.ContainsFunc(systems, func(s *failedSystem) bool { return r.Query.Has(s.name) })
	for _, s := range systems {
		if cursor := r.Query.Get(s.name); cursor != end {
			asked.Go(func() {
				answer, key := seen{at: r.Now}, fmt.Sprint(s.name, s.filter, cursor)
				answer.found, answer.next, s.err = s.list(ctx, s.filter, cursor)
				if s.err == nil && first && s.filter["reason"] == "" {
					answer.tally = s.byReason(ctx, f.kept(key).tally)
				}
				s.seen = f.last(key, answer, s.err)
			})
		}
	}
	asked.Wait()
}

func (f *Failures) kept(asked string) seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[asked]
}

// last keeps an answer. After an error it returns the one that is kept, if there is one.
func (f *Failures) last(asked string, answer seen, err error) seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		return f.seen[asked]
	}
	if len(f.seen) >= maxSeen {
		clear(f.seen)
	}
	f.seen[asked] = answer
	return answer
}

// merge returns the failures of all systems, newest first, as far as no system can have others between them, and the query of the
// rest; nil: there is none.
func merge(systems []*failedSystem, q url.Values) (all []failure, next url.Values) {
	var horizon time.Time
	for _, s := range systems {
		if s.next == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, s.next) // that of the broker is a time
		if err != nil && len(s.found) > 0 {
			at = s.found[len(s.found)-1].at
		}
		if at.After(horizon) {
			horizon = at
		}
	}
	more := false
	next = q
	for _, s := range systems {
		n := slices.IndexFunc(s.found, func(f failure) bool { return f.at.Before(horizon) })
		cursor := q.Get(s.name)
		switch {
		case s.unknown():
		case n > 0:
			cursor = s.found[n-1].cursor
		case n < 0:
			n, cursor = len(s.found), cmp.Or(s.next, end)
		}
		if !s.unknown() {
			for _, one := range s.found[:n] {
				one.stale = s.err != nil
				all = append(all, one)
			}
			more = more || cursor != end
		}
		next = with(next, s.name, cursor)
	}
	slices.SortStableFunc(all, func(a, b failure) int { return b.at.Compare(a.at) })
	if !more {
		next = nil
	}
	return all, next
}

// joined are the names of systems.
func joined(systems []*failedSystem) string {
	names := make([]string, len(systems))
	for i, s := range systems {
		names[i] = s.name
	}
	return strings.Join(names, " and ")
}

func (f *Failures) list(ctx context.Context, r Request) (*view.Page, error) {
	q := r.Query
	systems, err := f.systems(q)
	if err != nil {
		return nil, err
	}
	var others []view.Fact
	var waiting sync.WaitGroup
	waiting.Go(func() { others = f.others(ctx) })
	f.ask(ctx, systems, r)
	waiting.Wait()
	page := &view.Page{Nav: "failed", Title: "Failed", Filter: f.form(q)}
	var answered, stale []*failedSystem
	var problems []string
	var failed error
	for _, s := range systems {
		failed = errors.Join(failed, s.err)
		switch {
		case s.err == nil:
			answered = append(answered, s)
		case s.unknown():
			page.Parts = append(page.Parts, view.Part{ID: s.name, Title: "Failures of the " + s.name, Source: view.Source{Name: s.name}.Away(s.err)})
			problems = append(problems, "The list does not have the failures of the "+s.name+", which "+view.Source{}.Away(s.err).Does()+". "+
				"Whether there are any is not known now.")
		default:
			stale = append(stale, s)
			problems = append(problems, "The "+s.name+" "+view.Source{}.Away(s.err).Does()+". It listed the failures in grey "+view.At(s.at)+".")
		}
	}
	rows, next := merge(systems, q)
	source := view.Source{Name: joined(answered), Asked: r.Now}
	if len(answered) == 0 && len(stale) > 0 {
		source = view.Source{Name: joined(stale), Asked: stale[0].at, Stale: true}.Away(failed)
	}
	if len(answered)+len(stale) == 0 && failed != nil {
		page.Parts = []view.Part{{ID: "failed", Source: view.Source{Name: joined(systems)}.Away(failed)}}
	} else {
		part := view.Part{ID: "failed", Problem: strings.Join(problems, " "), ProblemTone: view.Warn, Source: source, List: &view.List{
			Found: view.Bounded(len(rows), next != nil, "failure"), Path: "failed", Query: q, Next: next,
			Empty: "No failure matches. This list shows messages that the relay could not deliver, or whose answer it could not carry back, and dead jobs " +
				"of the broker: those whose attempts all failed.",
		}}
		if len(rows) == 0 && next != nil {
			part.List.Empty = "None of the failures that were looked at matches. The next page looks at more."
		}
		show(part.List, failureColumns, rows, func(one failure) string { return "f-" + one.system + "-" + one.id })
		for i, one := range rows {
			part.List.Rows[i].Stale = one.stale
		}
		for _, s := range systems {
			part.Facts = append(part.Facts, grouped(s.tally.counts, 1, s.tally.more, func(reason string) view.Fact {
				return view.Fact{Name: s.reason(reason), Value: view.Value{Href: part.List.To(with(q, "reason", reason))}}
			})...)
		}
		part.Actions = actions(answered)
		page.Parts = append([]view.Part{part}, page.Parts...)
	}
	if len(others) > 0 {
		page.Parts = append(page.Parts, view.Part{ID: "others", Title: "Other failures", Facts: others})
	}
	return page, nil
}

// others are the numbers of failures that have lists of their own.
func (f *Failures) others(ctx context.Context) (facts []view.Fact) {
	notKnown := func(system string) view.Value {
		return view.Word(view.Warn, "not known now: "+system+" does not answer")
	}
	if f.letters != nil {
		fact := view.Fact{Name: "Dead letters", Value: notKnown("NATS")}
		if s := f.letters.latest.Fresh(ctx); s.Err == nil && !s.At.IsZero() {
			fact.Value = leads(lettersValue(f.letters.letters(s.Value)), "deadletters")
		}
		facts = append(facts, fact)
	}
	if f.feed != nil {
		fact := view.Fact{Name: "Failed items of the feed", Value: notKnown(feedName)}
		if s := f.feed.latest.Fresh(ctx); s.Err == nil && !s.At.IsZero() {
			fact.Value = leads(view.Int(s.Value.Failed), "feed?status=Failed")
		}
		facts = append(facts, fact)
	}
	return facts
}

// actions are for all failures of the systems that the filter selects. A system without any, or without the verb, has no part in them.
func actions(systems []*failedSystem) (all []view.Action) {
	for _, a := range []struct {
		verb, label, confirm string
		danger               bool
	}{
		{"requeue", "Requeue all that match", "Try all %s again. Those that fail again come back to this list.", false},
		{"skip", "Skip all that match", "Take all %s off the list. They stay FAILED, and are not tried again.", true},
		{"purge", "Purge all that match", "Take all %s off the list, and give them up: nobody can try them again. This cannot be undone.", true},
	} {
		var with []*failedSystem
		var words, rates []string
		for _, s := range systems {
			if len(s.found) > 0 && s.verbs[a.verb] != "" && (a.verb != "purge" || len(s.filter) > 0) {
				with, words, rates = append(with, s), append(words, s.words()), append(rates, s.usualRate+" in the "+s.name)
			}
		}
		if len(with) == 0 {
			continue
		}
		limit := rateField(with[0].usualRate)
		if len(with) > 1 {
			limit.Label = "At most in a second, in each system (empty: " + strings.Join(rates, ", ") + ")"
		}
		one := view.Action{
			Name: a.verb + "-all", Label: a.label, Target: strings.Join(words, "; "), Danger: a.danger,
			Confirm: fmt.Sprintf(a.confirm, strings.Join(words, ", and all ")),
			Fields:  []view.Field{limit},
			Preview: func(ctx context.Context, _ url.Values) string { return preview(ctx, a.verb, with) },
			Do: func(ctx context.Context, form url.Values) (view.Outcome, error) {
				return begin(ctx, a.verb, with, form)
			},
		}
		if a.verb == "purge" {
			one.Word = a.verb
		}
		if a.verb == "purge" && slices.ContainsFunc(with, func(s *failedSystem) bool { return s.name == brokerName }) {
			one.Confirm += " The broker skips jobs that a worker gave up before their retries were used up."
		}
		all = append(all, one)
	}
	return all
}

// preview counts what an action is for.
func preview(ctx context.Context, verb string, systems []*failedSystem) string {
	var counts, unknown []string
	for _, s := range systems {
		n, err := s.count(ctx, s.verbs[verb], s.filter)
		if err != nil {
			unknown = append(unknown, "How many "+s.noun+"s of the "+s.name+" these are is not known now: "+err.Error()+".")
			continue
		}
		counts = append(counts, view.Count(uint64(n), s.noun)+" of the "+s.name)
	}
	text := ""
	if len(counts) > 0 {
		text = "That is " + strings.Join(counts, " and ") + " at this moment. "
	}
	return strings.Join(append([]string{text + "Nothing has been changed yet."}, unknown...), " ")
}

// begin starts an operation in each system. If one refuses, the others go on.
func begin(ctx context.Context, verb string, systems []*failedSystem, form url.Values) (view.Outcome, error) {
	rate, err := parseRate(form.Get("rate"))
	if err != nil {
		return view.Outcome{}, err
	}
	out := view.Outcome{Then: "operations"}
	var begun, refused []string
	var refusals error
	for _, s := range systems {
		id, n, err := s.begin(ctx, s.verbs[verb], s.filter, rate)
		if err != nil {
			refused, refusals = append(refused, s.name), errors.Join(refusals, err)
			continue
		}
		begun = append(begun, "Began to "+verb+" "+started(n, s.noun)+" of the "+s.name+".")
		if out.Count += max(0, n); len(systems) == 1 {
			out.Then = operationLink(s.name, id)
		}
	}
	if out.Text = strings.Join(begun, " "); len(refused) == 0 {
		return out, nil
	}
	return out, unavailable(refusals, "Look at the operations before you try again: those that began go on.", "%s",
		strings.TrimSpace(out.Text+" The "+strings.Join(refused, " and the ")+" did not do this. Nothing was changed there, unless the answer was lost"))
}

// started are the objects of an operation; below 0: how many these are is not known.
func started(n int, noun string) string {
	if n < 0 {
		return noun + "s"
	}
	return view.Count(uint64(n), noun)
}

// form is the filter of the list. It has what the systems that are there can be asked for.
func (f *Failures) form(q url.Values) *view.Filter {
	systems, _ := f.systems(url.Values{}) // an empty query has no time that cannot be read
	reasons, names := options("", "all"), options("", "all")
	for _, s := range systems {
		names = append(names, view.Option{Value: s.name, Text: s.name})
		for _, reason := range s.reasons {
			reasons = append(reasons, view.Option{Value: reason, Text: s.reason(reason)})
		}
	}
	fields := []view.Field{
		choice(q, "system", "System", names),
		searchField(q, "receiver", "Receiver or consumer", ""),
		entry(q, "source", "Source or producer", ""),
		entry(q, "message", "Message", ""),
		choice(q, "reason", "Reason", reasons),
	}
	fields = append(fields, timeFields(q, "Since", "Until")...)
	if f.relay != nil {
		fields = append(fields, choice(q, "stage", "Stage", options("", "all", "from_sender", "from sender", "to_receiver", "to receiver",
			"from_receiver", "from receiver", "to_sender", "to sender")))
	}
	return &view.Filter{Path: "failed", Fields: fields}
}
