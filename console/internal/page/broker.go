package page

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
)

// BrokerSource makes requests to the HTTP interface of a broker. The Admin of the broker's client is one.
type BrokerSource interface {
	Caller
	// Send is Call with more headers. A body that is a []byte is sent as it is. It returns the headers of the answer.
	Send(ctx context.Context, method, path string, header http.Header, body, answer any) (http.Header, error)
}

// The numbers of the states of a job.
const (
	jobQueued    = 1001
	jobInflight  = 1002
	jobDelivered = 1003
	jobDead      = 1004
)

// jobs are the counts and the state of a broker's consumer.
type jobs struct {
	Channel, Consumer                 string
	queued, inflight, delivered, dead int
	oldest, oldestDead                time.Time // of the queued, and when the first of the dead became so
	brokerState
	now state.State
	// seen states that somebody has looked at all dead jobs, and listed that the broker has answered which these are.
	seen, listed bool
}

// brokerState is the state of a consumer. The list of consumers has only the breakers of the node that answers.
type brokerState struct {
	Type, State, PausedBy, Breaker, WaitingFor string
	PausedAt, FailingSince, WaitingUntil       time.Time
}

func (j jobs) path() string { return consumerPath(j.Channel, j.Consumer) }

func consumerPath(channel, consumer string) string {
	return "/channel/" + url.PathEscape(channel) + "/consumer/" + url.PathEscape(consumer)
}

// brokerSample are the consumers of a broker, and its channels that have none.
type brokerSample struct {
	consumers []jobs
	unused    []string
}

// Broker are the pages of a broker.
type Broker struct {
	call    BrokerSource
	latest  *sample.Latest[brokerSample]
	all     *objects[jobs]
	history *sample.History
	marks   *Marks
	// delivered measures the delivered jobs of all consumers. Only the sampler's goroutine uses it.
	delivered meter
}

const brokerName = "broker"

// The values of a consumer's history.
const (
	histQueued = iota
	histDead
	histDelivered
	brokerWidth
)

// NewBroker makes the pages, and has the sampler ask the broker. The runner runs operations on many consumers.
func NewBroker(s *sample.Sampler, call BrokerSource, runner *operation.Runner, marks *Marks) *Broker {
	b := &Broker{call: call, marks: marks, history: s.History("broker", brokerWidth)}
	b.latest = sample.Add(s, b.ask)
	b.all = sampled(objects[jobs]{
		runner: runner, noun: "broker consumer", actions: b.actions,
		name: func(j jobs) string { return j.path() }, // the IDs of both may contain any separator
		offers: []offer{
			{name: "pause", label: "Pause", confirm: "Jobs wait."},
			{name: "resume", label: "Resume", confirm: "Jobs go on."},
		},
	}, brokerName, b.latest, func(s brokerSample) []jobs { return s.consumers }, fitsConsumerJobs)
	return b
}

// Pages are the functions of the pages by their paths.
func (b *Broker) Pages() map[string]Func {
	return map[string]Func{"broker": b.list, "channel": b.channel, "scheduled": b.scheduled, "brokerconsumer": b.one, "brokermessage": b.message}
}

func (b *Broker) ask(ctx context.Context) (all brokerSample, err error) {
	var counts map[string]map[string][]struct {
		Status int       `json:"status"`
		Count  int       `json:"count"`
		Oldest time.Time `json:"oldestItemTimestamp"`
	}
	if err := b.call.Call(ctx, http.MethodGet, "/job-status", nil, &counts); err != nil {
		return all, err
	}
	var states struct {
		Result []struct {
			ChannelID, ConsumerID string
			brokerState
		}
		Unused []string
	}
	if err := b.call.Call(ctx, http.MethodGet, "/consumers", nil, &states); err != nil {
		return all, err
	}
	now := time.Now()
	all.unused = states.Unused
	queued, dead, delivered := 0, 0, 0
	for _, k := range states.Result {
		one := jobs{Channel: k.ChannelID, Consumer: k.ConsumerID, brokerState: k.brokerState}
		for _, c := range counts[one.Channel][one.Consumer] {
			switch c.Status {
			case jobQueued:
				one.queued, one.oldest = c.Count, c.Oldest
			case jobInflight:
				one.inflight = c.Count
			case jobDelivered:
				one.delivered = c.Count
			case jobDead:
				one.dead, one.oldestDead = c.Count, c.Oldest
			}
		}
		queued, dead, delivered = queued+one.queued, dead+one.dead, delivered+one.delivered
		if one.dead > 0 {
			one.seen, one.listed = b.marks.covers(one.marked(), b.newest(ctx, one))
		}
		one.now = one.judge()
		b.history.Put(now, one.path(), float64(one.queued), float64(one.dead), float64(one.delivered))
		all.consumers = append(all.consumers, one)
	}
	b.delivered = b.delivered.plus(now, uint64(delivered))
	b.history.Put(now, total, float64(queued), float64(dead), b.delivered.rate)
	return all, nil
}

// worstJobs has the worst first, and of equals the one with the most dead jobs, and then the one that most jobs wait for.
func worstJobs(a, b jobs) int {
	return cmp.Or(cmp.Compare(a.now.Level, b.now.Level), cmp.Compare(b.dead, a.dead), cmp.Compare(b.queued, a.queued),
		cmp.Compare(a.path(), b.path()))
}

// columns are those of the list. The page of a consumer has the values from the third on.
func (b *Broker) columns(now time.Time) []column[jobs] {
	return []column[jobs]{
		text("Channel", func(one jobs) view.Value { return view.Linked(one.Channel, link("channel", "name", one.Channel)) }).
			by("name", func(a, b jobs) int {
				return cmp.Or(cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.Consumer, b.Consumer))
			}),
		text("Consumer", jobs.name),
		text("State", func(one jobs) view.Value { return one.now.Value() }).by("state", worstJobs),
		text("Since", jobs.sinceValue).help("Since when no callback has succeeded, when it was paused, or when the first of its dead jobs became so"),
		count("Queued", "queued", func(one jobs) int { return one.queued }),
		text("Last hour", func(one jobs) view.Value {
			return view.Value{Chart: chart.Small("Queued", b.history.Values(now, time.Hour, one.path(), histQueued, 60))}
		}).help("Queued jobs over the last hour"),
		number("Oldest queued", jobs.oldestValue),
		number("In flight", func(one jobs) view.Value { return view.Int(one.inflight) }),
		number("Delivered", func(one jobs) view.Value { return view.Int(one.delivered) }),
		number("Dead", jobs.deadValue).
			by("dead", func(a, b jobs) int { return cmp.Or(cmp.Compare(a.dead, b.dead), cmp.Compare(b.path(), a.path())) }),
	}
}

func (b *Broker) list(ctx context.Context, r Request) (*view.Page, error) {
	s := b.latest.Fresh(ctx)
	q := r.Query
	rows := selected(q, s.Value.consumers, fitsConsumerJobs)
	found := view.Count(uint64(len(rows)), "consumer")
	unused := 0
	for _, channel := range s.Value.unused {
		one := jobs{Channel: channel, now: state.State{Level: state.Idle, Word: "no consumer", Sentence: "Nobody gets the messages of this channel."}}
		if contains(q.Get("q"), channel) && fitsJobs(q.Get("state"), one) {
			rows = append(rows, one)
			unused++
		}
	}
	if unused > 0 {
		found += ", and " + view.Count(uint64(unused), "channel") + " without consumers"
	}
	list := &view.List{
		Found: found, Path: "broker",
		Empty: "This list shows the channels of the broker with their consumers. PUT /channel/CHANNEL and PUT /channel/CHANNEL/consumer/CONSUMER " +
			"create them.",
	}
	all := len(s.Value.consumers) + len(s.Value.unused)
	shown := table(list, q, rows, "state", all, "consumer or channel", func(one jobs) string { return "b-" + one.path() }, b.columns(r.Now))
	page := &view.Page{
		Nav: "broker", Title: "Broker",
		Filter: keepOrder(&view.Filter{Path: "broker", Fields: []view.Field{
			searchField(q, "q", "Name", "channel or consumer"),
			choice(q, "state", "State", options("", "all", "trouble", "needs attention", "paused", "paused", "dead", "with dead jobs",
				"unused", "no consumer")),
		}}, q),
		Parts: []view.Part{{ID: "broker", Source: source(brokerName, s), List: list}},
	}
	// A channel without consumers has no action.
	consumers := slices.DeleteFunc(slices.Clone(shown), func(j jobs) bool { return j.Consumer == "" })
	page.Parts[0].Actions = b.all.forAll(s.Stale(), q, page.Filter, consumers, len(rows) > len(shown))
	return page, nil
}

// name leads to the consumer.
func (j jobs) name() view.Value {
	if j.Consumer == "" {
		return view.None("The channel has no consumer")
	}
	return view.Linked(j.Consumer, link("brokerconsumer", "channel", j.Channel, "consumer", j.Consumer))
}

func (j jobs) oldestValue() view.Value {
	if j.queued == 0 {
		return view.None("Nothing is queued")
	}
	return view.Ago(j.oldest, "not stated")
}

// deadValue leads to the dead jobs of the consumer, with their reasons.
func (j jobs) deadValue() view.Value {
	v := quietZero(view.Int(j.dead), j.dead > 0 && !j.seen, view.Bad)
	if j.dead > 0 {
		v.Href = link("failed", "system", brokerName, "receiver", j.Channel+"/"+j.Consumer)
	}
	return v
}

// marked is what a mark of the consumer's dead jobs is for.
func (j jobs) marked() string { return "dead jobs of consumer " + j.path() }

func (b *Broker) newest(ctx context.Context, j jobs) newest {
	return func() ([]failure, string, error) {
		return b.failures(ctx, map[string]string{"consumer": j.Channel + "/" + j.Consumer, "limit": "1"}, "")
	}
}

func fitsConsumerJobs(q url.Values, j jobs) bool {
	return contains(q.Get("q"), j.Channel, j.Consumer, j.Channel+"/"+j.Consumer) && fitsJobs(q.Get("state"), j)
}

func fitsJobs(want string, j jobs) bool {
	switch want {
	case "trouble":
		return j.now.Trouble()
	case "paused":
		return j.State == "paused"
	case "dead":
		return j.dead > 0
	case "unused":
		return j.Consumer == ""
	}
	return true
}

// sinceValue is since when the callbacks of the consumer fail, when it was paused, or when the first of its dead jobs became so.
func (j jobs) sinceValue() view.Value {
	for _, at := range []time.Time{j.FailingSince, j.PausedAt} {
		if !at.IsZero() {
			return view.Ago(at, "")
		}
	}
	return view.Ago(j.oldestDead, "It is not paused, and no job is dead")
}

func (j jobs) judge() state.State {
	r := state.Receiver{
		Noun: "job", Gone: "dead job", Known: true, Backlog: j.queued, InFlight: j.inflight, Failed: j.dead, Seen: j.seen,
		Since: j.FailingSince,
	}
	if j.dead > 0 && !j.listed {
		r.Failed = state.NotKnown
	}
	switch {
	case j.State == "paused" && j.PausedBy == "failing":
		r.Disabled = "The broker has paused it, since its callbacks fail"
	case j.State == "paused":
		r.Paused = "Paused by an operator"
	}
	switch j.Breaker {
	case "open":
		r.Breaker = state.Open
	case "half-open":
		r.Breaker = state.Probing
	}
	return r.Of()
}

// System implements [operation.Source].
func (b *Broker) System() string { return brokerName }

// Operations implements [operation.Source]. The IDs of operations are their paths.
func (b *Broker) Operations(ctx context.Context) ([]operation.Operation, error) {
	var answer struct {
		Result []struct {
			operation.Operation
			URL, ChannelID, ConsumerID, Status, Message string
			Count, Replayed, Purged                     int
			CreatedAt, ChangedAt                        time.Time
		}
	}
	if err := b.call.Call(ctx, http.MethodGet, "/replays", nil, &answer); err != nil {
		return nil, err
	}
	all, err := b.deadOperations(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range answer.Result {
		o, kind := r.Operation, "requeue"
		if o.Kind == "purge-queued" {
			kind, r.Status = "purge", "QUEUED"
		}
		o.What = strings.TrimSpace(strings.ToLower(r.Status)+" jobs of ") + " " + r.ChannelID + "/" + r.ConsumerID
		if r.Message != "" {
			o.What += ", message " + r.Message
		}
		o.System, o.ID, o.Kind, o.State = brokerName, r.URL, kind, strings.ToLower(o.State)
		o.Matched, o.Done, o.Began, o.Changed = r.Count, r.Replayed+r.Purged, r.CreatedAt, r.ChangedAt
		all = append(all, o)
	}
	return all, nil
}

// CancelOperation implements [operation.Source]. The page offers it for what Operations returns only.
func (b *Broker) CancelOperation(ctx context.Context, id string) error {
	return b.call.Call(ctx, http.MethodDelete, id, nil, nil)
}
