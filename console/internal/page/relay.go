package page

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/mask"
)

// Caller makes requests to the HTTP interface of a system and decodes the JSON of the response. A response 404 is [fs.ErrNotExist], and 401 or 403 is
// [fs.ErrPermission]. The relay's client implements it.
type Caller interface {
	Call(ctx context.Context, method, path string, body, answer any) error
}

// receiver is a receiver of the relay, as the relay's interface describes it.
type receiver struct {
	Name, Order    string
	PostEndpoint   string `json:"post_endpoint"`
	StatusEndpoint string `json:"status_endpoint"`
	UnknownOutcome string `json:"unknown_outcome"`
	RateLimit      int    `json:"rate_limit"`
	MaxRetries     int    `json:"max_retries"`
	SecretCount    int    `json:"secret_count"`
	Timeout, TTL   float64
	WindowSize     float64 `json:"window_size"`
	RetryAfter     float64 `json:"retry_after"`
	Paused         bool
	// State is nil in the relay's response, and unknown here, if the relay does not know it now.
	State *receiverState
}

type receiverState struct {
	unknown, Disabled bool
	Breaker           string
	WindowUsed        int `json:"window_used"`
	InFlight          int `json:"in_flight"`
	Backlog           int
	Oldest            float64
	// Failed is the number of messages on the list of failed ones. Refused is the number of failed POSTs since the last success. It is nil if it is
	// unknown, because the process that was asked has made none.
	Failed       int
	Refused      *int
	RefusedSince time.Time `json:"refused_since"`
	// Answers is zero if there are none yet.
	Answers struct {
		Total, Count int
		P50, P99     float64
	}
}

// Relay has the pages of a relay.
type Relay struct {
	Family
	targets
	call Caller
}

const relayName = "relay"

// NewRelay returns the pages. The sampler asks the relay. The runner runs operations on many receivers.
func NewRelay(s *sample.Sampler, call Caller, runner *operation.Runner, marks *Marks) *Relay {
	y := &Relay{call: call}
	y.targets = targets{
		system: relayName, noun: "receiver", rates: "Answers to this relay process in a second", marks: marks, failed: y.failureList(),
	}
	y.Family = Family{"Relay", "relay", map[string]Func{
		"relay": y.receivers, "receiver": y.one, "relaymessage": y.message, "relaymessages": y.messages,
	}}
	y.start(s, runner, y.ask, "receiver", y.actions,
		offer{name: "pause", label: "Pause", confirm: "Messages to them wait. Those that are disabled stay disabled."},
		offer{name: "resume", label: "Resume", confirm: "Those that are disabled stay disabled."},
		offer{name: "enable", label: "Enable", confirm: "They have answered 410 (gone). Those that are paused stay paused."})
	return y
}

func (y *Relay) ask(ctx context.Context) (found targetSample, err error) {
	var answer struct {
		Items []receiver `json:"items"`
	}
	if err := y.call.Call(ctx, http.MethodGet, "/v1/receivers", nil, &answer); err != nil {
		return found, err
	}
	now := time.Now()
	for _, r := range answer.Items {
		if r.State == nil {
			r.State = &receiverState{unknown: true}
		}
		one := target{
			name: r.Name, title: r.Name, path: link("receiver", "name", r.Name), address: r.PostEndpoint, Receiver: r.state(), failed: r.State.Failed,
			window: r.State.WindowUsed, receiver: r,
		}
		if one.Backlog > 0 {
			one.oldest = now.Add(-seconds(r.State.Oldest)).Truncate(time.Second)
		}
		found.all, found.delivered = append(found.all, one), found.delivered+r.State.Answers.Total
	}
	var failed struct{ Total int }
	found.failed = math.NaN()
	if y.call.Call(ctx, http.MethodGet, "/v1/failed?limit=1", nil, &failed) == nil {
		found.failed = float64(failed.Total)
	}
	return found, nil
}

// state returns the values that determine the receiver's state, except its failures.
func (r receiver) state() state.Receiver {
	v := state.Receiver{
		Noun: "message", Gone: "failed message", Known: !r.State.unknown, Backlog: r.State.Backlog, InFlight: r.State.InFlight, Refused: state.NotKnown,
		Since: r.State.RefusedSince, Breaker: r.State.Breaker,
	}
	switch {
	case r.State.Refused != nil:
		v.Refused = *r.State.Refused
	case v.Backlog == 0 && v.InFlight == 0:
		v.Refused = 0 // nothing waits for the receiver, whatever the last POST returned
	}
	if r.Paused {
		v.Paused = "Paused by an operator"
	}
	if r.State.Disabled {
		v.Disabled = "The receiver answered 410 (gone), so the relay sends it nothing"
	}
	if r.RateLimit > 0 && r.State.WindowUsed >= r.RateLimit {
		v.Full = fmt.Sprintf("It gets as many as its rate limit allows, %d in %s", r.RateLimit, view.Span(seconds(r.WindowSize)))
	}
	return v
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (r receiver) window() view.Value {
	if r.RateLimit == 0 {
		return view.Value{Text: "no limit", Tone: view.Muted, Title: fmt.Sprintf("%d in the window", r.State.WindowUsed)}
	}
	return view.Value{Text: fmt.Sprintf("%d of %d", r.State.WindowUsed, r.RateLimit), Title: "POSTs in the last " + view.Span(seconds(r.WindowSize))}
}

// answers returns the maximum duration of a percentage of the last answers.
func (r receiver) answers(percent int, took float64) view.Value {
	if r.State.Answers.Count == 0 {
		return view.None("This relay process has no answer of the receiver yet")
	}
	return view.Value{Text: view.Span(seconds(took)), Title: fmt.Sprintf("%d %% of the last %s took at most %s", percent,
		view.Count(uint64(r.State.Answers.Count), "answer"), seconds(took))}
}

// receiverColumns are the columns that only receivers have.
var receiverColumns = []column[target]{
	number("Window", func(one target) view.Value { return whenKnown(one.Known, one.receiver.window()) }).help("POSTs in the window of the rate limit"),
	number("p50", func(one target) view.Value { return one.receiver.answers(50, one.receiver.State.Answers.P50) }).
		help("Half of the last answers took at most this long"),
	number("p99", func(one target) view.Value { return one.receiver.answers(99, one.receiver.State.Answers.P99) }).
		help("99 % of the last answers took at most this long").
		by("p99", func(a, b target) int { return cmp.Compare(a.receiver.State.Answers.P99, b.receiver.State.Answers.P99) }),
	text("Endpoint", func(one target) view.Value { return view.Text(mask.URL(one.address)) }).wide(),
}

// receivers shows the list of receivers.
func (y *Relay) receivers(ctx context.Context, r Request) (*view.Page, error) {
	list := &view.List{Empty: inSentence("no receivers", nil)}
	name := text("Receiver", func(one target) view.Value { return view.Linked(one.title, one.path) }).
		by("name", func(a, b target) int { return cmp.Compare(a.name, b.name) })
	page := y.list(r, y.latest.Fresh(ctx), list, []column[target]{name}, receiverColumns)
	page.Parts[0].Facts = []view.Fact{{Name: "Messages", Value: view.Linked("all that the relay has", "relaymessages")}}
	return page, nil
}

func (y *Relay) one(ctx context.Context, r Request) (*view.Page, error) {
	name := r.Query.Get("name")
	one, s, found := lookup(ctx, y.latest, func(s targetSample) []target { return s.all },
		func(one target) bool { return one.name == name })
	page := &view.Page{
		Nav: "relay", Title: name, Crumbs: []view.Link{{Text: "Relay", Href: "relay"}}, Parts: []view.Part{{ID: "receiver", Source: source(relayName, s)}},
	}
	switch {
	case !found && s.Stale(): // the receiver may exist
		return page, nil
	case !found:
		return nil, notFound("The list of receivers shows all that there are.", "There is no receiver %q.", name)
	}
	part := y.part(ctx, r, page.Parts[0].Source, one, receiverColumns)
	part.Facts = append(part.Facts, view.Fact{Name: "All messages", Value: view.Linked("look at them", link("relaymessages", "receiver", name))})
	part.Charts = append(part.Charts, chart.Against("Window use", "POSTs", r.values(y.history, name, histWindow), float64(one.receiver.RateLimit)))
	part.Actions = thenAsk(y.latest, part.Actions)
	page.Parts = []view.Part{
		part,
		// The first part explains why it is stale.
		{ID: "configuration", Title: "Configuration", Lines: inWords("receiver", one.receiver), Source: view.Source{Stale: s.Stale()}},
	}
	return page, nil
}

func (y *Relay) actions(one target) (all []view.Action) {
	add := func(possible bool, name, label, field string, value bool, text string) {
		if possible {
			all = append(all, view.Action{
				Name: name, Label: label, Target: one.name,
				Do: act(systemRefused(relayName), func(ctx context.Context, _ url.Values) (view.Outcome, error) {
					at := "/v1/receivers/" + url.PathEscape(one.name)
					return done(text), y.call.Call(ctx, http.MethodPatch, at, map[string]bool{field: value}, nil)
				}),
			})
		}
	}
	add(one.Paused != "", "resume", "Resume", "paused", false, "Resumed. "+one.name+" is not paused any more.")
	add(one.Paused == "", "pause", "Pause", "paused", true, "Paused. Messages to "+one.name+" wait.")
	add(one.Disabled != "", "enable", "Enable", "enable", true, "Enabled. "+one.name+" is not disabled any more.")
	return all
}

// failureList returns the relay with its list of failed messages.
func (y *Relay) failureList() *failureList {
	return &failureList{
		name: relayName, noun: "failed message", usualRate: "no limit", fields: failedFields,
		reasons: []string{
			"PERMANENT", "EXHAUSTED", "UNKNOWN_OUTCOME", "EXPIRED", "UNKNOWN_RECEIVER", "RECEIVER_DELETED", "NO_RESPONSE", "NOT_TOLD", "MALFORMED",
		},
		stages: []string{"from_sender", "to_receiver", "from_receiver", "to_sender"},
		verbs:  map[string]string{"requeue": "/v1/failed:redrive", "skip": "/v1/failed:skip", "purge": "/v1/failed:purge"},
		list:   y.failures, begin: y.begin,
	}
}

// failures asks the relay for failed messages that match a filter of its interface, starting at a cursor.
func (y *Relay) failures(ctx context.Context, filter map[string]string, cursor string) (found []failure, next string, err error) {
	var answer struct {
		Items []struct {
			ID                             string
			SourceID                       string `json:"source_id"`
			MessageID                      string `json:"message_id"`
			Receiver, Stage, Reason, Error string
			Time                           time.Time
			Attempts                       int
		} `json:"items"`
		Cursor string `json:"cursor"`
	}
	err = y.call.Call(ctx, http.MethodGet, "/v1/failed?"+asked(filter, "cursor", cursor), nil, &answer)
	for _, f := range answer.Items {
		position, _ := strconv.ParseUint(f.ID, 10, 64) // 0 after an error
		found = append(found, failure{id: f.ID, reason: f.Reason, at: f.Time, position: position, more: []view.Value{
			view.Linked(f.Receiver, link("receiver", "name", f.Receiver)), view.Text(f.SourceID),
			view.Linked(f.MessageID, link("relaymessage", "source", f.SourceID, "id", f.MessageID)), plain(f.Stage), view.Int(f.Attempts),
			view.Sentence(f.Error),
		}})
	}
	return found, answer.Cursor, err
}

// begin starts an operation on all failed messages that match a filter.
func (y *Relay) begin(ctx context.Context, path string, filter map[string]string, rate float64, dry bool) (id string, n int, err error) {
	body := map[string]any{"filter": filter, "rate": rate, "dry_run": dry}
	var o operation.Operation
	err = y.call.Call(ctx, http.MethodPost, path, body, &o)
	return o.ID, o.Matched, err
}

// Operations implements [operation.Source]. An operation on messages that were chosen by ID has no filter.
func (y *Relay) Operations(ctx context.Context) ([]operation.Operation, error) {
	var answer struct {
		Items []struct {
			operation.Operation
			Verb   string
			Filter map[string]string
		}
	}
	if err := y.call.Call(ctx, http.MethodGet, "/v1/operations", nil, &answer); err != nil {
		return nil, err
	}
	all := make([]operation.Operation, len(answer.Items))
	for i, o := range answer.Items {
		o.System, o.Kind, o.What = relayName, plain(o.Verb).Text, filtered("failed messages", o.Filter)
		if o.Filter == nil {
			o.What += " that were chosen one by one"
		}
		o.Cancel = func(ctx context.Context) error {
			return y.call.Call(ctx, http.MethodDelete, "/v1/operations/"+url.PathEscape(o.ID), nil, nil)
		}
		all[i] = o.Operation
	}
	return all, nil
}
