package page

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
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

// brokerState is a consumer as the broker shows it. Its token is not read. The list of consumers has only the breakers of the node that answers.
type brokerState struct {
	Type, State, PausedBy, Breaker, WaitingFor, CallbackURL string
	PausedAt, FailingSince, WaitingUntil                    time.Time
	Concurrency                                             int
	RateLimit                                               float64
}

func (j jobs) path() string { return consumerPath(j.Channel, j.Consumer) }

func consumerPath(channel, consumer string) string {
	return "/channel/" + url.PathEscape(channel) + "/consumer/" + url.PathEscape(consumer)
}

// brokerSample are the consumers of a broker, and the channels that have none, without a consumer.
type brokerSample struct{ consumers, unused []jobs }

// Broker are the pages of a broker.
type Broker struct {
	call    BrokerSource
	latest  *sample.Latest[brokerSample]
	all     *objects[jobs]
	history *sample.History
	marks   *Marks
	dead    *failureList
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
	b.dead = b.failureList()
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
	return map[string]Func{"broker": b.list, "channel": b.channel, "brokerconsumer": b.one, "brokermessage": b.message}
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
	for _, channel := range states.Unused {
		st := state.State{Level: state.Idle, Word: "no consumer", Sentence: "Nobody gets the messages of this channel."}
		all.unused = append(all.unused, jobs{Channel: channel, now: st})
	}
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
			one.seen, one.listed = b.marks.covers(one.marked(), b.dead.newest(ctx, one.target()))
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
	all := append(slices.Clone(s.Value.consumers), s.Value.unused...)
	unused := len(selected(r.Query, s.Value.unused, fitsConsumerJobs))
	list := &view.List{
		Path: "broker", Found: view.Count(uint64(len(selected(r.Query, s.Value.consumers, fitsConsumerJobs))), "consumer"),
		Empty: "This list shows the channels of the broker with their consumers. PUT /channel/CHANNEL and PUT /channel/CHANNEL/consumer/CONSUMER " +
			"create them.",
	}
	if unused > 0 {
		list.Found += ", and " + view.Count(uint64(unused), "channel") + " without consumers"
	}
	return b.all.page(r, "Broker", source(brokerName, s), list, all, b.columns(r.Now),
		searchField(r.Query, "q", "Name", "channel or consumer"),
		choice(r.Query, "state", "State", options("", "all", "trouble", "needs attention", "paused", "paused", "dead", "with dead jobs", "unused",
			"no consumer"))), nil
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
		v.Href = link("failed", "system", brokerName, "receiver", j.target())
	}
	return v
}

// marked is what a mark of the consumer's dead jobs is for.
func (j jobs) marked() string { return "dead jobs of consumer " + j.path() }

// target names the consumer in actions, and in the broker's filters.
func (j jobs) target() string { return j.Channel + "/" + j.Consumer }

func fitsConsumerJobs(q url.Values, j jobs) bool {
	fits := map[string]bool{"": true, "trouble": j.now.Trouble(), "paused": j.State == "paused", "dead": j.dead > 0, "unused": j.Consumer == ""}
	return contains(q.Get("q"), j.target()) && fits[q.Get("state")]
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
		Since: j.FailingSince, Breaker: breakers[j.Breaker],
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
	return r.Of()
}
