package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/jetpull/jetpull/console/internal/view"
	workers "github.com/jetpull/jetpull/internal/running"
)

// runningEmpty is what the list states if no worker answers. Nobody can tell whether there is one.
const runningEmpty = "No worker answered. The consumer may have none, or none with a name: `jetpull consume --named` gives it one, and in Go " +
	"the option Named of Consume."

// running are the messages that the workers of a consumer handle. The workers are asked while the page is open only.
func (c *Consumers) running(ctx context.Context, r Request, one *consumer) view.Part {
	answers, err := c.source.Running(ctx, one.Stream, one.Name)
	part := view.Part{ID: "running", Title: "Running messages", Source: reading("NATS", r, err)}
	if err != nil {
		return part
	}
	list := &view.List{
		Path: "consumer", Query: r.Query, Empty: runningEmpty,
		Columns: view.Texts("Message").Wide("Subject").Texts("Since").Numbers("Attempt").Texts("Worker", "Host").Numbers("Process"),
	}
	waiting, more := 0, 0
	for _, w := range answers {
		for _, m := range w.Running {
			list.Add(fmt.Sprintf("m-%s-%d", w.Instance, m.Sequence), messageLink(one.Stream, m.Sequence), view.Text(m.Subject),
				view.Ago(m.Since, "The worker did not state it"), view.Number(m.Attempt), view.Text(w.Name), view.Text(w.Host), view.Int(w.PID))
		}
		waiting, more = waiting+w.Waiting, more+w.More
	}
	slices.SortFunc(list.Rows, func(a, b view.Row) int {
		return cmp.Or(a.Cells[2].Time.Compare(b.Cells[2].Time), cmp.Compare(a.ID, b.ID))
	})
	if len(answers) > 0 {
		list.Empty = "No worker that answered handles a message now."
		part.Facts = []view.Fact{
			{Name: "Workers that answered", Value: view.Int(len(answers))}, {Name: "Messages that wait in them", Value: view.Int(waiting)},
		}
	}
	if len(list.Rows) > 0 {
		part.Actions = []view.Action{c.cancel(one)}
	}
	list.Found, part.List = view.Bounded(len(list.Rows), more > 0, "message"), list
	list.Rows, list.Previous, list.Next = slice(r.Query, list.Rows)
	return part
}

func (c *Consumers) cancel(one *consumer) view.Action {
	return one.action(view.Action{
		Name: "cancel", Label: "Cancel a handler", Danger: true,
		Confirm: strings.Join(inWords("cancel", one.ConsumerInfo), " "),
		Fields:  []view.Field{{Name: "seq", Label: "Sequence of the message", Type: "number", Required: true}},
	}, func(ctx context.Context, form url.Values) (view.Outcome, error) {
		seq, err := parseSequence(form.Get("seq"))
		if err == nil && seq == 0 {
			err = invalid("Give the sequence of a message on the list.", "No message is named.")
		}
		var answers []workers.Cancelled
		if err == nil {
			answers, err = c.source.Cancel(ctx, one.Stream, one.Name, seq)
		}
		for _, w := range answers {
			if w.Cancelled {
				return done(fmt.Sprintf("Cancelled the handler of message %d, in worker %s, process %d on %s.", seq, view.Text(w.Name).Text, w.PID,
					view.Text(w.Host).Text)), nil
			}
		}
		switch {
		case err != nil:
			return view.Outcome{}, err
		case len(answers) == 0:
			return view.Outcome{}, &Problem{
				Status: http.StatusGatewayTimeout, Fix: "Look at the list of running messages before you try again.",
				Text: fmt.Sprintf("No worker answered in time. Whether the handler of message %d was cancelled is not known.", seq),
			}
		}
		return view.Outcome{}, impossible("It may be handled already, wait, or be with a worker without a name. Look at the list again.",
			"No handler has message %d: %s answered. Nothing was cancelled.", seq, view.Count(uint64(len(answers)), "worker"))
	})
}
