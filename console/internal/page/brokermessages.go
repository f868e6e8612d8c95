package page

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/view"
)

func channelPath(channel string) string { return "/channel/" + url.PathEscape(channel) }

// channel shows the messages of a channel that match the filter.
func (b *Broker) channel(ctx context.Context, r Request) (*view.Page, error) {
	q := r.Query
	name := q.Get("name")
	var status struct {
		Counts map[string]struct{ Count int } `json:"counts"`
		Next   time.Time                      `json:"next_scheduled_message_at"`
	}
	if err := b.call.Call(ctx, http.MethodGet, channelPath(name)+"/messages-status", nil, &status); err != nil {
		return nil, notShown(brokerName, err, "The list of the broker shows all that there are.", "channel %q", name)
	}
	s := b.latest.Fresh(ctx)
	consumers := selected(q, s.Value.all, func(_ url.Values, j target) bool { return j.jobs.Channel == name })
	head := view.Part{
		ID: "channel", Source: view.Source{Name: brokerName, Asked: r.Now}, Actions: []view.Action{b.broadcast(name)},
		Facts: []view.Fact{
			{Name: "Consumers", Value: whenKnown(!s.Stale(), view.Linked(view.Int(len(consumers)).Text, link("broker", "q", name+"/")))},
			{Name: "Messages", Value: view.Int(status.Counts["DISPATCHED"].Count)},
			{Name: "Scheduled", Value: leads(view.Int(status.Counts["SCHEDULED_SCHEDULED"].Count), link("channel", "name", name, "status", scheduled))},
			{Name: "Next scheduled", Value: view.Ago(status.Next, "Nothing is scheduled")},
		},
	}
	messages, err := b.messages(ctx, r, name)
	return &view.Page{
		Nav: "broker", Title: name, Crumbs: []view.Link{{Text: "Broker", Href: "broker"}}, Parts: []view.Part{head, messages},
		Filter: append([]view.Field{
			hidden(q, "name"),
			searchField(q, "id", "Message", ""),
			entry(q, "eventType", "Event type", "order.*"),
			entry(q, "metadata", "Metadata header", "X-Tenant:acme"),
		}, timeFields(q, "Received since", "Until")...),
	}, err
}

// producerHeaders returns the headers of a producer's request, from the fields of a form.
func producerHeaders(form url.Values) http.Header {
	header := http.Header{}
	for field, name := range map[string]string{
		"producer": "X-Broker-Producer-ID", "producertoken": "X-Broker-Producer-Token", "channeltoken": "X-Broker-Channel-Token",
		"event": "X-Broker-Event-Type", "type": "Content-Type",
	} {
		if value := strings.TrimSpace(form.Get(field)); value != "" {
			header.Set(name, value)
		}
	}
	return header
}

// broadcast returns the action that broadcasts a message as a producer, with the tokens of one. The console does not keep the tokens.
func (b *Broker) broadcast(channel string) view.Action {
	return view.Action{
		Name: "broadcast", Label: "Broadcast a test message", Target: channel,
		Confirm: inSentence("broadcast", channel),
		Fields: []view.Field{
			{Name: "producer", Label: "Producer", Required: true},
			{Name: "producertoken", Label: "Token of the producer", Type: "password", Required: true},
			{Name: "channeltoken", Label: "Token of the channel", Type: "password", Required: true},
			{Name: "payload", Label: "Payload", Type: "textarea", Value: `{"test":true}`, Required: true},
			{Name: "type", Label: "Content type", Value: "application/json", Required: true},
			{Name: "event", Label: "Event type (empty: none)"},
		},
		Do: act(systemRefused(brokerName), func(ctx context.Context, form url.Values) (view.Outcome, error) {
			answer, err := b.call.Send(ctx, http.MethodPost, channelPath(channel)+"/broadcast", producerHeaders(form), []byte(form.Get("payload")), nil)
			if err != nil {
				return view.Outcome{}, err
			}
			id, _ := url.PathUnescape(path.Base(answer.Get("Location"))) // the broker has escaped it
			return view.Outcome{Count: 1, Text: "Broadcast message " + id + ".", Then: link("brokermessage", "channel", channel, "id", id)}, nil
		}),
	}
}

// scheduled is the value of status, in the query of a page, that selects messages that the broker will broadcast later.
const scheduled = "scheduled"

// cancel returns the action that cancels a scheduled message. Without an admin token, the broker needs the tokens of a broadcast, which are not kept.
func (b *Broker) cancel(at, channel, id string, m *brokerMessage) view.Action {
	return view.Action{
		Name: "cancel", Label: "Cancel the message", Target: channel + "/" + id, Danger: true,
		Confirm: inSentence("cancel scheduled", nil),
		Fields: []view.Field{
			{Name: "producer", Value: m.ProducedBy, Hidden: true},
			{Name: "producertoken", Label: "Token of the producer", Type: "password"},
			{Name: "channeltoken", Label: "Token of the channel", Type: "password"},
		},
		Do: act(systemRefused(brokerName), func(ctx context.Context, form url.Values) (view.Outcome, error) {
			_, err := b.call.Send(ctx, http.MethodDelete, at, producerHeaders(form), nil, nil)
			return view.Outcome{
				Count: 1, Text: "Cancelled message " + id + ". Nobody gets it.", Then: link("channel", "name", channel, "status", scheduled),
			}, err
		}),
	}
}

// messages returns the part with the messages of a channel that match the page's filter, or with its scheduled messages.
func (b *Broker) messages(ctx context.Context, r Request, channel string) (view.Part, error) {
	part := view.Part{ID: "messages", Title: "Messages, newest first"}
	filter, err := parameters(r.Query, "id", "eventType", "metadata", "since", "until")
	if err != nil {
		return part, err
	}
	if header := filter["metadata"]; header != "" && !strings.Contains(header, ":") {
		part.Problem, part.ProblemTone = "Give the metadata header as NAME:VALUE, such as X-Tenant:acme.", view.Warn
		return part, nil
	}
	status := r.Query.Get("status")
	list := func(next string) (paths []string, more string, err error) {
		var answer struct {
			Result []string          `json:"result"`
			Pages  map[string]string `json:"pages"`
		}
		path := "/messages?" + asked(filter, "next", next)
		if status == scheduled {
			path = link("/scheduled-messages", "status", "101", "next", next)
		}
		err = b.call.Call(ctx, http.MethodGet, channelPath(channel)+path, nil, &answer)
		u, _ := url.Parse(answer.Pages["next"]) // without a URL, the list ends
		return answer.Result, cmp.Or(u, &url.URL{}).Query().Get("next"), err
	}
	found, next, err := list(r.Query.Get("next"))
	if part.Source = reading(brokerName, r, err); err != nil {
		return part, nil //nolint:nilerr // the part states the error
	}
	if status == scheduled {
		part.Title = "Scheduled messages"
	}
	if status == scheduled && next != "" { // the last page of these has a link, too
		if below, _, err := list(next); err == nil && len(below) == 0 {
			next = ""
		}
	}
	part.List = &view.List{
		Path: "channel", Query: r.Query, Found: view.Bounded(len(found), false, "message") + " shown", Columns: view.Columns("Message"),
		Empty: inSentence("no broker messages", status),
	}
	for _, one := range found {
		id, _ := url.PathUnescape(path.Base(one)) // an ID that cannot be decoded leads to a page that says so
		part.List.Add("messages-"+id, view.Linked(id, link("brokermessage", "channel", channel, "id", id, "status", status)))
	}
	goesOn(part.List, "next", next, "message")
	return part, nil
}

// brokerMessage is a message as the broker's HTTP interface describes it.
type brokerMessage struct {
	Payload, PayloadEncoding, ContentType, ProducedBy, Status string
	ReceivedAt, DispatchSchedule                              time.Time // a scheduled message has only the latter
	Jobs                                                      []struct {
		ListenerName, Status, AttemptsURL, ConsumerURL string
		StatusChangedAt                                time.Time
		Attempts                                       int
	}
}

// message shows a message with the attempts of each of its jobs, or a scheduled message.
func (b *Broker) message(ctx context.Context, r Request) (*view.Page, error) {
	channel, id, status := r.Query.Get("channel"), r.Query.Get("id"), r.Query.Get("status")
	at := channelPath(channel) + "/message/" + url.PathEscape(id)
	if status == scheduled {
		at = channelPath(channel) + "/scheduled-message/" + url.PathEscape(id)
	}
	var m brokerMessage
	if err := b.call.Call(ctx, http.MethodGet, at, nil, &m); err != nil {
		return nil, notShown(brokerName, err, "It may have been pruned or cancelled. Check both names.", "message %q of channel %q", id, channel)
	}
	payload := []byte(m.Payload)
	if decoded, err := base64.StdEncoding.DecodeString(m.Payload); err == nil && m.PayloadEncoding == "base64" {
		payload = decoded // the broker encodes binary payloads
	}
	if r.Query.Has("download") {
		return download(r, id, payload)
	}
	tone := view.Plain
	if m.Statuses()["DEAD"] > 0 {
		tone = view.Bad
	}
	part := view.Part{
		ID: "message", Source: view.Source{Name: brokerName, Asked: r.Now}, Problem: inSentence("broker message", &m), ProblemTone: tone,
		Facts: []view.Fact{
			{Name: "Status", Value: view.Text(m.Status)},
			{Name: "Received", Value: view.Ago(m.ReceivedAt, "not stated")},
			{Name: "Produced by", Value: view.Text(path.Base(m.ProducedBy))},
			{Name: "Content type", Value: view.Text(m.ContentType)},
		},
	}
	switch {
	case status != scheduled:
		part.List, part.Actions = timeline(view.Bounded(len(m.Jobs), false, "job"), b.steps(ctx, &m)), b.again(channel, id, &m)
	case m.Status == "SCHEDULED":
		part.Actions = []view.Action{b.cancel(at, channel, id, &m)}
	}
	block := payloadBlock(payload, r, "brokermessage", "channel", channel, "id", id, "status", status)
	return channelPage(channel, id, part, view.Part{ID: "payload", Texts: []view.Block{block}}), nil
}

// steps returns the history of a message.
func (b *Broker) steps(ctx context.Context, m *brokerMessage) []step {
	all := []step{{at: m.ReceivedAt, what: "received"}}
	for _, j := range m.Jobs {
		var attempts struct {
			Result []struct {
				Attempt, StatusCode int
				StartedAt           time.Time
				Duration            float64
				Error               string
			}
		}
		last := step{at: j.StatusChangedAt, receiver: j.ListenerName, what: "became " + j.Status}
		if j.AttemptsURL != "" {
			if err := b.call.Call(ctx, http.MethodGet, j.AttemptsURL, nil, &attempts); err != nil {
				last.problem = "The attempts are not shown: " + err.Error()
			}
		}
		for _, a := range attempts.Result {
			all = append(all, attempt(a.StartedAt, j.ListenerName, a.Attempt, a.StatusCode, a.Duration, a.Error))
		}
		all = append(all, last)
	}
	return all
}

// Statuses returns the number of jobs by status.
func (m *brokerMessage) Statuses() map[string]int {
	all := map[string]int{}
	for _, j := range m.Jobs {
		all[j.Status]++
	}
	return all
}

// again returns the action that queues one job of a message again. The options name the jobs that are delivered or dead, dead ones first, by status
// and path of the consumer.
func (b *Broker) again(channel, id string, m *brokerMessage) []view.Action {
	var settled []view.Option
	for _, j := range m.Jobs {
		if j.Status == "DEAD" || j.Status == "DELIVERED" {
			text := view.Text(j.ListenerName).Text + " (" + strings.ToLower(j.Status) + ")"
			settled = append(settled, view.Option{Value: j.Status + " " + j.ConsumerURL, Text: text})
		}
	}
	if len(settled) == 0 {
		return nil
	}
	slices.SortStableFunc(settled, func(a, b view.Option) int { return cmp.Compare(a.Value, b.Value) })
	return []view.Action{{
		Name: "again", Label: "Requeue", Target: channel + "/" + id, Fields: []view.Field{{Name: "job", Label: "Job of consumer", Options: settled}},
		Do: act(systemRefused(brokerName), func(ctx context.Context, form url.Values) (view.Outcome, error) {
			i := slices.IndexFunc(settled, func(o view.Option) bool { return o.Value == form.Get("job") })
			if i < 0 {
				return view.Outcome{}, impossible("Look at the message again.", "This job is neither delivered nor dead any more. Nothing was changed.")
			}
			status, consumer, _ := strings.Cut(settled[i].Value, " ")
			return done("Requeued for " + settled[i].Text + "."),
				b.call.Call(ctx, http.MethodPost, consumer+"/replay", map[string]any{"Status": status, "Message": id}, nil)
		}),
	}}
}
