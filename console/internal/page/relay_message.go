package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/view"
)

// relayMessage is a message as the relay's interface describes it.
type relayMessage struct {
	Receiver string     `json:"receiver"`
	Status   string     `json:"status"`
	Arrived  time.Time  `json:"arrived"`
	Ended    *time.Time `json:"ended"`
	Redrives int        `json:"redrives"`
	Attempts []struct {
		Number   int       `json:"number"`
		Time     time.Time `json:"time"`
		Code     int       `json:"code"`
		Error    string    `json:"error"`
		Duration float64   `json:"duration"`
	} `json:"attempts"`
	Waiting *struct {
		For   string    `json:"for"`
		Until time.Time `json:"until"`
	} `json:"waiting"`
	Response  json.RawMessage `json:"response"`
	Truncated bool            `json:"truncated"`
	Error     *struct {
		Code, Stage, Message string
	} `json:"error"`
}

// message is a message of the relay as a timeline.
func (y *Relay) message(ctx context.Context, r Request) (*view.Page, error) {
	src, id := r.Query.Get("source"), r.Query.Get("id")
	var m relayMessage
	if err := y.call.Call(ctx, http.MethodGet, "/v1/messages/"+url.PathEscape(src)+"/"+url.PathEscape(id), nil, &m); err != nil {
		return nil, notShown(relayName, err, "Check both names.", "message %q of source %q", id, src)
	}
	tone := view.Plain
	switch m.Status {
	case "DONE":
		tone = view.Good
	case "FAILED":
		tone = view.Bad
	}
	problem := "The message is " + m.Status + "."
	if m.Error != nil {
		problem = fmt.Sprintf("The message is %s: %s (%s, at the stage %s).", m.Status, m.Error.Message,
			plain(m.Error.Code).Text, plain(m.Error.Stage).Text)
	}
	part := view.Part{
		ID: "message", Source: view.Source{Name: relayName, Asked: r.Now}, Problem: problem, ProblemTone: tone, List: m.timeline(),
		Facts: []view.Fact{
			{Name: "Source", Value: view.Text(src)},
			{Name: "Receiver", Value: view.Linked(m.Receiver, link("receiver", "name", m.Receiver))},
			{Name: "Arrived", Value: view.Ago(m.Arrived, "not stated")},
			{Name: "Requeued", Value: view.Int(m.Redrives)},
		},
	}
	if m.Waiting != nil {
		part.Facts = append(part.Facts, view.Fact{Name: "Waits for", Value: view.Text(m.Waiting.For)},
			view.Fact{Name: "Waits until", Value: view.Ago(m.Waiting.Until, "That is not known")})
	}
	if m.Status == "FAILED" {
		y.oneFailed(ctx, &part, src, id)
	}
	parts := []view.Part{part}
	if len(m.Response) > 0 && string(m.Response) != "null" {
		if r.Query.Has("download") {
			return download(r, id, m.Response)
		}
		block := payloadBlock(m.Response, r, "relaymessage", "source", src, "id", id)
		block.Title = "Response"
		if m.Truncated {
			block.Note = strings.TrimSpace("The relay has kept only the begin of the response. " + block.Note)
		}
		parts = append(parts, view.Part{ID: "response", Texts: []view.Block{block}})
	}
	return &view.Page{Nav: "relay", Title: id, Crumbs: []view.Link{
		{Text: "Relay", Href: "relay"},
		{Text: m.Receiver, Href: link("receiver", "name", m.Receiver)},
	}, Parts: parts}, nil
}

// timeline lists what happened to the message, the oldest first.
func (m *relayMessage) timeline() *view.List {
	timeline := &view.List{
		Found: view.Bounded(len(m.Attempts), false, "attempt"), Path: "relaymessage", Empty: "No attempt has been made yet.",
		Columns: []view.Column{{Title: "When"}, {Title: "What"}, {Title: "Answer"}, {Title: "Took", Number: true}, {Title: "Error", Wide: true}},
	}
	row := func(at time.Time, what string, answer, took, problem view.Value) {
		timeline.Rows = append(timeline.Rows, view.Row{
			ID:    "t-" + strconv.Itoa(len(timeline.Rows)),
			Cells: []view.Value{view.Ago(at, "not stated"), view.Text(what), answer, took, problem},
		})
	}
	row(m.Arrived, "arrived", view.Value{}, view.Value{}, view.Value{})
	for _, a := range m.Attempts {
		row(a.Time, "POST, attempt "+strconv.Itoa(a.Number), statusCode(a.Code), view.Duration(seconds(a.Duration)), view.Sentence(a.Error))
	}
	if m.Ended != nil {
		row(*m.Ended, "ended as "+m.Status, view.Value{}, view.Value{}, view.Value{})
	}
	return timeline
}
