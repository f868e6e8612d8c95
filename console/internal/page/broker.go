package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
)

// BrokerSource makes requests to the HTTP interface of a broker. The Admin of the broker's client implements it.
type BrokerSource interface {
	Caller
	// Send is like Call, but also sends header. It sends a body of type []byte unchanged, and returns the headers of the response.
	Send(ctx context.Context, method, path string, header http.Header, body, answer any) (http.Header, error)
}

// jobs is a consumer of the broker, with the number of jobs that it has received. For a channel without consumers, Consumer is empty.
type jobs struct {
	Channel, Consumer string
	delivered         int
	brokerState
}

// brokerState is a consumer as the broker shows it, without its token. The list of consumers has only the breakers of the node that answers.
type brokerState struct {
	Type, State, PausedBy, Breaker, WaitingFor, CallbackURL string
	PausedAt, FailingSince, WaitingUntil                    time.Time
	Concurrency                                             int
	RateLimit                                               float64
}

// target returns the consumer with the path of its page. The IDs of channel and consumer may contain any separator, so its name is also a path.
func (j jobs) target() target {
	return target{
		name: channelPath(j.Channel) + "/consumer/" + url.PathEscape(j.Consumer), title: j.Channel + "/" + j.Consumer,
		path: link("brokerconsumer", "channel", j.Channel, "consumer", j.Consumer), jobs: j,
	}
}

// judged sets the values that determine a consumer's state, except its jobs.
func (j jobs) judged(r *state.Receiver) {
	r.Noun, r.Gone, r.Known, r.Since, r.Breaker, r.Paused, r.Disabled = "job", "dead job", true, j.FailingSince, j.Breaker, "", ""
	switch {
	case j.State == "paused" && j.PausedBy == "failing":
		r.Disabled = "The broker has paused it, since its callbacks fail"
	case j.State == "paused":
		r.Paused = "Paused by an operator"
	}
}

// Broker has the pages of a broker.
type Broker struct {
	Family
	targets
	call BrokerSource
}

const brokerName = "broker"

// NewBroker returns the pages. The sampler asks the broker. The runner runs operations on many consumers.
func NewBroker(s *sample.Sampler, call BrokerSource, runner *operation.Runner, marks *Marks) *Broker {
	b := &Broker{call: call}
	b.targets = targets{system: brokerName, noun: "consumer", rates: "Delivered in a second", marks: marks, failed: b.failureList()}
	b.Family = Family{"Broker", "broker", map[string]Func{
		"broker": b.consumers, "channel": b.channel, "brokerconsumer": b.one, "brokermessage": b.message,
	}}
	b.start(s, runner, b.ask, "broker consumer", b.actions,
		offer{name: "pause", label: "Pause", confirm: "Jobs wait."}, offer{name: "resume", label: "Resume", confirm: "Jobs go on."})
	return b
}

func (b *Broker) ask(ctx context.Context) (found targetSample, err error) {
	var counts map[string]map[string][]struct {
		Status int       `json:"status"`
		Count  int       `json:"count"`
		Oldest time.Time `json:"oldestItemTimestamp"`
	}
	if err := b.call.Call(ctx, http.MethodGet, "/job-status", nil, &counts); err != nil {
		return found, err
	}
	var states struct {
		Result []struct {
			ChannelID, ConsumerID string
			brokerState
		}
		Unused []string
	}
	if err := b.call.Call(ctx, http.MethodGet, "/consumers", nil, &states); err != nil {
		return found, err
	}
	for _, k := range states.Result {
		one := jobs{Channel: k.ChannelID, Consumer: k.ConsumerID, brokerState: k.brokerState}.target()
		one.from = cmp.Or(k.FailingSince, k.PausedAt)
		for _, c := range counts[k.ChannelID][k.ConsumerID] {
			switch c.Status {
			case 1001: // queued
				one.Backlog, one.oldest = c.Count, c.Oldest
			case 1002: // in flight
				one.InFlight = c.Count
			case 1003: // delivered
				one.jobs.delivered = c.Count
			case 1004: // dead
				one.failed, one.from = c.Count, cmp.Or(one.from, c.Oldest)
			}
		}
		one.jobs.judged(&one.Receiver)
		found.failed, found.delivered = found.failed+float64(one.failed), found.delivered+one.jobs.delivered
		found.all = append(found.all, one)
	}
	for _, channel := range states.Unused {
		one := jobs{Channel: channel}.target()
		one.Known = true // it has no jobs
		one.now = state.State{Level: state.Idle, Word: noConsumer, Sentence: "Nobody gets the messages of this channel."}
		found.unused = append(found.unused, one)
	}
	return found, nil
}

// deliveredColumn is the column that only consumers have.
var deliveredColumn = []column[target]{number("Delivered", func(one target) view.Value { return view.Int(one.jobs.delivered) })}

// consumers shows the list of channels with their consumers.
func (b *Broker) consumers(ctx context.Context, r Request) (*view.Page, error) {
	s := b.latest.Fresh(ctx)
	count := func(all []target, noun string) string {
		return view.Count(uint64(len(selected(r.Query, all, fitsTarget))), noun)
	}
	list := &view.List{Found: count(s.Value.all, "consumer"), Empty: inSentence("no channels", nil)}
	if len(s.Value.unused) > 0 {
		list.Found += ", and " + count(s.Value.unused, "channel") + " without consumers"
	}
	return b.list(r, s, list, []column[target]{
		text("Channel", func(one target) view.Value {
			return view.Linked(one.jobs.Channel, link("channel", "name", one.jobs.Channel))
		}).by("name", func(a, b target) int { return cmp.Compare(a.title, b.title) }),
		text("Consumer", func(one target) view.Value { return view.Linked(one.jobs.Consumer, one.path) }),
	}, deliveredColumn, view.Option{Value: "unused", Text: noConsumer}), nil
}

func (b *Broker) one(ctx context.Context, r Request) (*view.Page, error) {
	s, one := b.latest.Fresh(ctx), jobs{Channel: r.Query.Get("channel"), Consumer: r.Query.Get("consumer")}.target()
	if i := slices.IndexFunc(s.Value.all, func(known target) bool { return known.name == one.name }); i >= 0 {
		one = s.Value.all[i]
	}
	j := &one.jobs
	j.brokerState = brokerState{}
	// The consumer's own page has the breaker, whichever node makes the callbacks.
	if err := b.call.Call(ctx, http.MethodGet, one.name, nil, &j.brokerState); err != nil {
		return nil, notShown(brokerName, err, "The list of consumers shows all that there are.", "consumer %q of channel %q", j.Consumer, j.Channel)
	}
	j.judged(&one.Receiver)
	one.now = one.Of()
	part := b.part(ctx, r, source(brokerName, s), one, deliveredColumn)
	part.Lines = append(inWords("broker consumer", j), part.Lines...)
	part.Facts = append(part.Facts, view.Fact{Name: "Breaker", Value: view.Text(cmp.Or(j.Breaker, "none"))})
	part.Facts = append(part.Facts, waits(j.WaitingFor, j.WaitingUntil)...)
	return channelPage(j.Channel, j.Consumer, part), nil
}

// channelPage returns the page of something in a channel.
func channelPage(channel, title string, parts ...view.Part) *view.Page {
	return &view.Page{
		Nav: "broker", Title: title, Parts: parts,
		Crumbs: []view.Link{{Text: "Broker", Href: "broker"}, {Text: channel, Href: link("channel", "name", channel)}},
	}
}

// actions returns the actions of a consumer's page. A channel without consumers has none.
func (b *Broker) actions(one target) []view.Action {
	if one.jobs.Consumer == "" {
		return nil
	}
	verb, label, text := "pause", "Pause", "Paused. Jobs wait."
	if one.jobs.State == "paused" {
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
		Confirm: inSentence("purge queued", one.title),
		Fields:  []view.Field{rateField("10,000")},
	}
	return []view.Action{
		{Name: verb, Label: label, Target: one.title, Do: set},
		begins(again, brokerName, "job", "requeue", func(ctx context.Context, form url.Values, rate float64, dry bool) (string, int, error) {
			selected, err := parameters(form, "since")
			if err != nil {
				return "", 0, err
			}
			selected["status"] = "DELIVERED"
			return b.begin(ctx, one.name+"/replay", selected, rate, dry)
		}),
		begins(purge, brokerName, "job", "delete", func(ctx context.Context, _ url.Values, rate float64, dry bool) (string, int, error) {
			return b.begin(ctx, one.name+"/purge", nil, rate, dry)
		}),
	}
}

// failureList returns the broker with its list of dead jobs.
func (b *Broker) failureList() *failureList {
	return &failureList{
		name: brokerName, noun: "dead job", usualRate: "100", fields: []string{"consumer", "producer", "message", "", "reason", "since", "until"},
		reasons: []string{"REFUSED", "NO_ANSWER", "GIVEN_UP"}, verbs: map[string]string{"requeue": "/dead-jobs/requeue", "purge": "/dead-jobs/purge"},
		purge: " Jobs that a worker gave up before their retries were used up are skipped.", list: b.failures, begin: b.begin,
	}
}

// failures asks the broker for dead jobs, of all consumers, that match a filter of its interface, starting at a cursor.
func (b *Broker) failures(ctx context.Context, filter map[string]string, cursor string) (found []failure, next string, err error) {
	var answer struct {
		Result []struct {
			ID, ChannelID, ConsumerID, MessageID, ProducedBy, Reason string
			DeadSince                                                time.Time
			StatusCode, Attempts                                     int
		}
		Next string
	}
	// The cursor is a time before that of the filter.
	err = b.call.Call(ctx, http.MethodGet, "/dead-jobs?"+asked(filter, "until", cursor), nil, &answer)
	for _, j := range answer.Result {
		attempts := view.Int(j.Attempts)
		if j.Reason == "GIVEN_UP" {
			attempts = view.None("The broker counts callbacks, which a pull consumer does not get")
		}
		found = append(found, failure{id: j.ID, reason: j.Reason, at: j.DeadSince, position: uint64(j.DeadSince.UnixNano()), more: []view.Value{
			view.Linked(j.ChannelID+"/"+j.ConsumerID, link("brokerconsumer", "channel", j.ChannelID, "consumer", j.ConsumerID)), view.Text(j.ProducedBy),
			view.Linked(j.MessageID, link("brokermessage", "channel", j.ChannelID, "id", j.MessageID)), view.None("The broker has no stages"), attempts,
			view.Text(inSentence("dead job", j)),
		}})
	}
	return found, answer.Next, err
}

// begin starts the operation of a path on the jobs that the given fields of its request select. It returns its path and the number of its jobs, or -1
// if the broker does not report it. With dry, it only counts them.
func (b *Broker) begin(ctx context.Context, path string, fields map[string]string, rate float64, dry bool) (at string, n int, err error) {
	begun, body := struct{ Count int }{-1}, map[string]any{"DryRun": dry}
	for name, value := range fields {
		body[capital(name)] = value
	}
	if rate > 0 {
		body["Rate"] = rate
	}
	if dry {
		err = b.call.Call(ctx, http.MethodPost, path, body, &begun)
		return "", begun.Count, err
	}
	header, err := b.call.Send(ctx, http.MethodPost, path, nil, body, nil)
	if err != nil {
		return "", 0, err
	}
	at = header.Get("Location")
	_ = b.call.Call(ctx, http.MethodGet, at, nil, &begun) // after an error, the count stays unknown
	return at, begun.Count, nil
}

// Operations implements [operation.Source]: operations on one consumer's jobs, and on dead jobs of all consumers. Their IDs are their paths.
func (b *Broker) Operations(ctx context.Context) (all []operation.Operation, err error) {
	for _, path := range []string{"/dead-jobs/operations", "/replays"} {
		var answer struct {
			Result []struct {
				operation.Operation
				URL, ChannelID, ConsumerID, Status, Message string
				Filter                                      map[string]string
				Count, Replayed, Purged                     int
				CreatedAt, ChangedAt                        time.Time
			}
		}
		if err := b.call.Call(ctx, http.MethodGet, path, nil, &answer); err != nil {
			return nil, err
		}
		for _, r := range answer.Result {
			o := r.Operation
			o.System, o.ID, o.State, o.Matched, o.Done = brokerName, r.URL, strings.ToLower(o.State), r.Count, o.Done+r.Replayed+r.Purged
			o.What, o.Began, o.Changed = filtered("dead jobs", r.Filter), r.CreatedAt, r.ChangedAt
			o.Cancel = func(ctx context.Context) error { return b.call.Call(ctx, http.MethodDelete, r.URL, nil, nil) }
			if r.ConsumerID != "" { // a purge is of queued jobs, and has no status
				o.What = strings.ToLower(cmp.Or(r.Status, "queued")) + " jobs of " + r.ChannelID + "/" + r.ConsumerID
			}
			if o.Kind = plain(o.Kind).Text; r.Message != "" {
				o.What += ", message " + r.Message
			}
			all = append(all, o)
		}
	}
	return all, nil
}
