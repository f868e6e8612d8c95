package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/view"
)

// failure is a failed message of the relay or a dead job of the broker. Its system's list continues after it at its cursor.
type failure struct {
	system, id, cursor string
	at                 time.Time
	stale              bool // its system does not answer now

	receiver, source, message, stage, reason, attempts, text view.Value
}

// failureColumns are those of the list of all systems.
var failureColumns = []column[failure]{
	number("Failed", func(f failure) view.Value { return view.Ago(f.at, "not stated") }),
	text("System", func(f failure) view.Value { return view.Text(f.system) }),
	text("Receiver", func(f failure) view.Value { return f.receiver }),
	text("Source", func(f failure) view.Value { return f.source }),
	text("Message", func(f failure) view.Value { return f.message }).wide(),
	text("Stage", func(f failure) view.Value { return f.stage }),
	text("Reason", func(f failure) view.Value { return f.reason }),
	number("Attempts", func(f failure) view.Value { return f.attempts }),
	text("Error", func(f failure) view.Value { return f.text }).wide(),
}

// failedSystem is a system with a list of failures.
type failedSystem struct {
	name, noun string
	fields     []string          // of its filter
	names      map[string]string // of the page's fields in its filter, where they differ
	reasons    []string
	usualRate  string
	list       func(ctx context.Context, filter map[string]string, cursor string) ([]failure, string, error)
	count      func(ctx context.Context, verb string, filter map[string]string) (int, error)
	// begin starts an operation, and returns its ID and the number of its objects; below 0: that is not known.
	begin func(ctx context.Context, verb string, filter map[string]string, rate float64) (id string, n int, err error)
	verbs map[string]string // of the page's actions

	filter map[string]string
	seen   // the answer: that of now if err is nil, and an earlier one or none otherwise
	err    error
}

// end is the cursor of a list that has been shown to its end.
const end = "end"

// systems are the systems that can have failures that the query selects.
func (f *Failures) systems(q url.Values) (all []*failedSystem, err error) {
	if f.relay != nil {
		all = append(all, &failedSystem{
			name: relayName, noun: "failed message", fields: failedFields, usualRate: "no limit",
			reasons: []string{
				"PERMANENT", "EXHAUSTED", "UNKNOWN_OUTCOME", "EXPIRED", "UNKNOWN_RECEIVER", "RECEIVER_DELETED", "NO_RESPONSE", "NOT_TOLD",
				"MALFORMED",
			},
			list: f.relay.failures, count: f.relay.count, verbs: map[string]string{"requeue": "redrive", "skip": "skip", "purge": "purge"},
			begin: f.relay.begin,
		})
	}
	if f.broker != nil {
		all = append(all, f.broker.deadSystem())
	}
	filter, err := parameters(q, failedFields...)
	if err != nil {
		return nil, err
	}
	known := func(s *failedSystem) bool { return slices.Contains(s.reasons, filter["reason"]) }
	elsewhere := slices.ContainsFunc(all, known)
	all = slices.DeleteFunc(all, func(s *failedSystem) bool {
		if q.Get("system") != "" && q.Get("system") != s.name || filter["reason"] != "" && elsewhere && !known(s) {
			return true
		}
		s.filter = map[string]string{}
		for name, value := range filter {
			name = cmp.Or(s.names[name], name)
			if !slices.Contains(s.fields, name) {
				return true // it has nothing of that kind
			}
			s.filter[name] = value
		}
		return false
	})
	return all, nil
}

// unknown reports whether a system does not answer, and has never answered this.
func (s *failedSystem) unknown() bool { return s.err != nil && s.at.IsZero() }

// reason is a reason of the system in words.
func (s *failedSystem) reason(code string) string { return plain(code).Text + " (" + s.name + ")" }

// filtered are objects in words: those that the fields of a filter select.
func filtered(objects string, fields []string, filter map[string]string) string {
	for _, name := range fields {
		if filter[name] != "" {
			objects += ", " + name + " " + filter[name]
		}
	}
	return objects
}

// words describe what the filter selects.
func (s *failedSystem) words() string { return filtered(s.noun+"s of the "+s.name, s.fields, s.filter) }

// failedFields are the filters of the relay's list of failed messages, by their names in its interface.
var failedFields = []string{"receiver", "source", "message", "stage", "reason", "since", "until"}

// failedWords describe a filter. There is none for messages that were chosen by their IDs.
func failedWords(filter map[string]string) string {
	if filter == nil {
		return "failed messages that were chosen one by one"
	}
	return filtered("failed messages", failedFields, filter)
}

// failures asks the relay for failed messages that a filter of its interface selects, from a cursor on.
func (y *Relay) failures(ctx context.Context, filter map[string]string, cursor string) (found []failure, next string, err error) {
	var answer struct {
		Items []struct {
			ID                             string
			SourceID                       string `json:"source_id"`
			MessageID                      string `json:"message_id"`
			Receiver, Stage, Reason, Error string
			Time                           time.Time
			Attempts                       int
		} `json:"items"`
		Cursor string `json:"cursor"`
	}
	err = y.call.Call(ctx, http.MethodGet, "/v1/failed?"+asked(filter, "cursor", cursor), nil, &answer)
	for _, f := range answer.Items {
		found = append(found, failure{
			system: relayName, id: f.ID, at: f.Time, cursor: f.ID,
			receiver: view.Linked(f.Receiver, link("receiver", "name", f.Receiver)), source: view.Text(f.SourceID),
			message: view.Linked(f.MessageID, link("relaymessage", "source", f.SourceID, "id", f.MessageID)),
			stage:   plain(f.Stage), reason: plain(f.Reason), attempts: view.Int(f.Attempts), text: view.Sentence(f.Error),
		})
	}
	return found, answer.Cursor, err
}

// begin starts an operation on all failed messages that a filter selects.
func (y *Relay) begin(ctx context.Context, verb string, filter map[string]string, rate float64) (id string, n int, err error) {
	var o operation.Operation
	err = y.call.Call(ctx, http.MethodPost, "/v1/failed:"+verb, map[string]any{"filter": filter, "rate": rate}, &o)
	return o.ID, o.Matched, err
}

// oneFailed adds the actions on a failed message to its page, if the message is on the list.
func (y *Relay) oneFailed(ctx context.Context, part *view.Part, source, id string) {
	filter := map[string]string{"source": source, "message": id}
	found, _, err := y.failures(ctx, filter, "")
	switch {
	case err != nil:
		part.Lines = []string{"Whether it is on the list of failed messages is not known now: " + err.Error()}
	case len(found) == 0:
		part.Lines = []string{"It is not on the list of failed messages: it was skipped or purged, or the list has dropped it."}
	default:
		part.Actions = y.failedActions(filter)
	}
}

// failedActions are for the only failed message that a filter selects.
func (y *Relay) failedActions(filter map[string]string) []view.Action {
	words := failedWords(filter)
	one := func(verb, label, confirm string) view.Action {
		return view.Action{
			Name: verb, Label: label, Target: words, Danger: confirm != "", Confirm: confirm,
			Do: act(systemRefused(relayName), func(ctx context.Context, _ url.Values) (view.Outcome, error) {
				_, n, err := y.begin(ctx, verb, filter, 0)
				return view.Outcome{Count: n, Text: fmt.Sprintf("Began to %s %s.", strings.ToLower(label), view.Count(uint64(n), "message"))}, err
			}),
		}
	}
	return []view.Action{
		one("redrive", "Requeue", ""),
		one("skip", "Skip", "Take "+words+" off the list of failed messages. They stay FAILED, and are not tried again."),
		one("purge", "Purge", "Take "+words+" off the list of failed messages, and delete their payloads. This cannot be undone."),
	}
}

// count is how many failed messages a filter selects.
func (y *Relay) count(ctx context.Context, verb string, filter map[string]string) (int, error) {
	var o operation.Operation
	err := y.call.Call(ctx, http.MethodPost, "/v1/failed:"+verb, map[string]any{"filter": filter, "dry_run": true}, &o)
	return o.Matched, err
}

// System implements [operation.Source].
func (y *Relay) System() string { return relayName }

// Operations implements [operation.Source].
func (y *Relay) Operations(ctx context.Context) ([]operation.Operation, error) {
	var answer struct {
		Items []struct {
			operation.Operation
			Verb   string
			Filter map[string]string
		}
	}
	if err := y.call.Call(ctx, http.MethodGet, "/v1/operations", nil, &answer); err != nil {
		return nil, err
	}
	all := make([]operation.Operation, len(answer.Items))
	for i, o := range answer.Items {
		o.System, o.Kind, o.What = relayName, plain(o.Verb).Text, failedWords(o.Filter)
		all[i] = o.Operation
	}
	return all, nil
}

// CancelOperation implements [operation.Source].
func (y *Relay) CancelOperation(ctx context.Context, id string) error {
	return y.call.Call(ctx, http.MethodDelete, "/v1/operations/"+url.PathEscape(id), nil, nil)
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
