package page

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/view"
)

// failureList is the relay with its list of failed messages.
func (y *Relay) failureList() *failureList {
	return &failureList{
		name: relayName, noun: "failed message", usualRate: "no limit", fields: failedFields,
		reasons: []string{
			"PERMANENT", "EXHAUSTED", "UNKNOWN_OUTCOME", "EXPIRED", "UNKNOWN_RECEIVER", "RECEIVER_DELETED", "NO_RESPONSE", "NOT_TOLD", "MALFORMED",
		},
		stages: []string{"from_sender", "to_receiver", "from_receiver", "to_sender"},
		verbs:  map[string]string{"requeue": "redrive", "skip": "skip", "purge": "purge"}, list: y.failures, begin: y.begin,
	}
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
		found = append(found, failure{system: relayName, id: f.ID, reason: f.Reason, at: f.Time, more: []view.Value{
			view.Linked(f.Receiver, link("receiver", "name", f.Receiver)), view.Text(f.SourceID),
			view.Linked(f.MessageID, link("relaymessage", "source", f.SourceID, "id", f.MessageID)), plain(f.Stage), view.Int(f.Attempts),
			view.Sentence(f.Error),
		}})
	}
	return found, answer.Cursor, err
}

// begin begins an operation on all failed messages that a filter selects.
func (y *Relay) begin(ctx context.Context, verb string, filter map[string]string, rate float64, dry bool) (id string, n int, err error) {
	body := map[string]any{"filter": filter, "rate": rate}
	if dry {
		body["dry_run"] = true
	}
	var o operation.Operation
	err = y.call.Call(ctx, http.MethodPost, "/v1/failed:"+verb, body, &o)
	return o.ID, o.Matched, err
}

// System implements [operation.Source].
func (y *Relay) System() string { return relayName }

// Operations implements [operation.Source]. An operation on messages that were chosen by their IDs has no filter.
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
		o.System, o.Kind, o.What = relayName, plain(o.Verb).Text, filtered("failed messages", failedFields, o.Filter)
		if o.Filter == nil {
			o.What += " that were chosen one by one"
		}
		all[i] = o.Operation
	}
	return all, nil
}

// CancelOperation implements [operation.Source].
func (y *Relay) CancelOperation(ctx context.Context, id string) error {
	return y.call.Call(ctx, http.MethodDelete, "/v1/operations/"+url.PathEscape(id), nil, nil)
}
