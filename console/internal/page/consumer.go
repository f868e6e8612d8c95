package page

import (
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
)

func (c *Consumers) one(ctx context.Context, r Request) (*view.Page, error) {
	stream, name := r.Query.Get("stream"), r.Query.Get("name")
	one, s, found := lookup(ctx, c.latest, whole[*consumer], func(one *consumer) bool { return one.Stream == stream && one.Name == name })
	page := &view.Page{
		Nav: "consumers", Title: name, Parts: []view.Part{{ID: "now", Source: source("NATS", s)}},
		Crumbs: []view.Link{{Text: "Consumers", Href: "consumers"}, {Text: stream, Href: link("consumers", "stream", stream)}},
	}
	switch {
	case !found && s.At.IsZero(): // nothing is known yet, which is not the same as that there is no such consumer
		return page, nil
	case !found:
		return nil, notFound("It may have been deleted, or its name is different. The list of consumers shows all that there are.",
			"There is no consumer %q on a stream %q.", name, stream)
	}
	stale := view.Source{Stale: s.Stale()} // the first part states why
	page.Parts = []view.Part{c.now(r, s, one), c.running(ctx, r, one)}
	if len(one.Config.PriorityGroups) > 0 {
		page.Parts = append(page.Parts, c.groups(one, stale))
	}
	page.Parts = append(page.Parts, view.Part{
		ID: "configuration", Title: "Configuration", Lines: inWords("consumer", one.ConsumerInfo), Source: stale,
	})
	return page, nil
}

// whole is a sample of objects that has nothing else.
func whole[T any](sample []T) []T { return sample }

func (c *Consumers) now(r Request, s sample.Sample[[]*consumer], one *consumer) view.Part {
	values := func(i int) chart.Series { return r.values(c.history, one.key, i) }
	part := view.Part{
		ID: "now", Source: source("NATS", s),
		Problem: one.state.Sentence, ProblemTone: one.state.Level.Tone(), Actions: thenAsk(c.latest, c.actions(one)),
		Facts: append(facts(one, c.columns(r.Now)[3:]),
			view.Fact{Name: "Delivered up to", Value: sequence(one.Stream, one.Delivered)},
			view.Fact{Name: "Acknowledged up to", Value: sequence(one.Stream, one.AckFloor)},
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
	if until := one.Config.PauseUntil; one.Paused && until != nil {
		part.Facts = slices.Insert(part.Facts, 1, view.Fact{Name: "Paused until", Value: view.Ago(*until, "")})
	}
	return part
}

// sequence leads to a message of the stream.
func sequence(stream string, s jetstream.SequenceInfo) view.Value {
	if s.Stream == 0 {
		return view.None("No message yet")
	}
	v := messageLink(stream, s.Stream)
	if s.Last != nil {
		v.Title = "last at " + s.Last.UTC().Format(time.DateTime) + " UTC"
	}
	return v
}

// groups are the priority groups, with an action for a client that is pinned.
func (c *Consumers) groups(one *consumer, from view.Source) view.Part {
	part := view.Part{ID: "groups", Title: "Groups", Source: from, List: &view.List{
		Path: "consumer", Found: view.Bounded(len(one.Config.PriorityGroups), false, "group"),
		Columns: view.Texts("Group", "Pinned client").Numbers("Pinned since"),
	}}
	part.Facts = []view.Fact{{Name: "Policy", Value: view.Text(strings.Join(inWords("policy", one.Config.PriorityPolicy), ""))}}
	if one.Config.PriorityPolicy == jetstream.PriorityPolicyPinned {
		part.Facts = append(part.Facts, view.Fact{Name: "Pin is lost after", Value: view.Duration(one.Config.PinnedTTL)})
	}
	for _, group := range one.Config.PriorityGroups {
		client, since := view.None("No client is pinned: the next that pulls will be"), view.None("No client is pinned")
		for _, g := range one.PriorityGroups {
			if g.Group == group && g.PinnedClientID != "" {
				client, since = view.Code(g.PinnedClientID), view.Ago(g.PinnedTS, "The server did not state it")
				part.Actions = append(part.Actions, thenAsk(c.latest, []view.Action{c.unpin(one, g)})...)
			}
		}
		part.List.Add("group-"+group, view.Text(group), client, since)
	}
	return part
}

func (c *Consumers) unpin(one *consumer, g jetstream.PriorityGroupState) view.Action {
	return one.action(view.Action{Name: "unpin", Label: "Unpin", Fields: []view.Field{{Name: "group", Value: g.Group, Hidden: true}}},
		func(ctx context.Context, form url.Values) (view.Outcome, error) {
			return done(fmt.Sprintf("Unpinned client %s of group %s. The next client that pulls is pinned.", g.PinnedClientID, form.Get("group"))),
				c.source.Unpin(ctx, one.Stream, one.Name, form.Get("group"))
		})
}

// action is an action on the consumer, whose errors are in words.
func (c *consumer) action(a view.Action, do view.Do) view.Action {
	a.Target, a.Do = c.key, act(func(err error) error {
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
			return notFound("The list of consumers shows all that there are.", "The consumer does not exist any more. Nothing was changed.")
		case errors.Is(err, context.DeadlineExceeded):
			return &Problem{
				Status: http.StatusGatewayTimeout, Text: "NATS did not answer in time. Whether the action took effect is not known", Err: err,
				Fix: "Look at the state of the consumer before you try again.",
			}
		}
		return unavailable(err, "The reason is the server's. Correct it and try again.", "NATS refused the action. Nothing was changed.")
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

// consumerOffers are the actions for all consumers that match.
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
	{name: "delete", label: "Delete", danger: true, filtered: true, confirm: "The streams keep what their retention keeps. This cannot be undone."},
}

func (c *Consumers) actions(one *consumer) []view.Action {
	pause := one.action(view.Action{Name: "pause", Label: "Pause", Fields: pauseFields},
		func(ctx context.Context, form url.Values) (view.Outcome, error) {
			until, err := pauseEnd(time.Now(), form)
			if err == nil {
				err = c.source.Pause(ctx, one.Stream, one.Name, until)
			}
			return done("Paused. It resumes " + view.At(until) + ". Delivered messages can still be acknowledged."), err
		})
	reset := one.action(view.Action{
		Name: "reset", Label: "Reset", Danger: true,
		Confirm: fmt.Sprintf("Deliver messages of %s to consumer %s again, from the first unacknowledged message or from the sequence that you give. "+
			"It is acknowledged up to sequence %d and has delivered up to sequence %d; %s unacknowledged. Handlers see messages a second time. This "+
			"cannot be undone.",
			one.Stream, one.Name, one.AckFloor.Stream, one.Delivered.Stream, view.CountIs(uint64(one.NumAckPending), "message")),
		Fields: []view.Field{{Name: "seq", Label: "Begin at sequence (empty: the first unacknowledged message)", Type: "number"}},
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
		Confirm: fmt.Sprintf("Delete consumer %s of stream %s. %s not delivered and %s not acknowledged; the stream keeps what its retention keeps. "+
			"This cannot be undone.",
			one.Name, one.Stream, view.CountIs(one.NumPending, "message"), view.CountIs(uint64(one.NumAckPending), "message")),
	}, func(ctx context.Context, _ url.Values) (view.Outcome, error) {
		return view.Outcome{Count: 1, Text: fmt.Sprintf("Deleted consumer %s of stream %s.", one.Name, one.Stream), Then: "consumers"},
			c.source.Delete(ctx, one.Stream, one.Name)
	})
	if !one.Paused {
		return []view.Action{pause, reset, remove}
	}
	return []view.Action{one.action(view.Action{Name: "resume", Label: "Resume"}, func(ctx context.Context, _ url.Values) (view.Outcome, error) {
		return done("Resumed. Messages are delivered again."), c.source.Resume(ctx, one.Stream, one.Name)
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
