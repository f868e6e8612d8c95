package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/jetpull/jetpull/console/internal/view"
)

func (b *Broker) one(ctx context.Context, r Request) (*view.Page, error) {
	j := jobs{Channel: r.Query.Get("channel"), Consumer: r.Query.Get("consumer")}
	s, one := b.latest.Fresh(ctx), j.target()
	if i := slices.IndexFunc(s.Value.all, func(known target[jobs]) bool { return known.name == one.name }); i >= 0 {
		one = s.Value.all[i]
	}
	// The page has the breaker, whichever node makes the callbacks.
	if err := b.call.Call(ctx, http.MethodGet, one.name, nil, &j.brokerState); err != nil {
		return nil, notShown(brokerName, err, "The list of consumers shows all that there are.", "consumer %q of channel %q", j.Consumer, j.Channel)
	}
	one.more.brokerState = j.brokerState
	one.Paused, one.Disabled = "", ""
	j.judged(&one.Receiver)
	one.now = one.Of()
	var lines sentences
	lines.add(true, "It is a %s consumer.", j.Type)
	lines.add(j.Type == "push", "Messages are POSTed to %s.", withoutPassword(j.CallbackURL))
	lines.add(j.Concurrency > 0, "At most %s at a time.", view.Count(uint64(max(0, j.Concurrency)), "callback"))
	lines.add(j.RateLimit > 0, "At most %s callbacks.", view.Rate(j.RateLimit).Text)
	part := b.part(ctx, r, source(brokerName, s), one, deliveredColumn)
	part.Lines = append(lines, part.Lines...)
	part.Facts = append(part.Facts, view.Fact{Name: "Breaker", Value: view.Text(cmp.Or(j.Breaker, "none"))},
		view.Fact{Name: "Next callback", Value: j.waits()})
	return channelPage(j.Channel, j.Consumer, part), nil
}

// channelPage is the page of something in a channel.
func channelPage(channel, title string, parts ...view.Part) *view.Page {
	return &view.Page{
		Nav: "broker", Title: title, Parts: parts,
		Crumbs: []view.Link{{Text: "Broker", Href: "broker"}, {Text: channel, Href: link("channel", "name", channel)}},
	}
}

// actions are those of the page of a consumer. A channel without one has none.
func (b *Broker) actions(one target[jobs]) []view.Action {
	if one.more.Consumer == "" {
		return nil
	}
	verb, label, text := "pause", "Pause", "Paused. Jobs wait."
	if one.more.State == "paused" {
		verb, label, text = "resume", "Resume", "Resumed. Jobs go on."
	}
	set := act(systemRefused(brokerName), func(ctx context.Context, _ url.Values) (view.Outcome, error) {
		return done(text), b.call.Call(ctx, http.MethodPost, one.name+"/"+verb, nil, nil)
	})
	again := view.Action{
		Name: "replay", Label: "Requeue delivered jobs", Target: one.title,
		Confirm: fmt.Sprintf("Queue the jobs again that consumer %s has received already. It gets their messages a second time.", one.title),
		Fields:  []view.Field{{Name: "since", Label: "Received since (UTC; empty: ever)", Type: "datetime-local"}, rateField("100")},
	}
	purge := view.Action{
		Name: "purge-queued", Label: "Delete queued jobs", Target: one.title, Danger: true,
		Confirm: fmt.Sprintf("Delete the jobs of consumer %s that are queued now, also those that wait for a retry. It never gets their messages. Jobs in "+
			"flight, and those of later messages, stay. This cannot be undone.", one.title),
		Fields: []view.Field{rateField("10,000")},
	}
	return []view.Action{
		{Name: verb, Label: label, Target: one.title, Do: set},
		begins(again, brokerName, "job", "requeue", func(ctx context.Context, form url.Values, rate float64, dry bool) (string, int, error) {
			body := map[string]any{"Status": "DELIVERED"}
			if since := form.Get("since"); since != "" {
				at, err := parseTime(since)
				if err != nil {
					return "", 0, err
				}
				body["Since"] = at
			}
			return b.begin(ctx, one.name+"/replay", body, rate, dry)
		}),
		begins(purge, brokerName, "job", "delete", func(ctx context.Context, _ url.Values, rate float64, dry bool) (string, int, error) {
			return b.begin(ctx, one.name+"/purge", map[string]any{}, rate, dry)
		}),
	}
}

// waitReasons are the reasons why a callback waits, as the broker names them.
var waitReasons = map[string]string{
	"pause": "it is paused", "breaker": "the circuit breaker is open", "hold": "the receiver has asked for a pause",
	"rate": "the rate limit is reached", "concurrency": "as many as allowed are in progress", "store": "its outcome could not be stored",
}

// waits is why the next callback waits, and until when if that is known.
func (s *brokerState) waits() view.Value {
	if s.WaitingFor == "" {
		return view.None("Nothing delays it, as far as this broker knows")
	}
	text := "waits: " + cmp.Or(waitReasons[s.WaitingFor], s.WaitingFor)
	if !s.WaitingUntil.IsZero() {
		text += ", until " + view.At(s.WaitingUntil)
	}
	return view.Text(text)
}
