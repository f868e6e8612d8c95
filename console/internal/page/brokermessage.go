package page

import (
	"cmp"
	"context"
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

// message shows a message with the attempts of each of its jobs.
func (b *Broker) message(ctx context.Context, r Request) (*view.Page, error) {
	channel, id := r.Query.Get("channel"), r.Query.Get("id")
	var m struct {
		Payload, PayloadEncoding, ContentType, ProducedBy, Status string
		ReceivedAt                                                time.Time
		Jobs                                                      []struct {
			ListenerName, Status, AttemptsURL, ConsumerURL string
			StatusChangedAt                                time.Time
			Attempts                                       int
		}
	}
	if err := b.call.Call(ctx, http.MethodGet, "/channel/"+url.PathEscape(channel)+"/message/"+url.PathEscape(id), nil, &m); err != nil {
		return nil, notShown(brokerName, err, "It may have been pruned. Check both names.", "message %q of channel %q", id, channel)
	}
	payload := brokerPayload(m.Payload, m.PayloadEncoding)
	if r.Query.Has("download") {
		return download(id, payload)
	}
	timeline := &view.List{
		Path: "brokermessage", Empty: "The message has no job.",
		Columns: []view.Column{{Title: "When"}, {Title: "Consumer"}, {Title: "What"}, {Title: "Answer"}, {Title: "Took", Number: true}, {Title: "Error", Wide: true}},
	}
	row := func(at time.Time, consumer, what string, cells ...view.Value) {
		timeline.Rows = append(timeline.Rows, view.Row{
			ID: "t-" + strconv.Itoa(len(timeline.Rows)), Cells: append([]view.Value{view.Ago(at, "not stated"), view.Text(consumer), view.Text(what)}, cells...),
		})
	}
	row(m.ReceivedAt, "", "received", view.Value{}, view.Value{}, view.Value{})
	states := map[string]int{}
	var settled []view.Option
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
			code := view.Word(view.Bad, "no answer")
			if a.StatusCode > 0 {
				code = view.Text(strconv.Itoa(a.StatusCode))
			}
			row(a.StartedAt, j.ListenerName, "attempt "+strconv.Itoa(a.Attempt), code, view.Duration(seconds(a.Duration)), view.Sentence(a.Error))
		}
		states[j.Status]++
		row(j.StatusChangedAt, j.ListenerName, "became "+j.Status, view.Value{}, view.Value{}, problem)
		if j.Status == "DEAD" || j.Status == "DELIVERED" {
			settled = append(settled, view.Option{Value: j.Status + " " + j.ConsumerURL, Text: view.Text(j.ListenerName).Text + " (" + strings.ToLower(j.Status) + ")"})
		}
	}
	slices.SortStableFunc(timeline.Rows, func(a, b view.Row) int { return a.Cells[0].Time.Compare(b.Cells[0].Time) })
	// A dead job is what the message is looked at for.
	slices.SortStableFunc(settled, func(a, b view.Option) int { return cmp.Compare(a.Value, b.Value) })
	sentence, tone := "", view.Plain
	for _, status := range slices.Sorted(maps.Keys(states)) {
		sentence += fmt.Sprintf(", %d %s", states[status], status)
	}
	if states["DEAD"] > 0 {
		tone = view.Bad
	}
	timeline.Found = view.Bounded(len(m.Jobs), false, "job")
	return &view.Page{
		Nav: "broker", Title: id, Crumbs: []view.Link{{Text: "Broker", Href: "broker"}, {Text: channel, Href: link("channel", "name", channel)}},
		Parts: []view.Part{
			{
				ID: "message", Source: view.Source{Name: brokerName, Asked: r.Now}, List: timeline, Actions: b.again(channel, id, settled),
				Problem: view.Count(uint64(len(m.Jobs)), "job") + sentence + ".", ProblemTone: tone,
				Facts: []view.Fact{
					{Name: "Status", Value: view.Text(m.Status)},
					{Name: "Received", Value: view.Ago(m.ReceivedAt, "not stated")},
					{Name: "Produced by", Value: view.Text(path.Base(m.ProducedBy))},
					{Name: "Content type", Value: view.Text(m.ContentType)},
				},
			},
			{ID: "payload", Texts: []view.Block{payloadBlock(payload, r.Query, "brokermessage", "channel", channel, "id", id)}},
		},
	}, nil
}

// again queues one job of a message again. The options name the jobs that are delivered or dead: their status and the path of their consumer.
func (b *Broker) again(channel, id string, settled []view.Option) []view.Action {
	if len(settled) == 0 {
		return nil
	}
	return []view.Action{{
		Name: "again", Label: "Queue again", Target: channel + "/" + id, Fields: []view.Field{{Name: "job", Label: "Job of consumer", Options: settled}},
		Do: func(ctx context.Context, form url.Values) (view.Outcome, error) {
			chosen := form.Get("job")
			i := slices.IndexFunc(settled, func(o view.Option) bool { return o.Value == chosen })
			if i < 0 {
				return view.Outcome{}, &Problem{Status: http.StatusConflict, Text: "This job is neither delivered nor dead any more. Nothing was changed", Fix: "Look at the message again."}
			}
			status, consumer, _ := strings.Cut(chosen, " ")
			if err := b.call.Call(ctx, http.MethodPost, consumer+"/replay", map[string]any{"Status": status, "Message": id}, nil); err != nil {
				return view.Outcome{}, systemRefused(brokerName, err)
			}
			return view.Outcome{Count: 1, Text: "Queued again for " + settled[i].Text + "."}, nil
		},
	}}
}
