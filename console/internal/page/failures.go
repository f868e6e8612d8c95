package page

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
)

// failure is a failed message of the relay or a dead job of the broker.
type failure struct {
	system, id string
	at         time.Time

	receiver, source, message, stage, reason, attempts, text view.Value
}

var failureColumns = []column[failure]{
	number("Failed", func(f failure) view.Value { return view.Ago(f.at, "not stated") }),
	text("Receiver", func(f failure) view.Value { return f.receiver }),
	text("Source", func(f failure) view.Value { return f.source }),
	text("Message", func(f failure) view.Value { return f.message }).wide(),
	text("Stage", func(f failure) view.Value { return f.stage }),
	text("Reason", func(f failure) view.Value { return f.reason }),
	number("Attempts", func(f failure) view.Value { return f.attempts }),
	text("Error", func(f failure) view.Value { return f.text }).wide(),
}

// failedFields are the fields of the page's filter.
var failedFields = []string{"receiver", "source", "message", "stage", "reason", "since", "until"}

// failureList is a system with a list of failures. Filters and verbs have the names of its interface.
type failureList struct {
	name, noun, usualRate string
	fields                []string // in the order of failedFields; empty: it has nothing of that kind
	reasons               []string
	verbs                 map[string]string // by those of the page
	purge                 string            // what else a purge does, in a sentence
	list                  func(ctx context.Context, filter map[string]string, cursor string) (found []failure, next string, err error)
	begin                 func(ctx context.Context, verb string, filter map[string]string, rate float64, dry bool) (id string, n int, err error)
}

// filter is the filter of the system for that of the page; nil: the system has no such failures.
func (s *failureList) filter(page map[string]string) map[string]string {
	own := map[string]string{}
	for i, name := range failedFields {
		switch value := page[name]; {
		case value != "" && s.fields[i] == "":
			return nil
		case value != "":
			own[s.fields[i]] = value
		}
	}
	return own
}

// newest asks for the last failure of a receiver.
func (s *failureList) newest(ctx context.Context, receiver string) newest {
	return func() ([]failure, string, error) {
		return s.list(ctx, map[string]string{s.fields[0]: receiver, "limit": "1"}, "")
	}
}

// filtered are objects in words: those that the fields of a filter select.
func filtered(objects string, fields []string, filter map[string]string) string {
	for _, name := range fields {
		if filter[name] != "" {
			objects += ", " + name + " " + filter[name]
		}
	}
	return objects
}

// failureVerbs are what can be done to failures. All that match are purged only where a filter is set.
var failureVerbs = []struct {
	name, label, confirm string
	danger               bool
}{
	{"requeue", "Requeue", "Try all %s again. Those that fail again come back to this list.", false},
	{"skip", "Skip", "Take all %s off the list. They stay FAILED, and are not tried again.", true},
	{"purge", "Purge", "Take all %s off the list, and give them up: nobody can try them again. This cannot be undone.", true},
}

// actions are for all failures that a filter selects; one: it selects one, on whose page they are.
func (s *failureList) actions(filter map[string]string, one bool) (all []view.Action) {
	words := filtered(s.noun+"s of the "+s.name, s.fields, filter)
	for _, v := range failureVerbs {
		verb := s.verbs[v.name]
		if verb == "" || v.name == "purge" && len(filter) == 0 {
			continue
		}
		a := view.Action{Name: v.name, Label: v.label, Target: words, Danger: v.danger}
		if v.danger || !one {
			a.Confirm = fmt.Sprintf(v.confirm, words)
		}
		if !one {
			a.Name, a.Label = v.name+"-"+s.name, v.label+" all of the "+s.name+" that match"
			a.Fields = []view.Field{rateField(s.usualRate)}
		}
		if !one && v.name == "purge" {
			a.Word, a.Confirm = v.name, a.Confirm+s.purge
		}
		all = append(all, begins(a, s.name, s.noun, v.name, func(ctx context.Context, _ url.Values, rate float64, dry bool) (string, int, error) {
			return s.begin(ctx, verb, filter, rate, dry)
		}))
	}
	return all
}

// Failures is the page of the failures of all systems, with a part for each.
type Failures struct {
	systems []*failureList
	letters *DeadLetters
	feed    *Feed

	mu      sync.Mutex
	tallies map[string]tally // the last ones, by what was asked
}

// NewFailures makes the page. A system that is nil is not there.
func NewFailures(relay *Relay, broker *Broker, letters *DeadLetters, feed *Feed) *Failures {
	f := &Failures{letters: letters, feed: feed, tallies: map[string]tally{}}
	if relay != nil {
		f.systems = append(f.systems, relay.failed)
	}
	if broker != nil {
		f.systems = append(f.systems, broker.failed)
	}
	return f
}

// Pages are the functions of the pages by their paths.
func (f *Failures) Pages() map[string]Func { return map[string]Func{"failed": f.list} }

func (f *Failures) list(ctx context.Context, r Request) (*view.Page, error) {
	filter, err := parameters(r.Query, failedFields...)
	if err != nil {
		return nil, err
	}
	known := func(s *failureList) bool { return slices.Contains(s.reasons, filter["reason"]) }
	elsewhere := slices.ContainsFunc(f.systems, known)
	parts := make([]view.Part, len(f.systems)+1)
	var asked sync.WaitGroup // the systems are asked at the same time
	for i, s := range f.systems {
		own, system := s.filter(filter), r.Query.Get("system")
		if own != nil && (system == "" || system == s.name) && (!elsewhere || known(s)) {
			asked.Go(func() { parts[i] = f.part(ctx, r, s, own) })
		}
	}
	asked.Go(func() { parts[len(parts)-1] = f.others(ctx) })
	asked.Wait()
	parts = slices.DeleteFunc(parts, func(part view.Part) bool { return part.ID == "" })
	if len(parts) == 0 || parts[0].ID == "others" {
		parts = slices.Insert(parts, 0, view.Part{ID: "failed", Lines: []string{failuresEmpty}})
	}
	return &view.Page{Nav: "failed", Title: "Failed", Filter: f.form(r.Query), Parts: parts}, nil
}

const failuresEmpty = "No failure matches. This page lists messages that the relay could not deliver, or whose answer it could not carry back, and dead " +
	"jobs of the broker: those whose attempts all failed."

// part has the failures of a system that its filter selects.
func (f *Failures) part(ctx context.Context, r Request, s *failureList, filter map[string]string) view.Part {
	cursor := r.Query.Get(s.name)
	found, next, err := s.list(ctx, filter, cursor)
	part := view.Part{ID: "failed-" + s.name, Title: capital(s.name), Source: reading(s.name, r, err)}
	if err != nil {
		return part
	}
	part.List = &view.List{Found: view.Bounded(len(found), next != "", "failure"), Path: "failed", Query: r.Query, Empty: failuresEmpty}
	show(part.List, failureColumns, found, func(one failure) string { return "f-" + s.name + "-" + one.id })
	goesOn(part.List, s.name, next, "failure")
	if cursor == "" && filter["reason"] == "" {
		t := f.tally(ctx, s, filter)
		part.Facts = grouped(t.counts, 1, t.more, func(reason string) view.Fact {
			return view.Fact{Name: plain(reason).Text, Value: view.Value{Href: part.List.To(with(r.Query, "reason", reason))}}
		})
	}
	if len(found) > 0 {
		part.Actions = s.actions(filter, false)
	}
	return part
}

// others has the numbers of failures that have lists of their own.
func (f *Failures) others(ctx context.Context) (part view.Part) {
	if f.letters != nil {
		s := f.letters.latest.Fresh(ctx)
		part.Facts = append(part.Facts, answered("Dead letters", "NATS", "deadletters", s, lettersValue(f.letters.letters(s.Value))))
	}
	if f.feed != nil {
		s := f.feed.latest.Fresh(ctx)
		part.Facts = append(part.Facts, answered("Failed items of the feed", feedName, "feed?status=Failed", s, view.Int(s.Value.Failed)))
	}
	if len(part.Facts) > 0 {
		part.ID, part.Title = "others", "Other failures"
	}
	return part
}

// answered is a value of a sample, which is not known while the system does not answer.
func answered[T any](name, system, href string, s sample.Sample[T], v view.Value) view.Fact {
	if s.Err != nil || s.At.IsZero() {
		v = view.Word(view.Warn, "not known now: "+system+" does not answer")
	}
	return view.Fact{Name: name, Value: leads(v, href)}
}

// form is the filter of the lists. It has what the systems that are there can be asked for.
func (f *Failures) form(q url.Values) *view.Filter {
	reasons, names, stages := options("", "all"), options("", "all"), false
	for _, s := range f.systems {
		names = append(names, view.Option{Value: s.name, Text: s.name})
		for _, reason := range s.reasons {
			reasons = append(reasons, view.Option{Value: reason, Text: plain(reason).Text + " (" + s.name + ")"})
		}
		stages = stages || slices.Contains(s.fields, "stage")
	}
	fields := []view.Field{
		choice(q, "system", "System", names),
		searchField(q, "receiver", "Receiver or consumer", ""),
		entry(q, "source", "Source or producer", ""),
		entry(q, "message", "Message", ""),
		choice(q, "reason", "Reason", reasons),
	}
	fields = append(fields, timeFields(q, "Since", "Until")...)
	if stages {
		fields = append(fields, choice(q, "stage", "Stage", options("", "all", "from_sender", "from sender", "to_receiver", "to receiver",
			"from_receiver", "from receiver", "to_sender", "to sender")))
	}
	return &view.Filter{Path: "failed", Fields: fields}
}

// codes are the words for what the systems write as codes.
var codes = map[string]string{
	"redrive": "requeue", "replay": "requeue", "PERMANENT": "permanent error", "EXHAUSTED": "all attempts failed", "NOT_TOLD": "sender not informed",
	"UNKNOWN_OUTCOME": "outcome not known", "RECEIVER_DELETED": "receiver was deleted",
}

// plain is a code of a system in words, with the code as its title.
func plain(code string) view.Value {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
	text := codes[code]
	if text == "" && strings.Trim(code, letters) == "" {
		text = strings.ToLower(strings.ReplaceAll(code, "_", " "))
	}
	if text == "" {
		return view.Text(code)
	}
	return view.Value{Text: text, Title: code}
}
