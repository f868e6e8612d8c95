package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
	workers "github.com/jetpull/jetpull/internal/running"
)

func (c *Consumers) one(ctx context.Context, r Request) (*view.Page, error) {
	stream, name := r.Query.Get("stream"), r.Query.Get("name")
	one, s, found := lookup(ctx, c.latest, whole[*consumer], func(one *consumer) bool { return one.Stream == stream && one.Name == name })
	page := &view.Page{
		Nav: "consumers", Title: name, Parts: []view.Part{{ID: "now", Source: source("NATS", s)}},
		Crumbs: []view.Link{{Text: "Consumers", Href: "consumers"}, {Text: stream, Href: link("consumers", "stream", stream)}},
	}
	switch {
	case !found && s.Stale(): // the consumer may exist
		return page, nil
	case !found:
		return nil, notFound("It may have been deleted, or its name is different. The list of consumers shows all that there are.",
			"There is no consumer %q on a stream %q.", name, stream)
	}
	stale := view.Source{Stale: s.Stale()} // the first part explains why
	page.Parts = append([]view.Part{c.now(r, s, one), c.running(ctx, r, one)}, c.groups(one, stale)...)
	page.Parts = append(page.Parts, view.Part{
		ID: "configuration", Title: "Configuration", Lines: inWords("consumer", one.ConsumerInfo), Source: stale,
	})
	return page, nil
}

// whole returns the objects of a sample that contains nothing else.
func whole[T any](sample []T) []T { return sample }

func (c *Consumers) now(r Request, s sample.Sample[[]*consumer], one *consumer) view.Part {
	values := func(i int) chart.Series { return r.values(c.history, one.key, i) }
	return view.Part{
		ID: "now", Source: source("NATS", s),
		Problem: one.state.Sentence, ProblemTone: one.state.Level.Tone(), Actions: thenAsk(c.latest, c.actions(one)),
		Facts: append(facts(one, c.columns(r.Now)[3:]),
			view.Fact{Name: "Delivered up to", Value: messageLink(one.Stream, one.Delivered.Stream)},
			view.Fact{Name: "Acknowledged up to", Value: messageLink(one.Stream, one.AckFloor.Stream)},
			view.Fact{Name: "Created", Value: view.Ago(one.Created, "The server did not state it")}),
		Charts: []chart.Chart{
			chart.Large("Pending", "messages", values(histPending)),
			chart.Against("Ack pending", "messages", values(histAckPending), float64(max(0, one.Config.MaxAckPending))),
			chart.Large("Deliveries in a second", "", values(histRate)),
			chart.Large("Redelivered", "messages", values(histRedelivered)),
			chart.Large("Waiting pulls", "pulls", values(histWaiting)),
			chart.Against("Lag: how long the oldest pending has waited", "s", values(histLag), state.LagLimit(one.Config.Metadata).Seconds()),
			chart.Large("Oldest unacknowledged", "s", values(histOldest)),
		},
	}
}

// groups returns a part for each priority group, with an action for a pinned client.
func (c *Consumers) groups(one *consumer, from view.Source) (all []view.Part) {
	for _, g := range one.PriorityGroups {
		part := view.Part{ID: "group-" + g.Group, Title: "Group " + g.Group, Source: from, Facts: []view.Fact{
			{Name: "Policy", Value: view.Text(inSentence("policy", one.Config.PriorityPolicy))},
			{Name: "Pinned client", Value: view.None("No client is pinned: the next that pulls will be")},
		}}
		if g.PinnedClientID != "" {
			part.Facts[1].Value = view.Code(g.PinnedClientID)
			part.Facts = append(part.Facts, view.Fact{Name: "Pinned since", Value: view.Ago(g.PinnedTS, "The server did not state it")})
			unpin := view.Action{Name: "unpin", Label: "Unpin", Fields: []view.Field{{Name: "group", Value: g.Group, Hidden: true}}}
			part.Actions = thenAsk(c.latest, []view.Action{one.action(unpin, func(ctx context.Context, form url.Values) (view.Outcome, error) {
				return done(fmt.Sprintf("Unpinned client %s of group %s. The next client that pulls is pinned.", g.PinnedClientID, form.Get("group"))),
					c.source.Unpin(ctx, one.Stream, one.Name, form.Get("group"))
			})})
		}
		all = append(all, part)
	}
	return all
}

// action returns an action on the consumer, whose errors are readable.
func (c *consumer) action(a view.Action, do view.Do) view.Action {
	a.Target, a.Do = c.key, act(func(err error) error {
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			return notFound("The list of consumers shows all that there are.", "The consumer does not exist any more. Nothing was changed.")
		}
		return unconfirmed(err, "The reason is the server's. Correct it and try again.", "Nothing was changed, since NATS refused the action")
	}, do)
	return a
}

var pauseFields = []view.Field{
	{
		Name: "for", Label: "Pause for", Value: "1h",
		Options: options("15m", "15 minutes", "1h", "1 hour", "4h", "4 hours", "24h", "1 day", "168h", "7 days"),
	},
	{Name: "until", Label: "or until (UTC)", Type: "datetime-local"},
}

// consumerOffers are the actions for all consumers that match the filter.
var consumerOffers = []offer{
	{name: "resume", label: "Resume", confirm: "Messages are delivered again."},
	{
		name: "pause", label: "Pause", confirm: "What is delivered already can still be acknowledged.", fields: pauseFields,
		check: func(form url.Values) error { // all consumers are paused until the same time
			until, err := pauseEnd(time.Now(), form)
			form.Set("until", until.Format("2006-01-02T15:04:05"))
			return err
		},
	},
	{
		name: "reset", label: "Reset", danger: true,
		confirm: "Each delivers messages again from its first unacknowledged one on. Handlers see messages a second time. This cannot be undone.",
	},
	{name: "delete", label: "Delete", danger: true, filtered: true, confirm: "Retention decides what stays in the streams. This cannot be undone."},
}

func (c *Consumers) actions(one *consumer) []view.Action {
	pause := one.action(view.Action{Name: "pause", Label: "Pause", Fields: pauseFields},
		func(ctx context.Context, form url.Values) (view.Outcome, error) {
			until, err := pauseEnd(time.Now(), form)
			if err == nil {
				_, err = c.source.PauseConsumer(ctx, one.Stream, one.Name, until)
			}
			return done("Paused. It resumes " + view.At(until) + ". Delivered messages can still be acknowledged."), err
		})
	reset := one.action(view.Action{
		Name: "reset", Label: "Reset", Danger: true,
		Confirm: inSentence("reset", one.ConsumerInfo),
		Fields:  []view.Field{{Name: "seq", Label: "Begin at sequence (empty: the first unacknowledged message)", Type: "number"}},
	}, func(ctx context.Context, form url.Values) (view.Outcome, error) {
		begin := "with the first message that was not acknowledged"
		seq, err := parseSequence(form.Get("seq"))
		if err == nil {
			err = c.source.Reset(ctx, one.Stream, one.Name, seq)
		}
		if seq > 0 {
			begin = fmt.Sprintf("at sequence %d", seq)
		}
		return done("Reset. It begins again " + begin + "."), err
	})
	remove := one.action(view.Action{
		Name: "delete", Label: "Delete", Danger: true,
		Confirm: inSentence("delete", one.ConsumerInfo),
	}, func(ctx context.Context, _ url.Values) (view.Outcome, error) {
		return view.Outcome{Count: 1, Text: fmt.Sprintf("Deleted consumer %s of stream %s.", one.Name, one.Stream), Then: "consumers"},
			c.source.DeleteConsumer(ctx, one.Stream, one.Name)
	})
	if !one.Paused {
		return []view.Action{pause, reset, remove}
	}
	return []view.Action{one.action(view.Action{Name: "resume", Label: "Resume"}, func(ctx context.Context, _ url.Values) (view.Outcome, error) {
		_, err := c.source.ResumeConsumer(ctx, one.Stream, one.Name)
		return done("Resumed. Messages are delivered again."), err
	}), pause, reset, remove}
}

func pauseEnd(now time.Time, form url.Values) (time.Time, error) {
	if until := form.Get("until"); until != "" {
		if at, err := parseTime(until); err == nil && at.After(now) {
			return at, nil
		}
		return time.Time{}, invalid("Give a later time in UTC, such as "+now.UTC().Add(time.Hour).Format("2006-01-02T15:04")+".",
			"A pause until %q cannot begin: it is no time after now.", until)
	}
	d, err := time.ParseDuration(form.Get("for"))
	if err != nil || d <= 0 {
		return time.Time{}, invalid("Give a duration such as 15m or 4h.", "A pause for %q cannot begin: it is no duration.", form.Get("for"))
	}
	return now.UTC().Add(d).Truncate(time.Second), nil
}

func parseSequence(text string) (uint64, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, nil
	}
	seq, err := strconv.ParseUint(text, 10, 64)
	if err != nil || seq == 0 {
		return 0, invalid("Give a whole number from 1 on.", "%q is no sequence of a stream.", text)
	}
	return seq, nil
}

// running shows the messages that the workers of a consumer handle. It asks the workers only while the page is open.
func (c *Consumers) running(ctx context.Context, r Request, one *consumer) view.Part {
	answers, err := c.source.Running(ctx, one.Stream, one.Name)
	part := view.Part{ID: "running", Title: "Running messages", Source: reading("NATS", r, err)}
	if err != nil {
		return part
	}
	list := &view.List{
		Path: "consumer", Query: r.Query, Empty: inSentence("no workers", nil),
		Columns: view.Columns("Message", "*Subject", "Since", ">Attempt", "Worker", "Host", ">Process"),
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
		Confirm: inSentence("cancel", one.ConsumerInfo),
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
