package page

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/view"
)

// messages is the list of the messages that the relay has a record of, delivered ones too.
func (y *Relay) messages(ctx context.Context, r Request) (*view.Page, error) {
	q, filter := r.Query, map[string]string{}
	for _, name := range []string{"receiver", "source", "message", "status", "since", "until"} {
		if value := strings.TrimSpace(q.Get(name)); value != "" {
			filter[name] = value
		}
	}
	if err := timesOf(filter); err != nil {
		return nil, err
	}
	asked := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for name, value := range filter {
		asked.Set(name, value)
	}
	if next := q.Get("next"); next != "" {
		asked.Set("cursor", next)
	}
	states := []view.Option{{Text: "all"}}
	for _, state := range []string{"DONE", "FAILED", "ARRIVED", "SENDING", "DELIVERED_TO_RECEIVER", "RESPONSE_RECEIVED_FROM_RECEIVER"} {
		states = append(states, view.Option{Value: state, Text: strings.ToLower(strings.ReplaceAll(state, "_", " "))})
	}
	page := &view.Page{
		Nav: "relay", Title: "Messages of the relay", Crumbs: []view.Link{{Text: "Relay", Href: "relay"}},
		Filter: &view.Filter{Path: "relaymessages", Fields: []view.Field{
			{Name: "message", Label: "Message", Value: q.Get("message"), Type: "search", Placeholder: "its whole ID"},
			choice(q, "status", "Status", states...),
			{Name: "receiver", Label: "Receiver", Value: q.Get("receiver")},
			{Name: "source", Label: "Source", Value: q.Get("source")},
			{Name: "since", Label: "Changed since (UTC)", Value: q.Get("since"), Type: "datetime-local"},
			{Name: "until", Label: "Changed until (UTC)", Value: q.Get("until"), Type: "datetime-local"},
		}},
	}
	part := view.Part{ID: "messages", Source: view.Source{Name: relayName, Asked: r.Now}}
	page.Parts = []view.Part{part}
	var answer struct {
		Items []struct {
			Source   string    `json:"source_id"`
			ID       string    `json:"message_id"`
			Receiver string    `json:"receiver"`
			Status   string    `json:"status"`
			Attempts int       `json:"attempts"`
			Arrived  time.Time `json:"arrived"`
			Changed  time.Time `json:"changed"`
		} `json:"items"`
		Cursor string `json:"cursor"`
	}
	if err := y.call.Call(ctx, http.MethodGet, "/v1/messages?"+asked.Encode(), nil, &answer); err != nil {
		page.Parts[0].Source = view.Source{Name: relayName}.Away(err)
		return page, nil // the part states the error
	}
	list := &view.List{
		Path: "relaymessages", Query: q, Found: view.Bounded(len(answer.Items), answer.Cursor != "", "message"),
		Empty:   "No message matches. The relay keeps a delivered message for a day, and a failed one for 30 days, unless it is configured otherwise.",
		Columns: view.Texts("Message", "Status").Numbers("Changed", "Arrived", "Attempts").Texts("Receiver", "Source"),
	}
	if answer.Cursor != "" {
		list.Next = with(q, "next", answer.Cursor)
		if len(answer.Items) == 0 {
			list.Empty = "None of the messages that were looked at matches. The next page looks at more."
		}
	}
	for i, m := range answer.Items {
		list.Rows = append(list.Rows, view.Row{ID: "m-" + strconv.Itoa(i) + "-" + m.ID, Cells: []view.Value{
			view.Linked(m.ID, link("relaymessage", "source", m.Source, "id", m.ID)), view.Word(relayTone(m.Status), m.Status),
			view.Ago(m.Changed, "not stated"), view.Ago(m.Arrived, "not stated"), view.Int(m.Attempts),
			view.Linked(m.Receiver, link("receiver", "name", m.Receiver)), view.Text(m.Source),
		}})
	}
	page.Parts[0].List = list
	return page, nil
}

// relayTone is the tone of a message's status.
func relayTone(status string) view.Tone {
	switch status {
	case "DONE":
		return view.Good
	case "FAILED":
		return view.Bad
	}
	return view.Plain
}
