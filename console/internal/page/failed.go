package page

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/view"
)

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

// failedFields are the filters of the list of failed messages. The interface of the relay has the same names.
var failedFields = []string{"receiver", "source", "message", "stage", "reason", "since"}

func failedFilter(q url.Values) (filter map[string]string, err error) {
	filter = map[string]string{}
	for _, name := range failedFields {
		value := strings.TrimSpace(q.Get(name))
		if value == "" {
			continue
		}
		if name == "since" {
			at, err := parseTime(value)
			if err != nil {
				return nil, err
			}
			value = at.UTC().Format(time.RFC3339)
		}
		filter[name] = value
	}
	return filter, nil
}

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

func (y *Relay) failed(ctx context.Context, r Request) (*view.Page, error) {
	q := r.Query
	filter, err := failedFilter(q)
	if err != nil {
		return nil, err
	}
	asked := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for name, value := range filter {
		asked.Set(name, value)
	}
	if cursor := q.Get("cursor"); cursor != "" {
		asked.Set("cursor", cursor)
	}
	ctx, cancel := context.WithTimeout(ctx, sample.Patience)
	defer cancel()
	var answer struct {
		Items  []failedItem `json:"items"`
		Cursor string       `json:"cursor"`
	}
	part := view.Part{ID: "failed", Title: "Failed messages of the relay", Source: view.Source{Name: relayName, Asked: r.Now}}
	if err := y.call.Call(ctx, http.MethodGet, "/v1/failed?"+asked.Encode(), nil, &answer); err != nil {
		part.Source = view.Source{Name: relayName, Error: err.Error()}
	}
	list := &view.List{
		Found: view.Bounded(len(answer.Items), answer.Cursor != "", "failed message"), Path: "failed", Query: q,
		Empty: "No failed message matches. This list shows messages that the relay could not deliver, or whose answer it could not carry back.",
		Columns: []view.Column{
			{Title: "Failed", Number: true}, {Title: "Receiver"}, {Title: "Source"}, {Title: "Message", Wide: true}, {Title: "Stage"}, {Title: "Reason"}, {Title: "Attempts", Number: true}, {Title: "Error", Wide: true},
		},
	}
	if answer.Cursor != "" {
		list.Next = with(q, "cursor", answer.Cursor)
	}
	for _, f := range answer.Items {
		list.Rows = append(list.Rows, view.Row{ID: "f-" + f.ID, Cells: []view.Value{
			view.Ago(f.Time, "not stated"), view.Linked(f.Receiver, link("receiver", "name", f.Receiver)), view.Text(f.SourceID),
			view.Linked(f.MessageID, link("relaymessage", "source", f.SourceID, "id", f.MessageID)), view.Text(f.Stage), view.Text(f.Reason), view.Int(f.Attempts), view.Sentence(f.Error),
		}})
	}
	part.List = list
	if len(answer.Items) > 0 {
		part.Actions = y.failedActions(filter, false)
	}
	fields := []view.Field{
		{Name: "receiver", Label: "Receiver", Value: q.Get("receiver"), Type: "search"},
		{Name: "source", Label: "Source", Value: q.Get("source")},
		{Name: "message", Label: "Message", Value: q.Get("message")},
		{Name: "stage", Label: "Stage", Value: q.Get("stage")},
		{Name: "reason", Label: "Reason", Value: q.Get("reason")},
		{Name: "since", Label: "Since (UTC)", Value: q.Get("since"), Type: "datetime-local"},
	}
	page := &view.Page{Nav: "failed", Title: "Failed", Filter: &view.Filter{Path: "failed", Fields: fields}, Parts: []view.Part{part}}
	if y.broker != nil {
		page.Parts = append(page.Parts, y.broker.failed(ctx, q.Get("receiver")))
	}
	return page, nil
}

// failed lists the consumers that have dead jobs. Their pages have the actions.
func (b *Broker) failed(ctx context.Context, receiver string) view.Part {
	s := b.latest.Fresh(ctx)
	part := view.Part{ID: "dead", Title: "Dead jobs of the broker", Source: source(brokerName, s)}
	part.List = &view.List{
		Path: "failed", Empty: "No consumer of this name has dead jobs. This list shows consumers of the broker that refused messages in all attempts. Only the filter for the receiver applies to it.",
		Columns: []view.Column{{Title: "Consumer"}, {Title: "Since", Help: "When the first of its dead jobs became so"}, {Title: "Dead", Number: true}},
	}
	for _, one := range s.Value {
		if name := one.Channel + "/" + one.Consumer; one.dead > 0 && contains(receiver, name) && len(part.List.Rows) < pageSize {
			part.List.Rows = append(part.List.Rows, view.Row{ID: "k-" + name, Cells: []view.Value{
				view.Linked(name, link("brokerconsumer", "channel", one.Channel, "consumer", one.Consumer)), view.Ago(one.oldestDead, "not stated"), view.Int(one.dead),
			}})
		}
	}
	part.List.Found = view.Bounded(len(part.List.Rows), len(part.List.Rows) == pageSize, "consumer")
	return part
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
		part.Actions = y.failedActions(filter, true)
	}
}

// failedActions are for all messages that a filter matches, or for the only one.
func (y *Relay) failedActions(filter map[string]string, single bool) []view.Action {
	words := failedWords(filter)
	one := func(verb, label, confirm string, danger bool) view.Action {
		a := view.Action{Name: verb, Label: label, Target: words, Danger: danger, Confirm: confirm}
		if !single {
			a.Name, a.Label, a.Fields = verb+"-all", label+" all that match", []view.Field{rateField}
			a.Preview = func(ctx context.Context, _ url.Values) string { return y.preview(ctx, verb, filter) }
		}
		a.Do = func(ctx context.Context, form url.Values) (view.Outcome, error) {
			rate, err := parseRate(form.Get("rate"))
			if err != nil {
				return view.Outcome{}, err
			}
			var o relayOperation
			if err := y.call.Call(ctx, http.MethodPost, "/v1/failed:"+verb, map[string]any{"filter": filter, "rate": rate}, &o); err != nil {
				return view.Outcome{}, systemRefused(relayName, err)
			}
			out := view.Outcome{Count: o.Matched, Text: fmt.Sprintf("Began to %s %s.", verb, view.Count(uint64(o.Matched), "message"))}
			if !single {
				out.Then = operationLink(relayName, o.ID)
			}
			return out, nil
		}
		return a
	}
	redrive := "Try all " + words + " again. What fails again comes back to this list."
	if single {
		redrive = ""
	}
	return []view.Action{
		one("redrive", "Redrive", redrive, false),
		one("skip", "Skip", "Take "+words+" off the list of failed messages. They stay FAILED, and are not tried again.", true),
		one("purge", "Purge", "Take "+words+" off the list of failed messages, and delete their payloads. This cannot be undone.", true),
	}
}

func (y *Relay) preview(ctx context.Context, verb string, filter map[string]string) string {
	var answer struct {
		Matched int `json:"matched"`
	}
	if err := y.call.Call(ctx, http.MethodPost, "/v1/failed:"+verb, map[string]any{"filter": filter, "dry_run": true}, &answer); err != nil {
		return "How many these are is not known: " + err.Error()
	}
	return "That is " + view.Count(uint64(answer.Matched), "message") + " at this moment. Nothing has been changed yet."
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
