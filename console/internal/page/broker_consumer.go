package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/view"
)

func (b *Broker) one(ctx context.Context, r Request) (*view.Page, error) {
	channel, name := r.Query.Get("channel"), r.Query.Get("consumer")
	s := b.latest.Fresh(ctx)
	one := jobs{Channel: channel, Consumer: name}
	if i := slices.IndexFunc(s.Value.consumers, func(j jobs) bool { return j.Channel == channel && j.Consumer == name }); i >= 0 {
		one = s.Value.consumers[i]
	}
	one.brokerState = brokerState{} // the page has the breaker, whichever node makes the callbacks
	if err := b.call.Call(ctx, http.MethodGet, one.path(), nil, &one.brokerState); err != nil {
		return nil, notShown(brokerName, err, "The list of consumers shows all that there are.", "consumer %q of channel %q", name, channel)
	}
	one.now = one.judge()
	var lines sentences
	lines.add(true, "It is a %s consumer.", one.Type)
	lines.add(one.Type == "push", "Messages are POSTed to %s.", withoutPassword(one.CallbackURL))
	lines.add(one.Concurrency > 0, "At most %s at a time.", view.Count(uint64(max(0, one.Concurrency)), "callback"))
	lines.add(one.RateLimit > 0, "At most %s callbacks.", view.Rate(one.RateLimit).Text)
	values := func(i int) chart.Series { return r.values(b.history, one.path(), i) }
	part := view.Part{
		ID: "consumer", Source: source(brokerName, s), Problem: one.now.Sentence, ProblemTone: one.now.Level.Tone(), Lines: lines,
		Actions: b.actions(one),
		Facts: append(facts(one, b.columns(r.Now)[2:]),
			view.Fact{Name: "Breaker", Value: view.Text(cmp.Or(one.Breaker, "none"))}, view.Fact{Name: "Next callback", Value: one.waits()}),
		Charts: []chart.Chart{chart.Large("Queued", "jobs", values(histQueued)), chart.Large("Dead", "jobs", values(histDead))},
	}
	if one.dead > 0 {
		b.marks.show(&part, one.marked(), b.dead.newest(ctx, one.target()), r)
	}
	return channelPage(channel, name, part), nil
}

// channelPage is the page of something in a channel.
func channelPage(channel, title string, parts ...view.Part) *view.Page {
	return &view.Page{
		Nav: "broker", Title: title, Parts: parts,
		Crumbs: []view.Link{{Text: "Broker", Href: "broker"}, {Text: channel, Href: link("channel", "name", channel)}},
	}
}

// actions are those of the page of a consumer. A channel without one has none.
func (b *Broker) actions(j jobs) []view.Action {
	if j.Consumer == "" {
		return nil
	}
	verb, label, text := "pause", "Pause", "Paused. Jobs wait."
	if j.State == "paused" {
		verb, label, text = "resume", "Resume", "Resumed. Jobs go on."
	}
	set := act(systemRefused(brokerName), func(ctx context.Context, _ url.Values) (view.Outcome, error) {
		return done(text), b.call.Call(ctx, http.MethodPost, j.path()+"/"+verb, nil, nil)
	})
	again := view.Action{
		Name: "replay", Label: "Requeue delivered jobs", Target: j.target(),
		Confirm: fmt.Sprintf("Queue the jobs again that consumer %s has received already. It gets their messages a second time.", j.Consumer),
		Fields:  []view.Field{{Name: "since", Label: "Received since (UTC; empty: ever)", Type: "datetime-local"}, rateField("100")},
	}
	purge := view.Action{
		Name: "purge-queued", Label: "Delete queued jobs", Target: j.target(), Danger: true,
		Confirm: fmt.Sprintf("Delete the jobs of consumer %s that are queued now, also those that wait for a retry. It never gets their messages. Jobs in "+
			"flight, and those of later messages, stay. This cannot be undone.", j.Consumer),
		Fields: []view.Field{rateField("10,000")},
	}
	return []view.Action{
		{Name: verb, Label: label, Target: j.target(), Do: set},
		begins(again, brokerName, "job", "requeue", func(ctx context.Context, form url.Values, rate float64, dry bool) (string, int, error) {
			body := map[string]any{"Status": "DELIVERED"}
			if since := form.Get("since"); since != "" {
				at, err := parseTime(since)
				if err != nil {
					return "", 0, err
				}
				body["Since"] = at
			}
			return b.begin(ctx, j.path()+"/replay", body, rate, dry)
		}),
		begins(purge, brokerName, "job", "delete", func(ctx context.Context, _ url.Values, rate float64, dry bool) (string, int, error) {
			return b.begin(ctx, j.path()+"/purge", map[string]any{}, rate, dry)
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
