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
	s := c.latest.Fresh(ctx)
	i := slices.IndexFunc(s.Value, func(one *consumer) bool { return one.Stream == stream && one.Name == name })
	page := &view.Page{
		Nav: "consumers", Title: name,
		Crumbs: []view.Link{{Text: "Consumers", Href: "consumers"}, {Text: stream, Href: link("consumers", "stream", stream)}},
	}
	switch {
	case i < 0 && s.At.IsZero():
		// Nothing is known yet, which is not the same as that there is no such consumer.
		page.Parts = []view.Part{{ID: "now", Source: source("NATS", s)}}
		return page, nil
	case i < 0:
		return nil, notFound("It may have been deleted, or its name is different. The list of consumers shows all that there are.",
			"There is no consumer %q on a stream %q.", name, stream)
	}
	one := s.Value[i]
	page.Parts = append([]view.Part{c.now(r, s, one)}, c.groups(one)...)
	page.Parts = append(page.Parts, view.Part{ID: "configuration", Title: "Configuration", Lines: inWords("consumer", one.ConsumerInfo)})
	for i := range page.Parts[1:] {
		page.Parts[i+1].Source.Stale = s.Stale() // the first part states why
	}
	page.Parts = slices.Insert(page.Parts, 1, c.running(ctx, r, one))
	return page, nil
}

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
	v := view.Linked("message "+strconv.FormatUint(s.Stream, 10), link("message", "stream", stream, "seq", strconv.FormatUint(s.Stream, 10)))
	if s.Last != nil {
		v.Title = "last at " + s.Last.UTC().Format(time.DateTime) + " UTC"
	}
	return v
}

// groups is a part for each priority group.
func (c *Consumers) groups(one *consumer) []view.Part {
	var parts []view.Part
	for i, group := range one.Config.PriorityGroups {
		part := view.Part{
			ID: "group-" + strconv.Itoa(i), Title: "Group " + group,
			Facts: []view.Fact{{Name: "Policy", Value: view.Text(strings.Join(inWords("policy", one.Config.PriorityPolicy), ""))}},
		}
		if one.Config.PriorityPolicy == jetstream.PriorityPolicyPinned {
			pinned := jetstream.PriorityGroupState{}
			for _, g := range one.PriorityGroups {
				if g.Group == group {
					pinned = g
				}
			}
			if pinned.PinnedClientID == "" {
				part.Facts = append(part.Facts, view.Fact{Name: "Pinned client", Value: view.None("No client is pinned: the next that pulls will be")})
			} else {
				part.Facts = append(part.Facts, view.Fact{Name: "Pinned client", Value: view.Code(pinned.PinnedClientID)},
					view.Fact{Name: "Pinned since", Value: view.Ago(pinned.PinnedTS, "The server did not state it")})
				part.Actions = thenAsk(c.latest, []view.Action{c.unpin(one, group, pinned.PinnedClientID)})
			}
			part.Facts = append(part.Facts, view.Fact{Name: "Pin is lost after", Value: view.Duration(one.Config.PinnedTTL)})
		}
		parts = append(parts, part)
	}
	return parts
}

func (c *Consumers) unpin(one *consumer, group, client string) view.Action {
	return view.Action{
		Name: "unpin", Label: "Unpin", Target: one.key,
		Fields: []view.Field{{Name: "group", Value: group, Hidden: true}},
		Do: act(refused("The pin was not changed."), func(ctx context.Context, form url.Values) (view.Outcome, error) {
			return done(fmt.Sprintf("Unpinned client %s of group %s. The next client that pulls is pinned.", client, form.Get("group"))),
				c.source.Unpin(ctx, one.Stream, one.Name, form.Get("group"))
		}),
	}
}

// refused puts into words why a server refused an action on a consumer. Rest is what happened instead.
func refused(rest string) func(error) error {
	return func(err error) error {
		switch {
		case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
			return notFound("The list of consumers shows all that there are.", "The consumer does not exist any more. %s", rest)
		case errors.Is(err, context.DeadlineExceeded):
			return &Problem{
				Status: http.StatusGatewayTimeout, Text: "NATS did not answer in time. Whether the action took effect is not known", Err: err,
				Fix: "Look at the state of the consumer before you try again.",
			}
		}
		return unavailable(err, "The reason is the server's. Correct it and try again.", "NATS refused the action. %s", rest)
	}
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
	var all []view.Action
	if one.Paused {
		all = append(all, view.Action{
			Name: "resume", Label: "Resume", Target: one.key,
			Do: act(refused("It stays paused."), func(ctx context.Context, _ url.Values) (view.Outcome, error) {
				return done("Resumed. Messages are delivered again."), c.source.Resume(ctx, one.Stream, one.Name)
			}),
		})
	}
	all = append(all,
		view.Action{
			Name: "pause", Label: "Pause", Target: one.key, Fields: pauseFields,
			Do: act(refused("It is not paused."), func(ctx context.Context, form url.Values) (view.Outcome, error) {
				until, err := pauseEnd(time.Now(), form)
				if err != nil {
					return view.Outcome{}, err
				}
				return done("Paused. It resumes " + view.At(until) + ". Delivered messages can still be acknowledged."),
					c.source.Pause(ctx, one.Stream, one.Name, until)
			}),
		},
		view.Action{
			Name: "reset", Label: "Reset", Target: one.key, Danger: true,
			Confirm: fmt.Sprintf("Deliver messages of %s to consumer %s again, from the first unacknowledged message or from the sequence that you give. "+
				"It is acknowledged up to sequence %d and has delivered up to sequence %d; %s unacknowledged. Handlers see messages a second time. This "+
				"cannot be undone.",
				one.Stream, one.Name, one.AckFloor.Stream, one.Delivered.Stream, view.CountIs(uint64(one.NumAckPending), "message")),
			Fields: []view.Field{{Name: "seq", Label: "Begin at sequence (empty: the first unacknowledged message)", Type: "number"}},
			Do: act(refused("It was not reset."), func(ctx context.Context, form url.Values) (view.Outcome, error) {
				seq, err := parseSequence(form.Get("seq"))
				if err != nil {
					return view.Outcome{}, err
				}
				begin := "with the first message that was not acknowledged"
				if seq > 0 {
					begin = "at sequence " + strconv.FormatUint(seq, 10)
				}
				return done("Reset. It begins again " + begin + "."), c.source.Reset(ctx, one.Stream, one.Name, seq)
			}),
		},
		view.Action{
			Name: "delete", Label: "Delete", Target: one.key, Danger: true,
			Confirm: fmt.Sprintf("Delete consumer %s of stream %s. %s not delivered and %s not acknowledged; the stream keeps what its retention keeps. "+
				"This cannot be undone.",
				one.Name, one.Stream, view.CountIs(one.NumPending, "message"), view.CountIs(uint64(one.NumAckPending), "message")),
			Do: act(refused("It was not deleted."), func(ctx context.Context, _ url.Values) (view.Outcome, error) {
				return view.Outcome{Count: 1, Text: fmt.Sprintf("Deleted consumer %s of stream %s.", one.Name, one.Stream), Then: "consumers"},
					c.source.Delete(ctx, one.Stream, one.Name)
			}),
		})
	return all
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
