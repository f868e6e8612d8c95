package page

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/view"
)

// relayMessage is a message as the relay's interface describes it.
type relayMessage struct {
	Receiver, Status, Sender string
	Arrived                  time.Time
	Ended                    *time.Time
	Redrives                 int
	Attempts                 []struct {
		Number, Code int
		Time         time.Time
		Error        string
		Duration     float64
		Answer       *struct {
			Headers map[string]string
			Body    string
		}
	}
	Reported, Truncated bool
	Waiting             struct {
		For   string // empty if it waits for nothing
		Until time.Time
	}
	Response *json.RawMessage // nil if the relay has kept none
	Error    *struct{ Code, Stage, Message string }
}

// message shows a message of the relay as a timeline.
func (y *Relay) message(ctx context.Context, r Request) (*view.Page, error) {
	src, id := r.Query.Get("source"), r.Query.Get("id")
	var m relayMessage
	path := "/v1/messages/" + url.PathEscape(src) + "/" + url.PathEscape(id)
	if err := y.call.Call(ctx, http.MethodGet, path, nil, &m); err != nil {
		return nil, notShown(relayName, err, "Check both names.", "message %q of source %q", id, src)
	}
	part := view.Part{
		ID: "message", Source: view.Source{Name: relayName, Asked: r.Now}, Problem: inSentence("relay message", m),
		ProblemTone: relayTones[m.Status],
		List:        timeline(view.Bounded(len(m.Attempts), false, "attempt"), m.steps()),
		Facts: []view.Fact{
			{Name: "Source", Value: view.Text(src)},
			{Name: "Receiver", Value: view.Linked(m.Receiver, link("receiver", "name", m.Receiver))},
			{Name: "Arrived", Value: view.Ago(m.Arrived, "not stated")},
			{Name: "Requeued", Value: view.Int(m.Redrives)},
		},
	}
	part.Facts = append(part.Facts, waits(m.Waiting.For, m.Waiting.Until)...)
	if m.Status == "FAILED" {
		y.oneFailed(ctx, &part, src, id)
	}
	request, payload, err := y.request(ctx, r, path, src, id)
	for _, a := range m.Attempts { // with the start of each of the last responses
		if a.Answer != nil && r.Payloads {
			text := headerLines(a.Answer.Headers) + "\n" + a.Answer.Body
			request.Texts = append(request.Texts, view.Block{Title: "Answer to attempt " + strconv.Itoa(a.Number), Text: text})
		}
	}
	switch which := r.Query.Get("download"); {
	case which == "request" && err == nil:
		return download(r, id, payload)
	case m.Response != nil && which != "" && which != "request":
		return download(r, id, *m.Response)
	case m.Response != nil:
		block := payloadBlock(*m.Response, r, "relaymessage", "source", src, "id", id)
		block.Title = "Response"
		if m.Truncated {
			block.Note = strings.TrimSpace("The relay has kept only the begin of the response. " + block.Note)
		}
		request.Texts = append(request.Texts, block)
	}
	return &view.Page{
		Nav: "relay", Title: id, Parts: []view.Part{part, request},
		Crumbs: []view.Link{{Text: "Relay", Href: "relay"}, {Text: m.Receiver, Href: link("receiver", "name", m.Receiver)}},
	}, nil
}

// oneFailed adds the actions on a failed message to its page, if the message is on the list of failed ones.
func (y *Relay) oneFailed(ctx context.Context, part *view.Part, source, id string) {
	filter := map[string]string{"source": source, "message": id}
	found, _, err := y.failures(ctx, filter, "")
	switch {
	case err != nil:
		part.Lines = []string{"Whether it is on the list of failed messages is not known now: " + err.Error()}
	case len(found) == 0:
		part.Lines = []string{"It is not on the list of failed messages: it was skipped or purged, or the list has dropped it."}
	default:
		part.Actions = y.failed.actions(filter, true)
	}
}

// steps returns the history of the message.
func (m *relayMessage) steps() []step {
	all := []step{{at: m.Arrived, what: "arrived"}}
	for _, a := range m.Attempts {
		all = append(all, attempt(a.Time, m.Receiver, a.Number, a.Code, a.Duration, a.Error))
	}
	if m.Ended != nil {
		all = append(all, step{at: *m.Ended, what: inSentence("ended", m)})
	}
	return all
}

func headerLines(headers map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		b.WriteString(name + ": " + headers[name] + "\n")
	}
	text, _ := printable([]byte(b.String()), b.Len())
	return text
}

// request shows the payload and the headers from the sender, or sends the payload. The relay keeps both until the message is DONE.
func (y *Relay) request(ctx context.Context, r Request, path, src, id string) (part view.Part, payload []byte, err error) {
	var sent struct {
		Headers map[string]string
		Payload []byte
	}
	if r.Payloads {
		err = y.call.Call(ctx, http.MethodGet, path+"/request", nil, &sent)
	}
	block := payloadBlock(sent.Payload, r, "relaymessage", "source", src, "id", id)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		block = view.Block{Title: "Payload", Note: "The relay keeps the payload until a message is DONE, or off the list of failed messages."}
	case err != nil:
		block = view.Block{Title: "Payload", Note: "It is not known now: " + err.Error()}
	case r.Payloads:
		block.Links[len(block.Links)-1].Href = link("relaymessage", "source", src, "id", id, "download", "request")
	}
	block.Title = "Request: " + block.Title
	part = view.Part{ID: "request", Texts: []view.Block{block}}
	if len(sent.Headers) > 0 {
		part.Texts = append(part.Texts, view.Block{Title: "Headers of the sender", Text: headerLines(sent.Headers)})
	}
	return part, sent.Payload, err
}

// messages lists the messages of which the relay has a record, including delivered ones.
func (y *Relay) messages(ctx context.Context, r Request) (*view.Page, error) {
	q := r.Query
	filter, err := parameters(q, "receiver", "source", "message", "status", "since", "until")
	if err != nil {
		return nil, err
	}
	states := append(options("", "all"), inPlain("DONE", "FAILED", "ARRIVED", "SENDING", "DELIVERED_TO_RECEIVER", "RESPONSE_RECEIVED_FROM_RECEIVER")...)
	var answer struct {
		Items []struct {
			Source           string `json:"source_id"`
			ID               string `json:"message_id"`
			Receiver, Status string
			Attempts         int
			Arrived, Changed time.Time
		} `json:"items"`
		Cursor string `json:"cursor"`
	}
	err = y.call.Call(ctx, http.MethodGet, "/v1/messages?"+asked(filter, "cursor", q.Get("next")), nil, &answer)
	part := view.Part{ID: "messages", Source: reading(relayName, r, err)}
	if err == nil {
		part.List = &view.List{
			Path: "relaymessages", Query: q, Found: view.Bounded(len(answer.Items), answer.Cursor != "", "message"),
			Empty:   "No message matches. The relay keeps a delivered message for a day, and a failed one for 30 days, unless it is configured otherwise.",
			Columns: view.Columns("Message", "Status", ">Changed", ">Arrived", ">Attempts", "Receiver", "Source"),
		}
		for _, m := range answer.Items {
			part.List.Add("m-"+m.Source+"/"+m.ID,
				view.Linked(m.ID, link("relaymessage", "source", m.Source, "id", m.ID)), view.Word(relayTones[m.Status], m.Status),
				view.Ago(m.Changed, "not stated"), view.Ago(m.Arrived, "not stated"), view.Int(m.Attempts),
				view.Linked(m.Receiver, link("receiver", "name", m.Receiver)), view.Text(m.Source))
		}
		goesOn(part.List, "next", answer.Cursor, "message")
	}
	return &view.Page{
		Nav: "relay", Title: "Messages of the relay", Crumbs: []view.Link{{Text: "Relay", Href: "relay"}}, Parts: []view.Part{part},
		Filter: append([]view.Field{
			searchField(q, "message", "Message", "its whole ID"),
			choice(q, "status", "Status", states),
			entry(q, "receiver", "Receiver", ""),
			entry(q, "source", "Source", ""),
		}, timeFields(q, "Changed since", "Changed until")...),
	}, nil
}

// relayTones maps the final states of a message to tones.
var relayTones = map[string]view.Tone{"DONE": view.Good, "FAILED": view.Bad}

// step is an event in the history of a message of the relay or the broker.
type step struct {
	at             time.Time
	receiver, what string
	answer, took   view.Value
	problem        string
}

// attempt returns a step that made a request. A status of 0 means that there was no response.
func attempt(at time.Time, receiver string, n, status int, took float64, problem string) step {
	answer := view.Word(view.Bad, "no answer")
	if status > 0 {
		answer = view.Text(strconv.Itoa(status))
	}
	return step{at: at, receiver: receiver, what: "attempt " + strconv.Itoa(n), answer: answer, took: view.Duration(seconds(took)), problem: problem}
}

// waits returns why a message waits, and until when, if it waits.
func waits(why string, until time.Time) []view.Fact {
	if why == "" {
		return nil
	}
	return []view.Fact{{Name: "Waits for", Value: plain(why)}, {Name: "Waits until", Value: view.Ago(until, "That is not known")}}
}

// timeline returns a list of the history of a message, oldest first.
func timeline(found string, steps []step) *view.List {
	list := &view.List{Found: found, Columns: view.Columns("When", "Receiver", "What", "Answer", ">Took", "*Error")}
	slices.SortStableFunc(steps, func(a, b step) int { return a.at.Compare(b.at) })
	for i, s := range steps {
		list.Add("t-"+strconv.Itoa(i), view.Ago(s.at, "not stated"), view.Text(s.receiver), view.Text(s.what), s.answer, s.took, view.Sentence(s.problem))
	}
	return list
}
