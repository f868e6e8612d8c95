package page

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/view"
)

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

// failures asks the broker for dead jobs of all consumers that a filter of its interface selects, from a cursor on.
func (b *Broker) failures(ctx context.Context, filter map[string]string, cursor string) (found []failure, next string, err error) {
	var answer struct {
		Result []struct {
			ID, ChannelID, ConsumerID, MessageID, ProducedBy, Reason string
			DeadSince                                                time.Time
			StatusCode, Attempts                                     int
		}
		Next string
	}
	// The cursor is a time before the filter's own.
	err = b.call.Call(ctx, http.MethodGet, "/dead-jobs?"+asked(filter, "until", cursor), nil, &answer)
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
		found = append(found, failure{
			system: brokerName, id: j.ID, at: j.DeadSince, cursor: j.DeadSince.Format(time.RFC3339Nano),
			receiver: view.Linked(j.ChannelID+"/"+j.ConsumerID, link("brokerconsumer", "channel", j.ChannelID, "consumer", j.ConsumerID)),
			source:   view.Text(j.ProducedBy), message: view.Linked(j.MessageID, link("brokermessage", "channel", j.ChannelID, "id", j.MessageID)),
			stage: view.None("The broker has no stages"), reason: plain(j.Reason), attempts: attempts, text: view.Sentence(text),
		})
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

// beginDead starts an operation on all dead jobs that a filter selects.
func (b *Broker) beginDead(ctx context.Context, verb string, filter map[string]string, rate float64) (at string, n int, err error) {
	body := deadBody(filter)
	if rate > 0 {
		body["Rate"] = rate
	}
	return b.start(ctx, "/dead-jobs/"+verb, body)
}

// start starts an operation, and returns its path and the number of its jobs, which is -1 if the operation has begun and the broker does not
// state it.
func (b *Broker) start(ctx context.Context, path string, body map[string]any) (at string, n int, err error) {
	header, err := b.call.Send(ctx, http.MethodPost, path, nil, body, nil)
	if err != nil {
		return "", 0, err
	}
	at = header.Get("Location")
	begun := struct{ Count int }{-1}
	_ = b.call.Call(ctx, http.MethodGet, at, nil, &begun) // the count stays unknown
	return at, begun.Count, nil
}

// deadOperations are the operations on dead jobs of all consumers.
func (b *Broker) deadOperations(ctx context.Context) (all []operation.Operation, err error) {
	var answer struct {
		Result []struct {
			operation.Operation
			URL                  string
			Count                int
			Filter               map[string]string
			CreatedAt, ChangedAt time.Time
		}
	}
	if err := b.call.Call(ctx, http.MethodGet, "/dead-jobs/operations", nil, &answer); err != nil {
		return nil, err
	}
	for _, o := range answer.Result {
		filter := map[string]string{}
		for name, value := range o.Filter {
			filter[strings.ToLower(name)] = value
		}
		o.System, o.ID, o.State, o.Matched = brokerName, o.URL, strings.ToLower(o.State), o.Count
		o.What, o.Began, o.Changed = filtered("dead jobs", deadFields, filter), o.CreatedAt, o.ChangedAt
		all = append(all, o.Operation)
	}
	return all, nil
}
