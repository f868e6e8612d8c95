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

// brokerConsumer is a consumer as the broker shows it. Its token is not read.
type brokerConsumer struct {
	brokerState
	CallbackURL string
	Concurrency int
	RateLimit   float64
}

func (b *Broker) one(ctx context.Context, r Request) (*view.Page, error) {
	channel, name := r.Query.Get("channel"), r.Query.Get("consumer")
	s := b.latest.Fresh(ctx)
	counts := jobs{Channel: channel, Consumer: name}
	if i := slices.IndexFunc(s.Value.consumers, func(j jobs) bool { return j.Channel == channel && j.Consumer == name }); i >= 0 {
		counts = s.Value.consumers[i]
	}
	var c brokerConsumer
	if err := b.call.Call(ctx, http.MethodGet, counts.path(), nil, &c); err != nil {
		return nil, notShown(brokerName, err, "The list of consumers shows all that there are.", "consumer %q of channel %q", name, channel)
	}
	counts.brokerState = c.brokerState // it has the breaker, whichever node makes the callbacks
	counts.now = counts.judge()
	var lines sentences
	lines.add(true, "It is a %s consumer.", c.Type)
	lines.add(c.Type == "push", "Messages are POSTed to %s.", withoutPassword(c.CallbackURL))
	lines.add(c.Concurrency > 0, "At most %s at a time.", view.Count(uint64(max(0, c.Concurrency)), "callback"))
	lines.add(c.RateLimit > 0, "At most %s callbacks.", view.Rate(c.RateLimit).Text)
	values := func(i int) chart.Series { return r.values(b.history, counts.path(), i) }
	part := view.Part{
		ID: "consumer", Source: source(brokerName, s), Problem: counts.now.Sentence, ProblemTone: counts.now.Level.Tone(), Lines: lines,
		Actions: b.actions(counts),
		Facts: append(facts(counts, b.columns(r.Now)[2:]),
			view.Fact{Name: "Breaker", Value: view.Text(cmp.Or(c.Breaker, "none"))}, view.Fact{Name: "Next callback", Value: c.waits()}),
		Charts: []chart.Chart{chart.Large("Queued", "jobs", values(histQueued)), chart.Large("Dead", "jobs", values(histDead))},
	}
	if counts.dead > 0 {
		b.marks.show(&part, counts.marked(), b.newest(ctx, counts), r)
	}
	return &view.Page{
		Nav: "broker", Title: name, Crumbs: []view.Link{{Text: "Broker", Href: "broker"}, {Text: channel, Href: link("channel", "name", channel)}},
		Parts: []view.Part{part},
	}, nil
}

func (b *Broker) actions(j jobs) []view.Action {
	target := j.Channel + "/" + j.Consumer
	set := func(verb, text string) view.Do {
		return act(systemRefused(brokerName), func(ctx context.Context, _ url.Values) (view.Outcome, error) {
			return done(text), b.call.Call(ctx, http.MethodPost, j.path()+"/"+verb, nil, nil)
		})
	}
	all := []view.Action{{Name: "pause", Label: "Pause", Target: target, Do: set("pause", "Paused. Jobs wait.")}}
	if j.State == "paused" {
		all = []view.Action{{Name: "resume", Label: "Resume", Target: target, Do: set("resume", "Resumed. Jobs go on.")}}
	}
	return append(all, b.replay(j), b.purgeQueued(j))
}

// rated is the body of a request for an operation at the rate of a form.
func rated(form url.Values, body map[string]any) (map[string]any, error) {
	rate, err := parseRate(form.Get("rate"))
	if rate > 0 {
		body["Rate"] = rate
	}
	return body, err
}

// replay queues delivered jobs again. The list of dead jobs has an action for these.
func (b *Broker) replay(j jobs) view.Action {
	return b.begins(view.Action{
		Name: "replay", Label: "Requeue delivered jobs", Target: j.Channel + "/" + j.Consumer,
		Confirm: fmt.Sprintf("Queue the jobs again that consumer %s has received already. It gets their messages a second time.", j.Consumer),
		Fields: []view.Field{
			{Name: "since", Label: "Received since (UTC; empty: ever)", Type: "datetime-local"},
			rateField("100"),
		},
	}, "requeue", j.path()+"/replay", func(form url.Values) (map[string]any, error) {
		body := map[string]any{"Status": "DELIVERED"}
		if since := form.Get("since"); since != "" {
			at, err := parseTime(since)
			if err != nil {
				return nil, err
			}
			body["Since"] = at.UTC()
		}
		return rated(form, body)
	})
}

// purgeQueued removes the jobs that are queued.
func (b *Broker) purgeQueued(j jobs) view.Action {
	return b.begins(view.Action{
		Name: "purge-queued", Label: "Delete queued jobs", Target: j.Channel + "/" + j.Consumer, Danger: true,
		Confirm: fmt.Sprintf("Delete the jobs of consumer %s that are queued now, also those that wait for a retry. It never gets their messages. Jobs in "+
			"flight, and those of later messages, stay. This cannot be undone.", j.Consumer),
		Fields: []view.Field{rateField("10,000")},
	}, "delete", j.path()+"/purge", func(form url.Values) (map[string]any, error) { return rated(form, map[string]any{}) })
}

// begins has an action begin the operation of a path, with the body that request makes of its form. verb is what that does to jobs.
func (b *Broker) begins(a view.Action, verb, path string, request func(url.Values) (map[string]any, error)) view.Action {
	a.Preview = func(ctx context.Context, form url.Values) string {
		body, err := request(form)
		if err != nil {
			return err.Error()
		}
		body["DryRun"] = true
		var answer struct{ Count int }
		if err := b.call.Call(ctx, http.MethodPost, path, body, &answer); err != nil {
			return "How many these are is not known: " + err.Error()
		}
		return "That is " + view.Count(uint64(answer.Count), "job") + " at this moment. Nothing has been changed yet."
	}
	a.Do = act(systemRefused(brokerName), func(ctx context.Context, form url.Values) (view.Outcome, error) {
		body, err := request(form)
		if err != nil {
			return view.Outcome{}, err
		}
		at, n, err := b.start(ctx, path, body)
		return view.Outcome{
			Count: max(0, n), Text: "Began to " + verb + " " + started(n, "job") + ".", Then: operationLink(brokerName, at),
		}, err
	})
	return a
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
