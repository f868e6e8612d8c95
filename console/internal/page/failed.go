package page

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/view"
)

// failure is a failed message of the relay or a dead job of the broker. Its system's list continues after it at its cursor.
type failure struct {
	system, id, cursor string
	at                 time.Time
	cells              []view.Value // from the receiver on
	stale              bool         // its system does not answer now
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

// timesOf replaces the times of a filter that a user has entered by those that the systems take.
func timesOf(filter map[string]string) error {
	var bounds []time.Time
	for _, name := range []string{"since", "until"} {
		if filter[name] == "" {
			continue
		}
		at, err := parseTime(filter[name])
		if err != nil {
			return err
		}
		bounds, filter[name] = append(bounds, at), at.UTC().Format(time.RFC3339)
	}
	if len(bounds) == 2 && !bounds[1].After(bounds[0]) {
		return invalid("Give an end that is later.", "%s, the end of the time, is not after %s, its begin.", filter["until"], filter["since"])
	}
	return nil
}

// systems are the systems that can have failures that the query selects.
func (f *Failures) systems(q url.Values) (all []*failedSystem, err error) {
	if f.relay != nil {
		all = append(all, &failedSystem{
			name: relayName, noun: "failed message", fields: failedFields, usualRate: "no limit",
			reasons: []string{"PERMANENT", "EXHAUSTED", "UNKNOWN_OUTCOME", "EXPIRED", "UNKNOWN_RECEIVER", "RECEIVER_DELETED", "NO_RESPONSE", "NOT_TOLD", "MALFORMED"},
			list:    f.relay.failures, count: f.relay.count, verbs: map[string]string{"requeue": "redrive", "skip": "skip", "purge": "purge"},
			begin: func(ctx context.Context, verb string, filter map[string]string, rate float64) (string, int, error) {
				o, err := f.relay.begin(ctx, verb, filter, rate)
				return o.ID, o.Matched, err
			},
		})
	}
	if f.broker != nil {
		all = append(all, f.broker.deadSystem())
	}
	filter := map[string]string{}
	for _, name := range failedFields {
		if value := strings.TrimSpace(q.Get(name)); value != "" {
			filter[name] = value
		}
	}
	if err := timesOf(filter); err != nil {
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

// words describe what the filter selects.
func (s *failedSystem) words() string {
	words := s.noun + "s of the " + s.name
	for _, name := range s.fields {
		if s.filter[name] != "" {
			words += ", " + name + " " + s.filter[name]
		}
	}
	return words
}

// failedItem is a line of the relay's list of failed messages.
type failedItem struct {
	ID        string    `json:"id"`
	SourceID  string    `json:"source_id"`
	MessageID string    `json:"message_id"`
	Receiver  string    `json:"receiver"`
	Stage     string    `json:"stage"`
	Reason    string    `json:"reason"`
	Error     string    `json:"error"`
	Time      time.Time `json:"time"`
	Attempts  int       `json:"attempts"`
}

// failedFields are the filters of the relay's list of failed messages, by their names in its interface.
var failedFields = []string{"receiver", "source", "message", "stage", "reason", "since", "until"}

// failedWords describe a filter. There is none for messages that were chosen by their IDs.
func failedWords(filter map[string]string) string {
	if filter == nil {
		return "failed messages that were chosen one by one"
	}
	words := "failed messages"
	for _, name := range failedFields {
		if filter[name] != "" {
			words += ", " + name + " " + filter[name]
		}
	}
	return words
}

// failures asks the relay for failed messages that a filter of its interface selects, from a cursor on.
func (y *Relay) failures(ctx context.Context, filter map[string]string, cursor string) (found []failure, next string, err error) {
	asked := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for name, value := range filter {
		asked.Set(name, value)
	}
	if cursor != "" {
		asked.Set("cursor", cursor)
	}
	var answer struct {
		Items  []failedItem `json:"items"`
		Cursor string       `json:"cursor"`
	}
	err = y.call.Call(ctx, http.MethodGet, "/v1/failed?"+asked.Encode(), nil, &answer)
	for _, f := range answer.Items {
		found = append(found, failure{system: relayName, id: f.ID, at: f.Time, cursor: f.ID, cells: []view.Value{
			view.Linked(f.Receiver, link("receiver", "name", f.Receiver)), view.Text(f.SourceID), view.Linked(f.MessageID, link("relaymessage", "source", f.SourceID, "id", f.MessageID)),
			view.Text(f.Stage), view.Text(f.Reason), view.Int(f.Attempts), view.Sentence(f.Error),
		}})
	}
	return found, answer.Cursor, err
}

// begin starts an operation on all failed messages that a filter selects.
func (y *Relay) begin(ctx context.Context, verb string, filter map[string]string, rate float64) (relayOperation, error) {
	var o relayOperation
	err := y.call.Call(ctx, http.MethodPost, "/v1/failed:"+verb, map[string]any{"filter": filter, "rate": rate}, &o)
	return o, err
}

// oneFailed adds the actions on a failed message to its page, if the message is on the list.
func (y *Relay) oneFailed(ctx context.Context, part *view.Part, source, id string) {
	filter := map[string]string{"source": source, "message": id}
	var answer struct {
		Items []failedItem `json:"items"`
	}
	err := y.call.Call(ctx, http.MethodGet, "/v1/failed?"+url.Values{"source": {source}, "message": {id}}.Encode(), nil, &answer)
	switch {
	case err != nil:
		part.Lines = []string{"Whether it is on the list of failed messages is not known now: " + err.Error()}
	case len(answer.Items) == 0:
		part.Lines = []string{"It is not on the list of failed messages: it was skipped or purged, or the list has dropped it."}
	default:
		part.Actions = y.failedActions(filter)
	}
}

// failedActions are for the only failed message that a filter selects.
func (y *Relay) failedActions(filter map[string]string) []view.Action {
	words := failedWords(filter)
	one := func(verb, label, confirm string) view.Action {
		return view.Action{Name: verb, Label: label, Target: words, Danger: confirm != "", Confirm: confirm, Do: func(ctx context.Context, _ url.Values) (view.Outcome, error) {
			o, err := y.begin(ctx, verb, filter, 0)
			if err != nil {
				return view.Outcome{}, systemRefused(relayName, err)
			}
			return view.Outcome{Count: o.Matched, Text: fmt.Sprintf("Began to %s %s.", verb, view.Count(uint64(o.Matched), "message"))}, nil
		}}
	}
	return []view.Action{
		one("redrive", "Redrive", ""),
		one("skip", "Skip", "Take "+words+" off the list of failed messages. They stay FAILED, and are not tried again."),
		one("purge", "Purge", "Take "+words+" off the list of failed messages, and delete their payloads. This cannot be undone."),
	}
}

// count is how many failed messages a filter selects.
func (y *Relay) count(ctx context.Context, verb string, filter map[string]string) (int, error) {
	var answer struct {
		Matched int `json:"matched"`
	}
	err := y.call.Call(ctx, http.MethodPost, "/v1/failed:"+verb, map[string]any{"filter": filter, "dry_run": true}, &answer)
	return answer.Matched, err
}

// relayOperation is an operation of the relay.
type relayOperation struct {
	ID      string            `json:"id"`
	Verb    string            `json:"verb"`
	State   string            `json:"state"`
	Matched int               `json:"matched"`
	Done    int               `json:"done"`
	Skipped int               `json:"skipped"`
	By      string            `json:"by"`
	Began   time.Time         `json:"began"`
	Changed time.Time         `json:"changed"`
	Filter  map[string]string `json:"filter"`
}

// System implements [OperationSource].
func (y *Relay) System() string { return relayName }

// Operations implements [OperationSource].
func (y *Relay) Operations(ctx context.Context) ([]Operation, error) {
	var answer struct {
		Items []relayOperation `json:"items"`
	}
	if err := y.call.Call(ctx, http.MethodGet, "/v1/operations", nil, &answer); err != nil {
		return nil, err
	}
	all := make([]Operation, len(answer.Items))
	for i, o := range answer.Items {
		all[i] = Operation{
			System: relayName, ID: o.ID, Kind: o.Verb, By: o.By, What: failedWords(o.Filter), State: o.State,
			Matched: o.Matched, Done: o.Done, Skipped: o.Skipped, Began: o.Began, Changed: o.Changed,
		}
	}
	return all, nil
}

// CancelOperation implements [OperationSource].
func (y *Relay) CancelOperation(ctx context.Context, id string) error {
	return y.call.Call(ctx, http.MethodDelete, "/v1/operations/"+url.PathEscape(id), nil, nil)
}

// deadFields are the filters of the broker's list of dead jobs, by their names in its interface.
var deadFields = []string{"consumer", "producer", "message", "reason", "since", "until"}

// deadSystem is the broker with its list of dead jobs.
func (b *Broker) deadSystem() *failedSystem {
	return &failedSystem{
		name: brokerName, noun: "dead job", fields: deadFields, usualRate: "100", names: map[string]string{"receiver": "consumer", "source": "producer"},
		reasons: []string{"REFUSED", "NO_ANSWER", "GIVEN_UP"},
		list:    b.failures, count: b.countDead, verbs: map[string]string{"requeue": "requeue", "purge": "purge"}, begin: b.beginDead,
	}
}

// deadJobs are the dead jobs of one consumer, which the page's filter selects from those of all consumers.
func (b *Broker) deadJobs(ctx context.Context, r Request, of jobs) (view.Part, *view.Filter, error) {
	q, s := r.Query, b.deadSystem()
	s.filter = map[string]string{"consumer": of.Channel + "/" + of.Consumer}
	for _, name := range deadFields[1:] { // the consumer is that of the page
		if value := strings.TrimSpace(q.Get(name)); value != "" {
			s.filter[name] = value
		}
	}
	part := view.Part{ID: "dead", Title: "Dead jobs", Source: view.Source{Name: brokerName, Asked: r.Now}}
	if err := timesOf(s.filter); err != nil {
		return part, nil, err
	}
	reasons := []view.Option{{Text: "all"}}
	for _, reason := range s.reasons {
		reasons = append(reasons, view.Option{Value: reason, Text: reason})
	}
	filter := &view.Filter{Path: "brokerconsumer", Fields: []view.Field{
		{Name: "channel", Value: of.Channel, Hidden: true},
		{Name: "consumer", Value: of.Consumer, Hidden: true},
		{Name: "message", Label: "Message of a dead job", Value: q.Get("message"), Type: "search"},
		{Name: "producer", Label: "Producer", Value: q.Get("producer")},
		choice(q, "reason", "Reason", reasons...),
		{Name: "since", Label: "Dead since (UTC)", Value: q.Get("since"), Type: "datetime-local"},
		{Name: "until", Label: "Dead until (UTC)", Value: q.Get("until"), Type: "datetime-local"},
	}}
	var next string
	if s.found, next, s.err = s.list(ctx, s.filter, q.Get("next")); s.err != nil {
		part.Source = view.Source{Name: brokerName, Error: s.err.Error()}
		return part, filter, nil //nolint:nilerr // the part states the error
	}
	part.Actions = actions([]*failedSystem{s})
	part.List = &view.List{
		Found: fmt.Sprintf("%s shown of %d", view.Bounded(len(s.found), false, "dead job"), of.dead), Path: "brokerconsumer", Query: q, Empty: "No job is dead.",
		Columns: []view.Column{{Title: "Dead since"}, {Title: "Producer"}, {Title: "Message", Wide: true}, {Title: "Reason"}, {Title: "Attempts", Number: true}, {Title: "Error", Wide: true}},
	}
	if len(s.filter) > 1 {
		part.List.Empty = "No dead job matches."
	}
	if next != "" {
		part.List.Next = with(q, "next", next)
	}
	for _, one := range s.found {
		part.List.Rows = append(part.List.Rows, view.Row{ID: "j-" + one.id, Cells: append([]view.Value{view.Ago(one.at, "not stated"), one.cells[1], one.cells[2]}, one.cells[4:]...)})
	}
	return part, filter, nil
}

// failures asks the broker for dead jobs of all consumers that a filter of its interface selects, from a cursor on.
func (b *Broker) failures(ctx context.Context, filter map[string]string, cursor string) (found []failure, next string, err error) {
	asked := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for name, value := range filter {
		asked.Set(name, value)
	}
	if cursor != "" { // it is before the filter's own
		asked.Set("until", cursor)
	}
	var answer struct {
		Result []struct {
			ID, ChannelID, ConsumerID, MessageID, ProducedBy, Reason string
			DeadSince                                                time.Time
			StatusCode, Attempts                                     int
		}
		Next string
	}
	err = b.call.Call(ctx, http.MethodGet, "/dead-jobs?"+asked.Encode(), nil, &answer)
	for _, j := range answer.Result {
		attempts, text := view.Int(j.Attempts), "Its worker gave it up, or did not complete it in time."
		switch j.Reason {
		case "REFUSED":
			text = fmt.Sprintf("The consumer answered with status %d.", j.StatusCode)
		case "NO_ANSWER":
			text = "The consumer did not answer."
		default:
			attempts = view.None("The broker counts callbacks, which a pull consumer does not get")
		}
		found = append(found, failure{system: brokerName, id: j.ID, at: j.DeadSince, cursor: j.DeadSince.Format(time.RFC3339Nano), cells: []view.Value{
			view.Linked(j.ChannelID+"/"+j.ConsumerID, link("brokerconsumer", "channel", j.ChannelID, "consumer", j.ConsumerID)), view.Text(j.ProducedBy),
			view.Linked(j.MessageID, link("brokermessage", "channel", j.ChannelID, "id", j.MessageID)),
			view.None("The broker has no stages"), view.Text(j.Reason), attempts, view.Sentence(text),
		}})
	}
	return found, answer.Next, err
}

// deadBody is a request for all dead jobs that a filter selects. Its fields are those of the filter, capitalized.
func deadBody(filter map[string]string) map[string]any {
	body := map[string]any{}
	for name, value := range filter {
		body[strings.ToUpper(name[:1])+name[1:]] = value
	}
	return body
}

// countDead is how many dead jobs a filter selects.
func (b *Broker) countDead(ctx context.Context, verb string, filter map[string]string) (int, error) {
	body := deadBody(filter)
	body["DryRun"] = true
	var answer struct{ Count int }
	err := b.call.Call(ctx, http.MethodPost, "/dead-jobs/"+verb, body, &answer)
	return answer.Count, err
}

// beginDead starts an operation on all dead jobs that a filter selects, and returns its path and the number of the jobs, which is -1
// if the operation has begun and the broker does not state it.
func (b *Broker) beginDead(ctx context.Context, verb string, filter map[string]string, rate float64) (at string, n int, err error) {
	body := deadBody(filter)
	if rate > 0 {
		body["Rate"] = rate
	}
	header, err := b.call.Send(ctx, http.MethodPost, "/dead-jobs/"+verb, nil, body, nil)
	if err != nil {
		return "", 0, err
	}
	at = header.Get("Location")
	begun := struct{ Count int }{-1}
	_ = b.call.Call(ctx, http.MethodGet, at, nil, &begun) // the count stays unknown
	return at, begun.Count, nil
}

// deadOperations are the operations on dead jobs of all consumers.
func (b *Broker) deadOperations(ctx context.Context) (all []Operation, err error) {
	var answer struct {
		Result []struct {
			URL, Kind, State, By string
			Count, Done, Skipped int
			Filter               json.RawMessage
			CreatedAt, ChangedAt time.Time
		}
	}
	if err := b.call.Call(ctx, http.MethodGet, "/dead-jobs/operations", nil, &answer); err != nil {
		return nil, err
	}
	for _, o := range answer.Result {
		var filter map[string]string
		if err := json.Unmarshal(o.Filter, &filter); err != nil {
			return nil, fmt.Errorf("read the filter of operation %s: %w", o.URL, err)
		}
		words := "dead jobs"
		for _, name := range deadFields {
			if value := filter[strings.ToUpper(name[:1])+name[1:]]; value != "" {
				words += ", " + name + " " + value
			}
		}
		all = append(all, Operation{
			System: brokerName, ID: o.URL, Kind: o.Kind, By: o.By, What: words, State: strings.ToLower(o.State),
			Matched: o.Count, Done: o.Done, Skipped: o.Skipped, Began: o.CreatedAt, Changed: o.ChangedAt,
		})
	}
	return all, nil
}
