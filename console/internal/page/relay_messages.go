package page

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/view"
)

// messages is the list of the messages that the relay has a record of, delivered ones too.
func (y *Relay) messages(ctx context.Context, r Request) (*view.Page, error) {
	q := r.Query
	filter, err := parameters(q, "receiver", "source", "message", "status", "since", "until")
	if err != nil {
		return nil, err
	}
	states := options("", "all")
	for _, state := range []string{"DONE", "FAILED", "ARRIVED", "SENDING", "DELIVERED_TO_RECEIVER", "RESPONSE_RECEIVED_FROM_RECEIVER"} {
		states = append(states, view.Option{Value: state, Text: strings.ToLower(strings.ReplaceAll(state, "_", " "))})
	}
	page := &view.Page{
		Nav: "relay", Title: "Messages of the relay", Crumbs: []view.Link{{Text: "Relay", Href: "relay"}},
		Filter: &view.Filter{Path: "relaymessages", Fields: []view.Field{
			searchField(q, "message", "Message", "its whole ID"),
			choice(q, "status", "Status", states),
			entry(q, "receiver", "Receiver", ""),
			entry(q, "source", "Source", ""),
			timeField(q, "since", "Changed since"), timeField(q, "until", "Changed until"),
		}},
	}
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
	err = y.call.Call(ctx, http.MethodGet, "/v1/messages?"+asked(filter, "cursor", q.Get("next")), nil, &answer)
	page.Parts = []view.Part{{ID: "messages", Source: reading(relayName, r, err)}}
	if err != nil {
		return page, nil //nolint:nilerr // the part states the error
	}
	list := &view.List{
		Path: "relaymessages", Query: q, Found: view.Bounded(len(answer.Items), answer.Cursor != "", "message"),
		Empty:   "No message matches. The relay keeps a delivered message for a day, and a failed one for 30 days, unless it is configured otherwise.",
		Columns: view.Texts("Message", "Status").Numbers("Changed", "Arrived", "Attempts").Texts("Receiver", "Source"),
	}
	for i, m := range answer.Items {
		list.Add("m-"+strconv.Itoa(i)+"-"+m.ID,
			view.Linked(m.ID, link("relaymessage", "source", m.Source, "id", m.ID)), view.Word(relayTone(m.Status), m.Status),
			view.Ago(m.Changed, "not stated"), view.Ago(m.Arrived, "not stated"), view.Int(m.Attempts),
			view.Linked(m.Receiver, link("receiver", "name", m.Receiver)), view.Text(m.Source))
	}
	goesOn(list, q, answer.Cursor, "message")
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
