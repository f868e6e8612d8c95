package page

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
)

// Caller makes requests to the HTTP interface of a system. The answer is decoded from JSON. An answer 404 is [fs.ErrNotExist],
// and 401 or 403 is [fs.ErrPermission]. The relay's client is one.
type Caller interface {
	Call(ctx context.Context, method, path string, body, answer any) error
}

// receiver is a receiver of the relay, as its interface shows it.
type receiver struct {
	Name           string  `json:"name"`
	PostEndpoint   string  `json:"post_endpoint"`
	StatusEndpoint string  `json:"status_endpoint"`
	RateLimit      int     `json:"rate_limit"`
	WindowSize     float64 `json:"window_size"`
	RetryAfter     float64 `json:"retry_after"`
	MaxRetries     int     `json:"max_retries"`
	Timeout        float64 `json:"timeout"`
	Order          string  `json:"order"`
	UnknownOutcome string  `json:"unknown_outcome"`
	TTL            float64 `json:"ttl"`
	Paused         bool    `json:"paused"`
	SecretCount    int     `json:"secret_count"`
	// State is nil in the relay's answer, and unknown here, where the relay does not know it now.
	State *receiverState `json:"state"`
	now   state.State
	since since
	// seen states that somebody has looked at all failed messages, and listed that the relay has answered which these are.
	seen, listed bool
}

type receiverState struct {
	unknown    bool
	Breaker    string  `json:"breaker"`
	WindowUsed int     `json:"window_used"`
	InFlight   int     `json:"in_flight"`
	Disabled   bool    `json:"disabled"`
	Backlog    int     `json:"backlog"`
	Oldest     float64 `json:"oldest"`
	// Failed counts messages on the list of failed ones, and Refused the POSTs since the last that succeeded; nil: not
	// known, since the process that was asked has made none.
	Failed       int       `json:"failed"`
	Refused      *int      `json:"refused"`
	RefusedSince time.Time `json:"refused_since"`
	Answers      struct {
		Total int     `json:"total"`
		Count int     `json:"count"`
		P50   float64 `json:"p50"`
		P99   float64 `json:"p99"`
	} `json:"answers"` // zero: there is none yet
}

// relaySample are the receivers, and how many messages are on the list of failed ones; not a number: that is not known now.
type relaySample struct {
	receivers []receiver
	failed    float64
}

// Relay are the pages of a relay.
type Relay struct {
	call    Caller
	latest  *sample.Latest[relaySample]
	all     *objects[receiver]
	history *sample.History
	marks   *Marks
	failed  *failureList
	// before are the receivers of the last sample. Only the sampler's goroutine uses it.
	before map[string]receiver
	// answered measures the answers of all receivers. Only the sampler's goroutine uses it.
	answered meter
}

const relayName = "relay"

// The values of a receiver's history.
const (
	histWindow = iota
	histBacklog
	histListed
	histAnswers
	relayWidth
)

// NewRelay makes the pages, and has the sampler ask the relay. The runner runs operations on many receivers.
func NewRelay(s *sample.Sampler, call Caller, runner *operation.Runner, marks *Marks) *Relay {
	r := &Relay{call: call, marks: marks, history: s.History("relay", relayWidth)}
	r.failed = r.failureList()
	r.latest = sample.Add(s, r.ask)
	r.all = sampled(objects[receiver]{
		runner: runner, noun: "receiver", name: func(one receiver) string { return one.Name }, actions: r.actions,
		offers: []offer{
			{name: "pause", label: "Pause", confirm: "Messages to them wait. Those that are disabled stay disabled."},
			{name: "resume", label: "Resume", confirm: "Those that are disabled stay disabled."},
			{name: "enable", label: "Enable", confirm: "They have answered 410 (gone). Those that are paused stay paused."},
		},
	}, relayName, r.latest, func(s relaySample) []receiver { return s.receivers }, fitsReceiver)
	return r
}

// Pages are the functions of the pages by their paths.
func (y *Relay) Pages() map[string]Func {
	return map[string]Func{"relay": y.list, "receiver": y.one, "relaymessage": y.message, "relaymessages": y.messages}
}

func (y *Relay) ask(ctx context.Context) (relaySample, error) {
	var answer struct {
		Items []receiver `json:"items"`
	}
	if err := y.call.Call(ctx, http.MethodGet, "/v1/receivers", nil, &answer); err != nil {
		return relaySample{}, err
	}
	now := time.Now()
	window, backlog, answered := 0, 0, 0
	found := make(map[string]receiver, len(answer.Items))
	for i, r := range answer.Items {
		if r.State == nil {
			r.State = &receiverState{unknown: true}
		}
		if r.State.Failed > 0 {
			r.seen, r.listed = y.marks.covers(r.marked(), y.failed.newest(ctx, r.Name))
		}
		r.now, r.since = r.judge(), since{now, y.before == nil}
		if before, ok := y.before[r.Name]; ok && before.now.Word == r.now.Word {
			r.since = before.since
		}
		answer.Items[i], found[r.Name] = r, r
		if !r.State.unknown {
			y.history.Put(now, r.Name, float64(r.State.WindowUsed), float64(r.State.Backlog), math.NaN(), math.NaN())
		}
		window, backlog, answered = window+r.State.WindowUsed, backlog+r.State.Backlog, answered+r.State.Answers.Total
	}
	y.before = found
	y.answered = y.answered.plus(now, uint64(answered))
	var failed struct{ Total int }
	listed := math.NaN()
	if y.call.Call(ctx, http.MethodGet, "/v1/failed?limit=1", nil, &failed) == nil {
		listed = float64(failed.Total)
	}
	y.history.Put(now, total, float64(window), float64(backlog), listed, y.answered.rate)
	return relaySample{answer.Items, listed}, nil
}

// marked is what a mark of the receiver's failures is for.
func (r receiver) marked() string { return "failed messages of receiver " + r.Name }

// breakers are the states of circuit breakers, as relay and broker name them.
var breakers = map[string]state.Breaker{"open": state.Open, "half_open": state.Probing, "half-open": state.Probing}

func (r receiver) judge() state.State {
	v := state.Receiver{
		Noun: "message", Gone: "failed message", Known: !r.State.unknown, Backlog: r.State.Backlog, InFlight: r.State.InFlight, Failed: r.State.Failed,
		Seen: r.seen, Refused: state.NotKnown, Since: r.State.RefusedSince, Breaker: breakers[r.State.Breaker],
	}
	if r.Paused {
		v.Paused = "Paused by an operator"
	}
	if v.Failed > 0 && !r.listed {
		v.Failed = state.NotKnown
	}
	switch {
	case r.State.Refused != nil:
		v.Refused = *r.State.Refused
	case v.Backlog == 0 && v.InFlight == 0:
		v.Refused = 0 // whatever was sent last, nothing waits for it
	}
	if r.State.Disabled {
		v.Disabled = "The receiver answered 410 (gone), so the relay sends it nothing"
	}
	if r.RateLimit > 0 && r.State.WindowUsed >= r.RateLimit {
		v.Full = fmt.Sprintf("It gets as many as its rate limit allows, %d in %s", r.RateLimit, view.Span(seconds(r.WindowSize)))
	}
	return v.Of()
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (r receiver) window() view.Value {
	if r.State.unknown {
		return view.None("not known now")
	}
	if r.RateLimit == 0 {
		return view.Value{Text: "no limit", Tone: view.Muted, Title: fmt.Sprintf("%d in the window", r.State.WindowUsed)}
	}
	return view.Value{Text: fmt.Sprintf("%d of %d", r.State.WindowUsed, r.RateLimit), Title: "POSTs in the last " + view.Span(seconds(r.WindowSize))}
}

func (r receiver) oldest() view.Value {
	if r.State.Backlog == 0 {
		return view.None("Nothing waits")
	}
	return view.Duration(seconds(r.State.Oldest).Round(time.Second))
}

func (r receiver) flight() view.Value {
	if r.State.unknown {
		return view.None("not known now")
	}
	return view.Int(r.State.InFlight)
}

// answers are how long some of the last answers took at most.
func (r receiver) answers(percent int, took float64) view.Value {
	if r.State.Answers.Count == 0 {
		return view.None("This relay process has no answer of the receiver yet")
	}
	return view.Value{Text: view.Span(seconds(took)), Title: fmt.Sprintf("%d %% of the last %s took at most %s", percent,
		view.Count(uint64(r.State.Answers.Count), "answer"), seconds(took))}
}

// failures lead to the failed messages of the receiver.
func (r receiver) failures() view.Value {
	if r.State.unknown {
		return view.None("not known now")
	}
	return leads(quietZero(view.Int(r.State.Failed), r.State.Failed > 0 && !r.seen, view.Bad), link("failed", "system", relayName, "receiver", r.Name))
}

// worstReceiver has the worst first, and of equals the one that most messages wait for.
func worstReceiver(a, b receiver) int {
	return cmp.Or(cmp.Compare(a.now.Level, b.now.Level), cmp.Compare(b.State.Backlog, a.State.Backlog), cmp.Compare(a.Name, b.Name))
}

const receiversEmpty = "This list shows the receivers of the relay. Create one with `jetpull relay receivers put NAME`, or with PUT " +
	"/v1/receivers/NAME."

// columns are those of the list. The page of a receiver has the values from the third on.
func (y *Relay) columns(now time.Time) []column[receiver] {
	return []column[receiver]{
		text("Receiver", func(one receiver) view.Value { return view.Linked(one.Name, link("receiver", "name", one.Name)) }).
			by("name", func(a, b receiver) int { return cmp.Compare(a.Name, b.Name) }),
		text("State", func(one receiver) view.Value { return one.now.Value() }).by("state", worstReceiver),
		text("Since", func(one receiver) view.Value { return one.since.value() }).help("When the console first saw this state"),
		number("Failed", receiver.failures).help("Messages on the list of failed ones").
			by("failed", func(a, b receiver) int { return cmp.Compare(a.State.Failed, b.State.Failed) }),
		count("Backlog", "backlog", func(one receiver) int { return one.State.Backlog }),
		text("Last hour", func(one receiver) view.Value {
			return view.Value{Chart: chart.Small("Backlog", y.history.Values(now, time.Hour, one.Name, histBacklog, 60))}
		}).help("Backlog over the last hour"),
		number("Oldest waiting", receiver.oldest),
		number("Window", receiver.window).help("POSTs in the window of the rate limit"),
		number("In flight", receiver.flight),
		number("p50", func(one receiver) view.Value { return one.answers(50, one.State.Answers.P50) }).
			help("Half of the last answers took at most this long"),
		number("p99", func(one receiver) view.Value { return one.answers(99, one.State.Answers.P99) }).help("99 % of the last answers took at most this long").
			by("p99", func(a, b receiver) int { return cmp.Compare(a.State.Answers.P99, b.State.Answers.P99) }),
		text("Endpoint", func(one receiver) view.Value { return view.Text(withoutPassword(one.PostEndpoint)) }).wide(),
	}
}

func (y *Relay) list(ctx context.Context, r Request) (*view.Page, error) {
	s := y.latest.Fresh(ctx)
	list := &view.List{Empty: receiversEmpty, Path: "relay"}
	page := y.all.page(r, "Relay", source(relayName, s), list, s.Value.receivers, y.columns(r.Now),
		searchField(r.Query, "q", "Receiver", "name or endpoint"),
		choice(r.Query, "state", "State", options("", "all", "trouble", "needs attention")))
	page.Parts[0].Facts = []view.Fact{{Name: "Messages", Value: view.Linked("all that the relay has", "relaymessages")}}
	return page, nil
}

func fitsReceiver(q url.Values, r receiver) bool {
	return contains(q.Get("q"), r.Name, r.PostEndpoint) && (q.Get("state") == "" || r.now.Trouble())
}
