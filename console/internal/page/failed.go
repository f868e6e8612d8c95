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
var failedFields = []string{"receiver", "source", "stage", "reason", "since"}

func failedFilter(q url.Values) (filter url.Values, words string, err error) {
	filter = url.Values{}
	words = "failed messages"
	for _, name := range failedFields {
		value := strings.TrimSpace(q.Get(name))
		if value == "" {
			continue
		}
		if name == "since" {
			at, err := parseTime(value)
			if err != nil {
				return nil, "", err
			}
			value = at.UTC().Format(time.RFC3339)
		}
		filter.Set(name, value)
		words += fmt.Sprintf(", %s %s", name, value)
	}
	return filter, words, nil
}

func (y *Relay) failed(ctx context.Context, r Request) (*view.Page, error) {
	q := r.Query
	filter, words, err := failedFilter(q)
	if err != nil {
		return nil, err
	}
	asked := with(filter, "cursor", q.Get("cursor"))
	asked.Set("limit", strconv.Itoa(pageSize))
	ctx, cancel := context.WithTimeout(ctx, sample.Patience)
	defer cancel()
	var answer struct {
		Items  []failedItem `json:"items"`
		Cursor string       `json:"cursor"`
	}
	part := view.Part{ID: "failed", Source: view.Source{Name: relayName, Asked: r.Now}}
	if err := y.call.Call(ctx, http.MethodGet, "/v1/failed?"+asked.Encode(), nil, &answer); err != nil {
		part.Source = view.Source{Name: relayName, Error: err.Error()}
	}
	list := &view.List{
		Found: view.Bounded(len(answer.Items), answer.Cursor != "", "failed message"), Path: "failed", Query: q,
		Empty: "No failed message matches. This list shows messages that the relay could not deliver, or whose answer it could not carry back.",
		Columns: []view.Column{
			{Title: "Failed", Number: true}, {Title: "Receiver"}, {Title: "Source"}, {Title: "Message"}, {Title: "Stage"}, {Title: "Reason"}, {Title: "Attempts", Number: true}, {Title: "Error", Wide: true},
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
		part.Actions = y.allActions(filter, words)
	}
	fields := []view.Field{
		{Name: "receiver", Label: "Receiver", Value: q.Get("receiver"), Type: "search"},
		{Name: "source", Label: "Source", Value: q.Get("source")},
		{Name: "stage", Label: "Stage", Value: q.Get("stage")},
		{Name: "reason", Label: "Reason", Value: q.Get("reason")},
		{Name: "since", Label: "Since (UTC)", Value: q.Get("since"), Type: "datetime-local"},
	}
	return &view.Page{Nav: "failed", Title: "Failed messages of the relay", Filter: &view.Filter{Path: "failed", Fields: fields}, Parts: []view.Part{part}}, nil
}

// operationAnswer is an operation of the relay.
type operationAnswer struct {
	ID      string `json:"id"`
	Verb    string `json:"verb"`
	State   string `json:"state"`
	Matched int    `json:"matched"`
	Done    int    `json:"done"`
}

func (y *Relay) allActions(filter url.Values, words string) []view.Action {
	selection := map[string]string{}
	for name := range filter {
		selection[name] = filter.Get(name)
	}
	one := func(verb, label, confirm string, danger bool) view.Action {
		return view.Action{
			Name: verb + "-all", Label: label + " all that match", Target: words, Danger: danger, Confirm: confirm,
			Fields: []view.Field{{Name: "rate", Label: "At most in a second (empty: no limit)", Type: "number"}},
			Preview: func(ctx context.Context) string {
				var answer struct {
					Matched int `json:"matched"`
				}
				if err := y.call.Call(ctx, http.MethodPost, "/v1/failed:"+verb, map[string]any{"filter": selection, "dry_run": true}, &answer); err != nil {
					return "How many these are is not known: " + err.Error()
				}
				return "At this moment these are " + view.Count(uint64(answer.Matched), "message") + ". Nothing has been changed yet."
			},
			Do: func(ctx context.Context, form url.Values) (view.Outcome, error) {
				rate, err := parseRate(form.Get("rate"))
				if err != nil {
					return view.Outcome{}, err
				}
				body := map[string]any{"filter": selection}
				if rate > 0 {
					body["rate"] = rate
				}
				var answer operationAnswer
				if err := y.call.Call(ctx, http.MethodPost, "/v1/failed:"+verb, body, &answer); err != nil {
					return view.Outcome{}, systemRefused(relayName, err)
				}
				now := time.Now()
				y.began.put(Operation{
					System: relayName, ID: answer.ID, Kind: verb, By: user(ctx), What: words, State: answer.State, Matched: answer.Matched, Done: answer.Done, Began: now, Changed: now,
				})
				return view.Outcome{Count: answer.Matched, Text: fmt.Sprintf("Began to %s %s.", verb, view.Count(uint64(answer.Matched), "message")), Then: operationLink(relayName, answer.ID)}, nil
			},
		}
	}
	return []view.Action{
		one("redrive", "Redrive", "Try all "+words+" again. What fails again comes back to this list.", false),
		one("skip", "Skip", "Take all "+words+" off this list. They stay FAILED, and are not tried again.", true),
		one("purge", "Purge", "Take all "+words+" off this list, and delete their payloads. This cannot be undone.", true),
	}
}

// System implements [OperationSource].
func (y *Relay) System() string { return relayName }

// Operations implements [OperationSource].
func (y *Relay) Operations(ctx context.Context) ([]Operation, error) {
	return y.began.current(func(op *Operation) error {
		var answer operationAnswer
		err := y.call.Call(ctx, http.MethodGet, "/v1/operations/"+url.PathEscape(op.ID), nil, &answer)
		if err == nil {
			op.State, op.Matched, op.Done, op.Changed = answer.State, answer.Matched, answer.Done, time.Now()
		}
		return err
	}), nil
}

// CancelOperation implements [OperationSource].
func (y *Relay) CancelOperation(ctx context.Context, id string) error {
	return y.call.Call(ctx, http.MethodDelete, "/v1/operations/"+url.PathEscape(id), nil, nil)
}
