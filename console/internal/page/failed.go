package page

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

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

// failedFields are the filters of the relay's list of failed messages, by their names in its interface.
var failedFields = []string{"receiver", "source", "message", "stage", "reason", "since"}

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
