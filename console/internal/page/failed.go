package page

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/view"
)

// failureList returns the relay with its list of failed messages.
func (y *Relay) failureList() *failureList {
	return &failureList{
		name: relayName, noun: "failed message", usualRate: "no limit", fields: failedFields,
		reasons: []string{
			"PERMANENT", "EXHAUSTED", "UNKNOWN_OUTCOME", "EXPIRED", "UNKNOWN_RECEIVER", "RECEIVER_DELETED", "NO_RESPONSE", "NOT_TOLD", "MALFORMED",
		},
		stages: []string{"from_sender", "to_receiver", "from_receiver", "to_sender"},
		verbs:  map[string]string{"requeue": "/v1/failed:redrive", "skip": "/v1/failed:skip", "purge": "/v1/failed:purge"},
		list:   y.failures, begin: y.begin,
	}
}

// failures asks the relay for failed messages that match a filter of its interface, starting at a cursor.
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
		position, _ := strconv.ParseUint(f.ID, 10, 64) // 0 after an error
		found = append(found, failure{id: f.ID, reason: f.Reason, at: f.Time, position: position, more: []view.Value{
			view.Linked(f.Receiver, link("receiver", "name", f.Receiver)), view.Text(f.SourceID),
			view.Linked(f.MessageID, link("relaymessage", "source", f.SourceID, "id", f.MessageID)), plain(f.Stage), view.Int(f.Attempts),
			view.Sentence(f.Error),
		}})
	}
	return found, answer.Cursor, err
}

// begin starts an operation on all failed messages that match a filter.
func (y *Relay) begin(ctx context.Context, path string, filter map[string]string, rate float64, dry bool) (id string, n int, err error) {
	body := map[string]any{"filter": filter, "rate": rate, "dry_run": dry}
	var o operation.Operation
	err = y.call.Call(ctx, http.MethodPost, path, body, &o)
	return o.ID, o.Matched, err
}

// Operations implements [operation.Source]. An operation on messages that were chosen by ID has no filter.
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
		o.System, o.Kind, o.What = relayName, plain(o.Verb).Text, filtered("failed messages", o.Filter)
		if o.Filter == nil {
			o.What += " that were chosen one by one"
		}
		o.Cancel = func(ctx context.Context) error {
			return y.call.Call(ctx, http.MethodDelete, "/v1/operations/"+url.PathEscape(o.ID), nil, nil)
		}
		all[i] = o.Operation
	}
	return all, nil
}

// failureList returns the broker with its list of dead jobs.
func (b *Broker) failureList() *failureList {
	return &failureList{
		name: brokerName, noun: "dead job", usualRate: "100", fields: []string{"consumer", "producer", "message", "", "reason", "since", "until"},
		reasons: []string{"REFUSED", "NO_ANSWER", "GIVEN_UP"}, verbs: map[string]string{"requeue": "/dead-jobs/requeue", "purge": "/dead-jobs/purge"},
		purge: " Jobs that a worker gave up before their retries were used up are skipped.", list: b.failures, begin: b.begin,
	}
}

// failures asks the broker for dead jobs, of all consumers, that match a filter of its interface, starting at a cursor.
func (b *Broker) failures(ctx context.Context, filter map[string]string, cursor string) (found []failure, next string, err error) {
	var answer struct {
		Result []struct {
			ID, ChannelID, ConsumerID, MessageID, ProducedBy, Reason string
			DeadSince                                                time.Time
			StatusCode, Attempts                                     int
		}
		Next string
	}
	// The cursor is a time before that of the filter.
	err = b.call.Call(ctx, http.MethodGet, "/dead-jobs?"+asked(filter, "until", cursor), nil, &answer)
	for _, j := range answer.Result {
		attempts := view.Int(j.Attempts)
		if j.Reason == "GIVEN_UP" {
			attempts = view.None("The broker counts callbacks, which a pull consumer does not get")
		}
		found = append(found, failure{id: j.ID, reason: j.Reason, at: j.DeadSince, position: uint64(j.DeadSince.UnixNano()), more: []view.Value{
			view.Linked(j.ChannelID+"/"+j.ConsumerID, link("brokerconsumer", "channel", j.ChannelID, "consumer", j.ConsumerID)), view.Text(j.ProducedBy),
			view.Linked(j.MessageID, link("brokermessage", "channel", j.ChannelID, "id", j.MessageID)), view.None("The broker has no stages"), attempts,
			view.Text(inSentence("dead job", j)),
		}})
	}
	return found, answer.Next, err
}

// begin starts the operation of a path on the jobs that the given fields of its request select. It returns its path and the number of its jobs, or -1
// if the broker does not report it. With dry, it only counts them.
func (b *Broker) begin(ctx context.Context, path string, fields map[string]string, rate float64, dry bool) (at string, n int, err error) {
	begun, body := struct{ Count int }{-1}, map[string]any{"DryRun": dry}
	for name, value := range fields {
		body[capital(name)] = value
	}
	if rate > 0 {
		body["Rate"] = rate
	}
	if dry {
		err = b.call.Call(ctx, http.MethodPost, path, body, &begun)
		return "", begun.Count, err
	}
	header, err := b.call.Send(ctx, http.MethodPost, path, nil, body, nil)
	if err != nil {
		return "", 0, err
	}
	at = header.Get("Location")
	_ = b.call.Call(ctx, http.MethodGet, at, nil, &begun) // after an error, the count stays unknown
	return at, begun.Count, nil
}

// Operations implements [operation.Source]: operations on one consumer's jobs, and on dead jobs of all consumers. Their IDs are their paths.
func (b *Broker) Operations(ctx context.Context) (all []operation.Operation, err error) {
	for _, path := range []string{"/dead-jobs/operations", "/replays"} {
		var answer struct {
			Result []struct {
				operation.Operation
				URL, ChannelID, ConsumerID, Status, Message string
				Filter                                      map[string]string
				Count, Replayed, Purged                     int
				CreatedAt, ChangedAt                        time.Time
			}
		}
		if err := b.call.Call(ctx, http.MethodGet, path, nil, &answer); err != nil {
			return nil, err
		}
		for _, r := range answer.Result {
			o := r.Operation
			o.System, o.ID, o.State, o.Matched, o.Done = brokerName, r.URL, strings.ToLower(o.State), r.Count, o.Done+r.Replayed+r.Purged
			o.What, o.Began, o.Changed = filtered("dead jobs", r.Filter), r.CreatedAt, r.ChangedAt
			o.Cancel = func(ctx context.Context) error { return b.call.Call(ctx, http.MethodDelete, r.URL, nil, nil) }
			if r.ConsumerID != "" { // a purge is of queued jobs, and has no status
				o.What = strings.ToLower(cmp.Or(r.Status, "queued")) + " jobs of " + r.ChannelID + "/" + r.ConsumerID
			}
			if o.Kind = plain(o.Kind).Text; r.Message != "" {
				o.What += ", message " + r.Message
			}
			all = append(all, o)
		}
	}
	return all, nil
}
