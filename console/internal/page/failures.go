package page

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/view"
)

// failure is a failed message of the relay or a dead job of the broker.
type failure struct {
	id, reason string
	at         time.Time
	// position orders the failures of a system: the number of the relay's, or the time of the broker's in nanoseconds. 0 means that it is not known.
	position uint64
	more     []view.Value // the values of the other columns
}

var failureColumns = view.Columns(">Failed", "Reason", "Receiver", "Source", "*Message", "Stage", ">Attempts", "*Error")

// failedFields are the fields of the page's filter.
var failedFields = []string{"receiver", "source", "message", "stage", "reason", "since", "until"}

// failureList is a system with a list of failures. Its filters have the names of its interface.
type failureList struct {
	name, noun, usualRate string
	fields                []string // in the order of failedFields; empty if the system has no such field
	reasons, stages       []string
	verbs                 map[string]string // paths in its interface, by the verbs of the page
	purge                 string            // a sentence about what else a purge does
	list                  func(ctx context.Context, filter map[string]string, cursor string) (found []failure, next string, err error)
	begin                 func(ctx context.Context, path string, filter map[string]string, rate float64, dry bool) (id string, n int, err error)
}

// filter converts the page's filter to the system's. It returns nil if the system has no such failures.
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

// last returns the position of the newest failure of a receiver. known is false if the system did not report it.
func (s *failureList) last(ctx context.Context, receiver string) (position uint64, known bool) {
	found, _, err := s.list(ctx, map[string]string{s.fields[0]: receiver, "limit": "1"}, "")
	if err != nil || len(found) == 0 {
		return 0, false
	}
	return found[0].position, found[0].position > 0
}

// filtered describes the objects that match a filter.
func filtered(objects string, filter map[string]string) string {
	for _, name := range slices.Sorted(maps.Keys(filter)) {
		objects += ", " + strings.ToLower(name) + " " + filter[name]
	}
	return objects
}

// failureVerbs are the actions on failures. Purging all that match requires a filter.
var failureVerbs = []struct {
	name, label, confirm string
	danger               bool
}{
	{"requeue", "Requeue", "Try all %s again. Those that fail again come back to this list.", false},
	{"skip", "Skip", "Take all %s off the list. They stay FAILED, and are not tried again.", true},
	{"purge", "Purge", "Take all %s off the list, and give them up: nobody can try them again. This cannot be undone.", true},
}

// actions returns the actions for all failures that match a filter. one means that the filter selects one failure, and that its page shows them.
func (s *failureList) actions(filter map[string]string, one bool) (all []view.Action) {
	words := filtered(s.noun+"s of the "+s.name, filter)
	for _, v := range failureVerbs {
		path := s.verbs[v.name]
		if path == "" || v.name == "purge" && len(filter) == 0 {
			continue
		}
		a := view.Action{Name: v.name, Label: v.label, Target: words, Danger: v.danger}
		if v.danger || !one {
			a.Confirm = fmt.Sprintf(v.confirm, words)
		}
		if !one {
			a.Name, a.Label = v.name+"-"+s.name, v.label+" all that match in the "+s.name
			a.Fields = []view.Field{rateField(s.usualRate)}
		}
		if !one && v.name == "purge" {
			a.Word, a.Confirm = v.name, a.Confirm+s.purge
		}
		all = append(all, begins(a, s.name, s.noun, v.name, func(ctx context.Context, _ url.Values, rate float64, dry bool) (string, int, error) {
			return s.begin(ctx, path, filter, rate, dry)
		}))
	}
	return all
}

// allFailures are the systems on the page of failures, with a part for each, and the systems that have lists of their own.
type allFailures struct {
	systems []*failureList
	others  []Summary
}

// Failures returns the page with the failures of all systems.
func Failures(all []Summary) Family {
	f := &allFailures{}
	for _, one := range all {
		switch one := one.(type) {
		case *Relay:
			f.systems = append(f.systems, one.failed)
		case *Broker:
			f.systems = append(f.systems, one.failed)
		case *DeadLetters, *Feed:
			f.others = append(f.others, one)
		}
	}
	return Family{"Failed", "failed", map[string]Func{"failed": f.list}}
}

func (f *allFailures) list(ctx context.Context, r Request) (*view.Page, error) {
	filter, err := parameters(r.Query, failedFields...)
	if err != nil {
		return nil, err
	}
	known := func(s *failureList) bool { return slices.Contains(s.reasons, filter["reason"]) }
	elsewhere := slices.ContainsFunc(f.systems, known) // a reason that no system knows may be new
	var parts []func() view.Part
	for _, s := range f.systems {
		own, system := s.filter(filter), r.Query.Get("system")
		if own != nil && (system == "" || system == s.name) && (!elsewhere || known(s)) {
			parts = append(parts, func() view.Part { return f.part(ctx, r, s, own) })
		}
	}
	if len(parts) == 0 {
		parts = append(parts, func() view.Part { return view.Part{ID: "failed", Lines: []string{inSentence("no failures", nil)}} })
	}
	for _, one := range f.others {
		parts = append(parts, func() view.Part {
			part := one.Overview(ctx, r).Part
			part.Charts = nil
			return part
		})
	}
	return &view.Page{Nav: "failed", Title: "Failed", Filter: f.form(r.Query), Parts: together(parts, func(build func() view.Part) view.Part {
		return build()
	})}, nil
}

// failuresPage is the number of failures of a system that are shown, and counted by reason. The broker lists no more in a response.
const failuresPage = "100"

// part returns the part with the failures of a system that match its filter.
func (f *allFailures) part(ctx context.Context, r Request, s *failureList, filter map[string]string) view.Part {
	cursor, asked := r.Query.Get(s.name), maps.Clone(filter)
	asked["limit"] = failuresPage
	found, next, err := s.list(ctx, asked, cursor)
	part := view.Part{ID: "failed-" + s.name, Title: capital(s.name), Source: reading(s.name, r, err)}
	if err != nil {
		return part
	}
	part.List = &view.List{
		Found: view.Bounded(len(found), next != "", "failure"), Path: "failed", Query: r.Query, Columns: failureColumns,
		Empty: inSentence("no failures", nil),
	}
	for _, one := range found {
		part.List.Add("f-"+s.name+"-"+one.id, append([]view.Value{view.Ago(one.at, "not stated"), plain(one.reason)}, one.more...)...)
	}
	goesOn(part.List, s.name, next, "failure")
	if cursor == "" && filter["reason"] == "" {
		if next != "" {
			part.Lines = []string{"The reasons are counted among the newest " + failuresPage + " failures."}
		}
		counts, first := map[string]int{}, r.Query
		for _, one := range found {
			counts[one.reason]++
		}
		for _, each := range f.systems {
			first = with(first, each.name, "")
		}
		part.Facts = grouped(counts, 1, next != "", func(reason string, n view.Value) view.Fact {
			return view.Fact{Name: plain(reason).Text, Value: leads(n, part.List.To(with(first, "reason", reason)))}
		})
	}
	if len(found) > 0 {
		part.Actions = s.actions(filter, false)
	}
	return part
}

// form returns the filter of the lists. It has the fields that the configured systems support.
func (f *allFailures) form(q url.Values) []view.Field {
	reasons, names, stages := options("", "all"), options("", "all"), options("", "all")
	for _, s := range f.systems {
		names = append(names, view.Option{Value: s.name, Text: s.name})
		for _, reason := range s.reasons {
			reasons = append(reasons, view.Option{Value: reason, Text: plain(reason).Text + " (" + s.name + ")"})
		}
		stages = append(stages, inPlain(s.stages...)...)
	}
	return append(append([]view.Field{
		choice(q, "system", "System", names),
		searchField(q, "receiver", "Receiver or consumer", ""),
		entry(q, "source", "Source or producer", ""),
		entry(q, "message", "Message", ""),
		choice(q, "reason", "Reason", reasons),
	}, timeFields(q, "Since", "Until")...), choice(q, "stage", "Stage", stages))
}

// codes maps codes of the systems to words.
var codes = map[string]string{
	"redrive": "requeue", "replay": "requeue", "purge-queued": "purge", "PERMANENT": "permanent error", "EXHAUSTED": "all attempts failed",
	"NOT_TOLD": "sender not informed", "UNKNOWN_OUTCOME": "outcome not known", "RECEIVER_DELETED": "receiver was deleted",
	// Reasons why a POST waits.
	"pause": "an operator, who has paused it", "breaker": "the circuit breaker, which is open", "hold": "the receiver, which has asked for a pause",
	"rate": "the rate limit", "concurrency": "POSTs that are in progress, as many as allowed", "store": "a store that takes the outcome of a POST",
	"elsewhere": "another process, which makes the POSTs",
}

// plain returns the words for a code of a system, with the code as the title.
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

// inPlain returns codes as the options of a field.
func inPlain(codes ...string) (all []view.Option) {
	for _, code := range codes {
		all = append(all, view.Option{Value: code, Text: plain(code).Text})
	}
	return all
}

// grouped returns the reasons that least or more failures have, most frequent first. fact makes a fact, with a link, of a reason and its number of
// failures. more means that there may be other failures.
func grouped(counts map[string]int, least int, more bool, fact func(reason string, n view.Value) view.Fact) (all []view.Fact) {
	const most = 8
	for _, reason := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	}) {
		if len(all) == most || reason == "" || counts[reason] < least {
			continue
		}
		n := view.Int(counts[reason])
		if more {
			n.Text += "+"
		}
		all = append(all, fact(reason, n))
	}
	return all
}

// Marks record up to where somebody has looked at the failures of an object. They do not cover later failures. Marks is safe for concurrent use.
type Marks struct{ *operation.Store[look] }

// look is the last mark of an object.
type look struct {
	Object string    `json:"object"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	// Sequence is the last message of a stream that was created at Created, or the number of the relay's last failure. If Timed, it is the time of
	// the broker's last failure, in nanoseconds.
	Sequence uint64    `json:"sequence,omitempty"`
	Timed    bool      `json:"timed,omitempty"`
	Created  time.Time `json:"created,omitzero"`
}

// NewMarks returns empty Marks. Of two marks of an object, the later one counts.
func NewMarks() *Marks {
	return &Marks{operation.NewStore("seen.", 0, func(own, kept look) bool { return kept.At.Before(own.At) })}
}

func markKey(object string) string { return base64.RawURLEncoding.EncodeToString([]byte(object)) }

func (m *Marks) of(object string) look {
	one, _ := m.Get(markKey(object))
	return one
}

// words describes the mark of an object that has one.
func (one look) words() string {
	return inSentence("looked", map[string]any{"Mark": one, "Time": time.Unix(0, int64(one.Sequence))})
}

// covers reports whether somebody has looked at all failures of a receiver. If there is a mark, it asks the system. known is false if that fails.
func (m *Marks) covers(ctx context.Context, object string, s *failureList, receiver string) (all, known bool) {
	mark := m.of(object)
	if mark.By == "" {
		return false, true
	}
	last, known := s.last(ctx, receiver)
	return known && last <= mark.Sequence, known
}

// action returns the action that marks the failures of an object. The form has the sequence that the user saw, so that the mark does not cover later
// failures. The current page, which may have more, limits it. A user without a personal name may enter one.
func (m *Marks) action(present look, r Request) view.Action {
	fields := []view.Field{
		{Name: "shown", Value: strconv.FormatUint(present.Sequence, 10), Hidden: true}, {Name: "object", Value: present.Object, Hidden: true},
	}
	unnamed := r.User == "admin" || r.User == "anybody"
	if unnamed {
		fields = append(fields, view.Field{Name: "by", Label: "Your name"})
	}
	return view.Action{
		Name: "seen", Label: "Mark as looked at", Target: present.Object, Fields: fields,
		Do: func(ctx context.Context, form url.Values) (view.Outcome, error) {
			shown := present
			seq, err := strconv.ParseUint(form.Get("shown"), 10, 64)
			if err != nil {
				return view.Outcome{}, invalid("Open the page again.", "%q is no sequence that a page has shown. Nothing was marked.", form.Get("shown"))
			}
			if o := form.Get("object"); o != "" && o != present.Object { // the page now shows another first stream
				return view.Outcome{}, impossible("Open the page again.", "This page is that of %s now. Nothing was marked.", present.Object)
			}
			shown.Sequence, shown.By, shown.At = min(seq, present.Sequence), r.User, r.Now
			if unnamed {
				shown.By = cmp.Or(strings.TrimSpace(form.Get("by")), shown.By)
			}
			if len(shown.By) > 100 {
				return view.Outcome{}, invalid("Give a name of at most 100 bytes.", "The name has %d bytes. Nothing was marked.", len(shown.By))
			}
			if err := m.Set(ctx, markKey(shown.Object), shown); err != nil {
				return view.Outcome{}, unavailable(err, "Try again.", "The mark was not stored")
			}
			return done("Marked as looked at by " + shown.By + ". Failures that come later are not."), nil
		},
	}
}
