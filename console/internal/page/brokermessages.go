package page

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/view"
)

func channelPath(channel string) string { return "/channel/" + url.PathEscape(channel) }

// producerFields are what a broadcast needs, and the cancel of one. The console keeps none of it.
func producerFields() []view.Field {
	return []view.Field{
		{Name: "producer", Label: "Producer", Required: true},
		{Name: "producertoken", Label: "Token of the producer", Type: "password", Required: true},
		{Name: "channeltoken", Label: "Token of the channel", Type: "password", Required: true},
	}
}

func producerHeader(form url.Values) http.Header {
	h := http.Header{}
	h.Set("X-Broker-Producer-ID", form.Get("producer"))
	h.Set("X-Broker-Producer-Token", form.Get("producertoken"))
	h.Set("X-Broker-Channel-Token", form.Get("channeltoken"))
	return h
}

// channel shows the messages of a channel that the filter selects, and those that are scheduled.
func (b *Broker) channel(ctx context.Context, r Request) (*view.Page, error) {
	q := r.Query
	name := q.Get("name")
	s := b.latest.Fresh(ctx)
	consumers := len(selected(q, s.Value.consumers, func(_ url.Values, j jobs) bool { return j.Channel == name }))
	var status struct {
		Counts map[string]struct{ Count int } `json:"counts"`
		Next   time.Time                      `json:"next_scheduled_message_at"`
	}
	if err := b.call.Call(ctx, http.MethodGet, channelPath(name)+"/messages-status", nil, &status); err != nil {
		return nil, notShown(brokerName, err, "The list of the broker shows all that there are.", "channel %q", name)
	}
	head := view.Part{
		ID: "channel", Source: view.Source{Name: brokerName, Asked: r.Now}, Actions: []view.Action{b.broadcast(name, consumers)},
		Facts: []view.Fact{
			{Name: "Consumers", Value: view.Linked(view.Int(consumers).Text, link("broker", "q", name+"/"))},
			{Name: "Messages", Value: view.Int(status.Counts["DISPATCHED"].Count)},
			{Name: "Scheduled", Value: view.Int(status.Counts["SCHEDULED_SCHEDULED"].Count)},
			{Name: "Next scheduled", Value: view.Ago(status.Next, "Nothing is scheduled")},
		},
	}
	scheduled, _ := b.ids(ctx, r, "scheduled", "Scheduled messages", channelPath(name)+"/scheduled-messages?status=101", "scheduled", name,
		"No message is scheduled. A broadcast with a time to send at is here until then, and can be cancelled.")
	messages, err := b.search(ctx, r, name)
	return &view.Page{
		Nav: "broker", Title: name, Crumbs: []view.Link{{Text: "Broker", Href: "broker"}}, Parts: []view.Part{head, scheduled, messages},
		Filter: &view.Filter{Path: "channel", Fields: append([]view.Field{
			{Name: "name", Value: name, Hidden: true},
			searchField(q, "id", "Message", ""),
			entry(q, "event", "Event type", "order.*"),
			entry(q, "header", "Metadata header", "X-Tenant:acme"),
		}, timeFields(q, "Received since", "Until")...)},
	}, err
}

// search is the part with the messages of a channel that the page's filter selects.
func (b *Broker) search(ctx context.Context, r Request, channel string) (view.Part, error) {
	filter, err := parameters(r.Query, "id", "event", "header", "since", "until")
	if err != nil {
		return view.Part{}, err
	}
	const title = "Messages, newest first"
	if header := filter["header"]; header != "" && !strings.Contains(header, ":") {
		return view.Part{ID: "messages", Title: title, Problem: "Give the metadata header as NAME:VALUE, such as X-Tenant:acme.", ProblemTone: view.Warn},
			nil
	}
	empty := "The channel has no message. Producers broadcast them with POST /channel/CHANNEL/broadcast."
	if len(filter) > 0 || r.Query.Get("next") != "" {
		empty = "No message matches."
	}
	for name, field := range map[string]string{"event": "eventType", "header": "metadata"} { // as the broker names them
		if value, ok := filter[name]; ok {
			filter[field] = value
			delete(filter, name)
		}
	}
	from := channelPath(channel) + "/messages?" + asked(filter, "next", r.Query.Get("next"))
	part, next := b.ids(ctx, r, "messages", title, from, "brokermessage", channel, empty)
	if part.List != nil {
		goesOn(part.List, r.Query, next, "message")
	}
	return part, nil
}

// ids is a part with links to messages, of which the broker lists the paths, and the cursor of the next page.
func (b *Broker) ids(ctx context.Context, r Request, id, title, from, to, channel, empty string) (part view.Part, next string) {
	var answer struct {
		Result []string `json:"result"`
		Pages  struct {
			Next string `json:"next"`
		} `json:"pages"`
	}
	err := b.call.Call(ctx, http.MethodGet, from, nil, &answer)
	part = view.Part{ID: id, Title: title, Source: reading(brokerName, r, err)}
	if err != nil {
		return part, ""
	}
	part.List = &view.List{
		Path: "channel", Query: r.Query, Found: view.Bounded(len(answer.Result), false, "message") + " shown", Empty: empty,
		Columns: view.Texts("Message"),
	}
	for _, one := range answer.Result {
		message, _ := url.PathUnescape(path.Base(one)) // an ID that cannot be read leads to a page that states this
		part.List.Add(id+"-"+message, view.Linked(message, link(to, "channel", channel, "id", message)))
	}
	if link, err := url.Parse(answer.Pages.Next); err == nil {
		next = link.Query().Get("next")
	}
	return part, next
}

// broadcast sends a message as a producer does, with the tokens of one.
func (b *Broker) broadcast(channel string, consumers int) view.Action {
	return view.Action{
		Name: "broadcast", Label: "Broadcast a test message", Target: channel,
		Confirm: fmt.Sprintf("Send a message to channel %s. Each of its %s gets it, unless event types exclude it. The broker asks for the tokens of a "+
			"producer and of the channel; the console does not keep them.",
			channel, view.Count(uint64(consumers), "consumer")),
		Fields: append(producerFields(),
			view.Field{Name: "payload", Label: "Payload", Type: "textarea", Value: `{"test":true}`, Required: true},
			view.Field{Name: "type", Label: "Content type", Value: "application/json", Required: true},
			view.Field{Name: "event", Label: "Event type (empty: none)"},
			view.Field{Name: "at", Label: "Send at (UTC; empty: now)", Type: "datetime-local"}),
		Do: act(systemRefused(brokerName), func(ctx context.Context, form url.Values) (view.Outcome, error) {
			header := producerHeader(form)
			header.Set("Content-Type", form.Get("type"))
			if event := strings.TrimSpace(form.Get("event")); event != "" {
				header.Set("X-Broker-Event-Type", event)
			}
			to, text := "brokermessage", "Broadcast message "
			if form.Get("at") != "" {
				at, err := parseTime(form.Get("at"))
				if err != nil {
					return view.Outcome{}, err
				}
				header.Set("X-Broker-Scheduled-For", at.Format(time.RFC3339))
				to, text = "scheduled", "Scheduled message "
			}
			answer, err := b.call.Send(ctx, http.MethodPost, channelPath(channel)+"/broadcast", header, []byte(form.Get("payload")), nil)
			if err != nil {
				return view.Outcome{}, err
			}
			id, _ := url.PathUnescape(path.Base(answer.Get("Location"))) // the broker has made it
			return view.Outcome{Count: 1, Text: text + id + ".", Then: link(to, "channel", channel, "id", id)}, nil
		}),
	}
}

// scheduled shows a scheduled message.
func (b *Broker) scheduled(ctx context.Context, r Request) (*view.Page, error) {
	channel, id := r.Query.Get("channel"), r.Query.Get("id")
	var m struct {
		ContentType, EventType, ProducedBy, Status, Payload, PayloadEncoding string
		DispatchSchedule, DispatchedAt                                       time.Time
	}
	at := channelPath(channel) + "/scheduled-message/" + url.PathEscape(id)
	if err := b.call.Call(ctx, http.MethodGet, at, nil, &m); err != nil {
		return nil, notShown(brokerName, err, "It may have been cancelled. The page of the channel shows all that are scheduled.",
			"scheduled message %q of channel %q", id, channel)
	}
	payload := brokerPayload(m.Payload, m.PayloadEncoding)
	if r.Query.Has("download") {
		return download(r, id, payload)
	}
	part := view.Part{
		ID: "scheduled", Source: view.Source{Name: brokerName, Asked: r.Now},
		Texts: []view.Block{payloadBlock(payload, r, "scheduled", "channel", channel, "id", id)},
		Facts: []view.Fact{
			{Name: "Status", Value: view.Text(m.Status)},
			{Name: "Sent at", Value: view.Ago(m.DispatchSchedule, "not stated")},
			{Name: "Produced by", Value: view.Text(m.ProducedBy)},
			{Name: "Content type", Value: view.Text(m.ContentType)},
		},
	}
	if m.DispatchedAt.IsZero() {
		part.Actions = []view.Action{{
			Name: "cancel", Label: "Cancel the message", Target: channel + "/" + id, Danger: true, Fields: producerFields(),
			Confirm: "Delete this scheduled message: nobody gets it. This cannot be undone. The broker asks for the tokens of a producer and of the " +
				"channel; the console does not keep them.",
			Do: act(systemRefused(brokerName), func(ctx context.Context, form url.Values) (view.Outcome, error) {
				_, err := b.call.Send(ctx, http.MethodDelete, at, producerHeader(form), nil, nil)
				return view.Outcome{Count: 1, Text: "Cancelled message " + id + ".", Then: link("channel", "name", channel)}, err
			}),
		}}
	}
	return &view.Page{
		Nav: "broker", Title: id, Crumbs: []view.Link{{Text: "Broker", Href: "broker"}, {Text: channel, Href: link("channel", "name", channel)}},
		Parts: []view.Part{part},
	}, nil
}

// brokerPayload is a payload as the broker shows it: binary ones are encoded.
func brokerPayload(text, encoding string) []byte {
	if encoding == "base64" {
		if decoded, err := base64.StdEncoding.DecodeString(text); err == nil {
			return decoded
		}
	}
	return []byte(text)
}

// brokerMessage is a message as the broker's interface describes it.
type brokerMessage struct {
	Payload, PayloadEncoding, ContentType, ProducedBy, Status string
	ReceivedAt                                                time.Time
	Jobs                                                      []struct {
		ListenerName, Status, AttemptsURL, ConsumerURL string
		StatusChangedAt                                time.Time
		Attempts                                       int
	}
}

// message shows a message with the attempts of each of its jobs.
func (b *Broker) message(ctx context.Context, r Request) (*view.Page, error) {
	channel, id := r.Query.Get("channel"), r.Query.Get("id")
	var m brokerMessage
	if err := b.call.Call(ctx, http.MethodGet, "/channel/"+url.PathEscape(channel)+"/message/"+url.PathEscape(id), nil, &m); err != nil {
		return nil, notShown(brokerName, err, "It may have been pruned. Check both names.", "message %q of channel %q", id, channel)
	}
	payload := brokerPayload(m.Payload, m.PayloadEncoding)
	if r.Query.Has("download") {
		return download(r, id, payload)
	}
	sentence, tone := m.states()
	return &view.Page{
		Nav: "broker", Title: id, Crumbs: []view.Link{{Text: "Broker", Href: "broker"}, {Text: channel, Href: link("channel", "name", channel)}},
		Parts: []view.Part{
			{
				ID: "message", Source: view.Source{Name: brokerName, Asked: r.Now}, List: b.timeline(ctx, &m),
				Actions: b.again(channel, id, m.settled()), Problem: sentence, ProblemTone: tone,
				Facts: []view.Fact{
					{Name: "Status", Value: view.Text(m.Status)},
					{Name: "Received", Value: view.Ago(m.ReceivedAt, "not stated")},
					{Name: "Produced by", Value: view.Text(path.Base(m.ProducedBy))},
					{Name: "Content type", Value: view.Text(m.ContentType)},
				},
			},
			{ID: "payload", Texts: []view.Block{payloadBlock(payload, r, "brokermessage", "channel", channel, "id", id)}},
		},
	}, nil
}

// timeline lists what happened to a message, the oldest first.
func (b *Broker) timeline(ctx context.Context, m *brokerMessage) *view.List {
	timeline := &view.List{
		Path: "brokermessage", Empty: "The message has no job.", Found: view.Bounded(len(m.Jobs), false, "job"),
		Columns: view.Texts("When", "Consumer", "What", "Answer").Numbers("Took").Wide("Error"),
	}
	row := func(at time.Time, consumer, what string, answer, took, problem view.Value) {
		timeline.Add("t-"+strconv.Itoa(len(timeline.Rows)), view.Ago(at, "not stated"), view.Text(consumer), view.Text(what), answer, took, problem)
	}
	row(m.ReceivedAt, "", "received", view.Value{}, view.Value{}, view.Value{})
	for _, j := range m.Jobs {
		var attempts struct {
			Result []struct {
				Attempt, StatusCode int
				StartedAt           time.Time
				Duration            float64
				Error               string
			}
		}
		problem := view.Value{}
		if j.AttemptsURL != "" {
			if err := b.call.Call(ctx, http.MethodGet, j.AttemptsURL, nil, &attempts); err != nil {
				problem = view.Sentence("The attempts are not shown: " + err.Error())
			}
		}
		for _, a := range attempts.Result {
			row(a.StartedAt, j.ListenerName, "attempt "+strconv.Itoa(a.Attempt), statusCode(a.StatusCode), view.Duration(seconds(a.Duration)),
				view.Sentence(a.Error))
		}
		row(j.StatusChangedAt, j.ListenerName, "became "+j.Status, view.Value{}, view.Value{}, problem)
	}
	slices.SortStableFunc(timeline.Rows, func(a, b view.Row) int { return a.Cells[0].Time.Compare(b.Cells[0].Time) })
	return timeline
}

// statusCode is the status of an attempt's response, or says that none came.
func statusCode(code int) view.Value {
	if code > 0 {
		return view.Text(strconv.Itoa(code))
	}
	return view.Word(view.Bad, "no answer")
}

// states counts the jobs of each state.
func (m *brokerMessage) states() (sentence string, tone view.Tone) {
	states := map[string]int{}
	for _, j := range m.Jobs {
		states[j.Status]++
	}
	for _, status := range slices.Sorted(maps.Keys(states)) {
		sentence += fmt.Sprintf(", %d %s", states[status], status)
	}
	tone = view.Plain
	if states["DEAD"] > 0 {
		tone = view.Bad
	}
	return view.Count(uint64(len(m.Jobs)), "job") + sentence + ".", tone
}

// settled are the consumers whose jobs can be delivered again, the dead first: the message is looked at for them.
func (m *brokerMessage) settled() (options []view.Option) {
	for _, j := range m.Jobs {
		if j.Status == "DEAD" || j.Status == "DELIVERED" {
			options = append(options, view.Option{
				Value: j.Status + " " + j.ConsumerURL,
				Text:  view.Text(j.ListenerName).Text + " (" + strings.ToLower(j.Status) + ")",
			})
		}
	}
	slices.SortStableFunc(options, func(a, b view.Option) int { return cmp.Compare(a.Value, b.Value) })
	return options
}

// again queues one job of a message again. The options name the jobs that are delivered or dead: their status and the path of their consumer.
func (b *Broker) again(channel, id string, settled []view.Option) []view.Action {
	if len(settled) == 0 {
		return nil
	}
	return []view.Action{{
		Name: "again", Label: "Requeue", Target: channel + "/" + id, Fields: []view.Field{{Name: "job", Label: "Job of consumer", Options: settled}},
		Do: act(systemRefused(brokerName), func(ctx context.Context, form url.Values) (view.Outcome, error) {
			chosen := form.Get("job")
			i := slices.IndexFunc(settled, func(o view.Option) bool { return o.Value == chosen })
			if i < 0 {
				return view.Outcome{}, impossible("Look at the message again.", "This job is neither delivered nor dead any more. Nothing was changed")
			}
			status, consumer, _ := strings.Cut(chosen, " ")
			return done("Requeued for " + settled[i].Text + "."),
				b.call.Call(ctx, http.MethodPost, consumer+"/replay", map[string]any{"Status": status, "Message": id}, nil)
		}),
	}}
}
