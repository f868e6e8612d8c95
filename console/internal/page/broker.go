package page

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/sample"
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

// jobs are the counts of a broker's consumer.
type jobs struct {
	Channel, Consumer                 string
	queued, inflight, delivered, dead int
	oldest                            time.Time // of the queued
}

func (j *jobs) path() string { return consumerPath(j.Channel, j.Consumer) }

func consumerPath(channel, consumer string) string {
	return "/channel/" + url.PathEscape(channel) + "/consumer/" + url.PathEscape(consumer)
}

// Broker are the pages of a broker.
type Broker struct {
	call    BrokerSource
	latest  *sample.Latest[[]jobs]
	history *sample.History
	began   begun // replays; their IDs are their paths
}

const brokerName = "broker"

// The values of a consumer's history.
const (
	histQueued = iota
	histDead
	brokerWidth
)

// NewBroker makes the pages, and has the sampler ask the broker.
func NewBroker(s *sample.Sampler, call BrokerSource) *Broker {
	b := &Broker{call: call, history: sample.NewHistory(brokerWidth)}
	b.latest = sample.Add(s, b.ask)
	return b
}

// Pages are the functions of the pages by their paths.
func (b *Broker) Pages() map[string]Func {
	return map[string]Func{"broker": b.list, "brokerconsumer": b.one, "brokermessage": b.message}
}

func (b *Broker) ask(ctx context.Context) ([]jobs, error) {
	var answer map[string]map[string][]struct {
		Status int       `json:"status"`
		Count  int       `json:"count"`
		Oldest time.Time `json:"oldestItemTimestamp"`
	}
	if err := b.call.Call(ctx, http.MethodGet, "/job-status", nil, &answer); err != nil {
		return nil, err
	}
	now := time.Now()
	var all []jobs
	queued, dead := 0, 0
	for channel, consumers := range answer {
		for consumer, counts := range consumers {
			one := jobs{Channel: channel, Consumer: consumer}
			for _, c := range counts {
				switch c.Status {
				case jobQueued:
					one.queued, one.oldest = c.Count, c.Oldest
				case jobInflight:
					one.inflight = c.Count
				case jobDelivered:
					one.delivered = c.Count
				case jobDead:
					one.dead = c.Count
				}
			}
			queued, dead = queued+one.queued, dead+one.dead
			b.history.Put(now, one.path(), float64(one.queued), float64(one.dead))
			all = append(all, one)
		}
	}
	b.history.Put(now, total, float64(queued), float64(dead))
	return all, nil
}

var jobOrders = map[string]func(a, b jobs) int{
	"name": func(a, b jobs) int {
		return cmp.Or(cmp.Compare(a.Channel, b.Channel), cmp.Compare(a.Consumer, b.Consumer))
	},
	"queued": func(a, b jobs) int { return cmp.Compare(a.queued, b.queued) },
	"dead":   func(a, b jobs) int { return cmp.Or(cmp.Compare(a.dead, b.dead), cmp.Compare(b.path(), a.path())) },
}

func (b *Broker) list(ctx context.Context, r Request) (*view.Page, error) {
	s := b.latest.Fresh(ctx)
	q := r.Query
	var rows []jobs
	for _, one := range s.Value {
		if contains(q.Get("q"), one.Channel, one.Consumer, one.Channel+"/"+one.Consumer) && (q.Get("state") == "" || one.dead > 0) {
			rows = append(rows, one)
		}
	}
	sorted, descending := order(q, rows, jobOrders, "dead", true)
	shown, previous, next := slice(q, rows)
	list := &view.List{
		Found: view.Bounded(len(rows), false, "consumer"), Path: "broker", Query: q, Sorted: sorted, Descending: descending, Previous: previous, Next: next,
		Empty: "This list shows the consumers of the broker's channels. PUT /channel/CHANNEL/consumer/CONSUMER creates one.",
		Columns: []view.Column{
			{Title: "Channel", Sort: "name"},
			{Title: "Consumer"},
			{Title: "Queued", Number: true, Sort: "queued"},
			{Title: "Last hour", Help: "Queued jobs over the last hour"},
			{Title: "Oldest queued", Number: true},
			{Title: "In flight", Number: true},
			{Title: "Delivered", Number: true},
			{Title: "Dead", Number: true, Sort: "dead"},
		},
	}
	if len(rows) == 0 && len(s.Value) > 0 {
		list.Empty = fmt.Sprintf("None of the %s matches this filter.", view.Count(uint64(len(s.Value)), "consumer"))
	}
	for _, one := range shown {
		list.Rows = append(list.Rows, view.Row{ID: "b-" + one.path(), Cells: []view.Value{
			view.Text(one.Channel), view.Linked(one.Consumer, link("brokerconsumer", "channel", one.Channel, "consumer", one.Consumer)), view.Int(one.queued),
			{Chart: chart.Small("Queued", b.history.Values(r.Now, one.path(), histQueued, 60))},
			one.oldestValue(), view.Int(one.inflight), view.Int(one.delivered),
			quietZero(view.Int(one.dead), one.dead > 0, view.Bad),
		}})
	}
	return &view.Page{
		Nav: "broker", Title: "Broker",
		Filter: &view.Filter{Path: "broker", Fields: []view.Field{
			{Name: "q", Label: "Name", Value: q.Get("q"), Type: "search", Placeholder: "channel or consumer"},
			choice(q, "state", "Jobs", view.Option{Value: "", Text: "all"}, view.Option{Value: "dead", Text: "with dead jobs"}),
			{Name: "sort", Value: q.Get("sort"), Hidden: true},
			{Name: "desc", Value: q.Get("desc"), Hidden: true},
		}},
		Parts: []view.Part{{ID: "broker", Source: source(brokerName, s), List: list}},
	}, nil
}

func (j *jobs) oldestValue() view.Value {
	if j.queued == 0 {
		return view.None("Nothing is queued")
	}
	return view.Ago(j.oldest, "not stated")
}

// brokerConsumer is a consumer as the broker shows it. Its token is not read.
type brokerConsumer struct {
	CallbackURL, Type, State, PausedBy, Breaker string
	PausedAt, FailingSince                      time.Time
	Concurrency                                 int
	RateLimit                                   float64
	Signed                                      bool
}

func (c *brokerConsumer) state(j jobs) state {
	waiting := countWait(uint64(j.queued))
	since := ""
	if !c.FailingSince.IsZero() {
		since = " No callback has succeeded since " + c.FailingSince.UTC().Format(time.DateTime) + " UTC."
	}
	switch {
	case c.State == "paused" && c.PausedBy == "failing":
		return state{"paused", view.Bad, "The broker has paused it, since its callbacks fail; " + waiting + "." + since}
	case c.State == "paused":
		return state{"paused", view.Warn, "Paused by an operator; " + waiting + "."}
	case c.Breaker == "open":
		return state{"failing", view.Bad, "The circuit breaker is open, since callbacks fail; " + waiting + "." + since}
	case j.dead > 0:
		return state{"dead jobs", view.Bad, countIs(uint64(j.dead), "job") + " dead: all attempts failed. Requeue them when the cause is gone."}
	case j.queued > 0 || j.inflight > 0:
		return state{"working", view.Good, fmt.Sprintf("%s in flight; %s.", countIs(uint64(j.inflight), "job"), waiting)}
	}
	return state{"idle", view.Plain, "Nothing waits."}
}

func (b *Broker) one(ctx context.Context, r Request) (*view.Page, error) {
	channel, name := r.Query.Get("channel"), r.Query.Get("consumer")
	s := b.latest.Fresh(ctx)
	counts := jobs{Channel: channel, Consumer: name}
	for _, one := range s.Value {
		if one.Channel == channel && one.Consumer == name {
			counts = one
		}
	}
	ctx, cancel := context.WithTimeout(ctx, sample.Patience)
	defer cancel()
	var c brokerConsumer
	if err := b.call.Call(ctx, http.MethodGet, counts.path(), nil, &c); err != nil {
		return nil, &Problem{Status: http.StatusNotFound, Text: fmt.Sprintf("The broker does not show consumer %q of channel %q", name, channel), Err: err, Fix: "The list of consumers shows all that there are."}
	}
	var letters struct {
		DeadJobs []struct {
			StatusChangedAt time.Time
			MessageURL      string
		}
	}
	dead := view.Part{ID: "dead", Title: "Dead jobs", Source: view.Source{Name: brokerName, Asked: r.Now}}
	if err := b.call.Call(ctx, http.MethodGet, counts.path()+"/dlq", nil, &letters); err != nil {
		dead.Source = view.Source{Name: brokerName, Error: err.Error()}
	}
	dead.List = &view.List{Found: fmt.Sprintf("%s shown of %d", view.Bounded(len(letters.DeadJobs), false, "dead job"), counts.dead), Path: "brokerconsumer", Empty: "No job is dead.", Columns: []view.Column{{Title: "Dead since"}, {Title: "Message"}}}
	for i, j := range letters.DeadJobs {
		id, _ := url.PathUnescape(path.Base(j.MessageURL)) // an ID that cannot be read leads to a page that states this
		dead.List.Rows = append(dead.List.Rows, view.Row{ID: "j-" + strconv.Itoa(i), Cells: []view.Value{view.Ago(j.StatusChangedAt, "not stated"), view.Linked(id, link("brokermessage", "channel", channel, "id", id))}})
	}
	st := c.state(counts)
	lines := []string{"It is a " + c.Type + " consumer."}
	if c.Type == "push" {
		lines = append(lines, "Messages are POSTed to "+withoutPassword(c.CallbackURL)+".")
	}
	if c.Concurrency > 0 {
		lines = append(lines, "At most "+view.Count(uint64(c.Concurrency), "callback")+" at a time.")
	}
	if c.RateLimit > 0 {
		lines = append(lines, "At most "+view.Rate(c.RateLimit).Text+" callbacks.")
	}
	values := func(i int) []float64 { return b.history.Values(r.Now, counts.path(), i, 360) }
	return &view.Page{
		Nav: "broker", Title: name, Crumbs: []view.Link{{Text: "Broker", Href: "broker"}, {Text: channel, Href: link("broker", "q", channel)}},
		Parts: []view.Part{
			{
				ID: "consumer", Source: source(brokerName, s), Problem: st.sentence, ProblemTone: st.tone, Lines: lines, Actions: b.actions(counts, &c),
				Facts: []view.Fact{
					{Name: "State", Value: view.Text(c.State)},
					{Name: "Breaker", Value: view.Text(cmp.Or(c.Breaker, "none"))},
					{Name: "Queued", Value: view.Int(counts.queued)},
					{Name: "Oldest queued", Value: counts.oldestValue()},
					{Name: "In flight", Value: view.Int(counts.inflight)},
					{Name: "Delivered", Value: view.Int(counts.delivered)},
					{Name: "Dead", Value: quietZero(view.Int(counts.dead), counts.dead > 0, view.Bad)},
				},
				Charts: []chart.Chart{chart.Large("Queued", values(histQueued)), chart.Large("Dead", values(histDead))},
			},
			dead,
		},
	}, nil
}

func (b *Broker) actions(j jobs, c *brokerConsumer) []view.Action {
	target := j.Channel + "/" + j.Consumer
	set := func(verb, text string) func(context.Context, url.Values) (view.Outcome, error) {
		return func(ctx context.Context, _ url.Values) (view.Outcome, error) {
			if err := b.call.Call(ctx, http.MethodPost, j.path()+"/"+verb, nil, nil); err != nil {
				return view.Outcome{}, systemRefused(brokerName, err)
			}
			return view.Outcome{Count: 1, Text: text}, nil
		}
	}
	all := []view.Action{{Name: "pause", Label: "Pause", Target: target, Do: set("pause", "Paused. Jobs wait.")}}
	if c.State == "paused" {
		all = []view.Action{{Name: "resume", Label: "Resume", Target: target, Do: set("resume", "Resumed. Jobs go on.")}}
	}
	return append(all, b.replay(j, "DEAD", "requeue", "Requeue all dead jobs", fmt.Sprintf("Queue all dead jobs of consumer %s again, with no attempts counted.", j.Consumer)),
		b.replay(j, "DELIVERED", "replay", "Replay delivered jobs", fmt.Sprintf("Queue the jobs again that consumer %s has received already. It gets their messages a second time.", j.Consumer)))
}

// replay queues jobs of a state again.
func (b *Broker) replay(j jobs, status, name, label, confirm string) view.Action {
	request := func(form url.Values) (map[string]any, error) {
		body := map[string]any{"Status": status}
		if since := form.Get("since"); since != "" {
			at, err := parseTime(since)
			if err != nil {
				return nil, err
			}
			body["Since"] = at.UTC()
		}
		rate, err := parseRate(form.Get("rate"))
		if rate > 0 {
			body["Rate"] = rate
		}
		return body, err
	}
	return view.Action{
		Name: name, Label: label, Target: j.Channel + "/" + j.Consumer, Confirm: confirm,
		Fields: []view.Field{{Name: "since", Label: "Received since (UTC; empty: ever)", Type: "datetime-local"}, {Name: "rate", Label: "At most in a second (empty: 100)", Type: "number"}},
		Preview: func(ctx context.Context) string {
			var answer struct{ Count int }
			if err := b.call.Call(ctx, http.MethodPost, j.path()+"/replay", map[string]any{"Status": status, "DryRun": true}, &answer); err != nil {
				return "How many these are is not known: " + err.Error()
			}
			return "At this moment these are " + view.Count(uint64(answer.Count), "job") + ", if you give no time. Nothing has been changed yet."
		},
		Do: func(ctx context.Context, form url.Values) (view.Outcome, error) {
			body, err := request(form)
			if err != nil {
				return view.Outcome{}, err
			}
			header, err := b.call.Send(ctx, http.MethodPost, j.path()+"/replay", nil, body, nil)
			if err != nil {
				return view.Outcome{}, systemRefused(brokerName, err)
			}
			location := header.Get("Location")
			now := time.Now()
			b.began.put(Operation{
				System: brokerName, ID: location, Kind: name, By: user(ctx), What: strings.ToLower(status) + " jobs of " + j.Channel + "/" + j.Consumer, State: running, Began: now, Changed: now,
			})
			return view.Outcome{Text: "Began to " + name + " jobs.", Then: operationLink(brokerName, location)}, nil
		},
	}
}

// System implements [OperationSource].
func (b *Broker) System() string { return brokerName }

// Operations implements [OperationSource].
func (b *Broker) Operations(ctx context.Context) ([]Operation, error) {
	return b.began.current(func(op *Operation) error {
		var answer struct {
			State                    string
			Count, Replayed, Skipped int
			ChangedAt                time.Time
		}
		err := b.call.Call(ctx, http.MethodGet, op.ID, nil, &answer)
		if err == nil {
			op.State, op.Matched, op.Done, op.Skipped, op.Changed = strings.ToLower(answer.State), answer.Count, answer.Replayed, answer.Skipped, answer.ChangedAt
		}
		return err
	}), nil
}

// CancelOperation implements [OperationSource].
func (b *Broker) CancelOperation(ctx context.Context, id string) error {
	if !b.began.has(id) {
		return notFound("The list of operations shows all that are known.", "There is no operation %q.", id)
	}
	return b.call.Call(ctx, http.MethodDelete, id, nil, nil)
}

// message shows a message with the attempts of each of its jobs.
func (b *Broker) message(ctx context.Context, r Request) (*view.Page, error) {
	channel, id := r.Query.Get("channel"), r.Query.Get("id")
	ctx, cancel := context.WithTimeout(ctx, sample.Patience)
	defer cancel()
	var m struct {
		Payload, PayloadEncoding, ContentType, ProducedBy, Status string
		ReceivedAt                                                time.Time
		Jobs                                                      []struct {
			ListenerName, Status, AttemptsURL string
			StatusChangedAt                   time.Time
			Attempts                          int
		}
	}
	if err := b.call.Call(ctx, http.MethodGet, "/channel/"+url.PathEscape(channel)+"/message/"+url.PathEscape(id), nil, &m); err != nil {
		return nil, &Problem{Status: http.StatusNotFound, Text: fmt.Sprintf("The broker does not show message %q of channel %q", id, channel), Err: err, Fix: "It may have been pruned. Check both names."}
	}
	timeline := &view.List{
		Path: "brokermessage", Empty: "The message has no job.",
		Columns: []view.Column{{Title: "When"}, {Title: "Consumer"}, {Title: "What"}, {Title: "Answer"}, {Title: "Took", Number: true}, {Title: "Error", Wide: true}},
	}
	row := func(cells ...view.Value) {
		timeline.Rows = append(timeline.Rows, view.Row{ID: "t-" + strconv.Itoa(len(timeline.Rows)), Cells: cells})
	}
	for _, j := range m.Jobs {
		var attempts struct {
			Result []struct {
				Attempt, StatusCode int
				StartedAt           time.Time
				Duration            float64
				Error               string
			}
		}
		problem := view.Value{}
		if j.AttemptsURL != "" {
			if err := b.call.Call(ctx, http.MethodGet, j.AttemptsURL, nil, &attempts); err != nil {
				problem = view.Sentence("The attempts are not shown: " + err.Error())
			}
		}
		for _, a := range attempts.Result {
			code := view.Word(view.Bad, "no answer")
			if a.StatusCode > 0 {
				code = view.Text(strconv.Itoa(a.StatusCode))
			}
			row(view.Ago(a.StartedAt, "not stated"), view.Text(j.ListenerName), view.Text("attempt "+strconv.Itoa(a.Attempt)), code, view.Duration(seconds(a.Duration)), view.Sentence(a.Error))
		}
		row(view.Ago(j.StatusChangedAt, "not stated"), view.Text(j.ListenerName), view.Text("became "+j.Status), view.Value{}, view.Value{}, problem)
	}
	timeline.Found = view.Bounded(len(m.Jobs), false, "job")
	block := payloadBlock([]byte(m.Payload), r.Query, "brokermessage", "channel", channel, "id", id)
	block.Links = block.Links[:len(block.Links)-1]
	if m.PayloadEncoding != "" {
		block.Note = strings.TrimSpace("It is binary, and shown as " + m.PayloadEncoding + ". " + block.Note)
	}
	return &view.Page{
		Nav: "broker", Title: id, Crumbs: []view.Link{{Text: "Broker", Href: "broker"}, {Text: channel, Href: link("broker", "q", channel)}},
		Parts: []view.Part{{
			ID: "message", Source: view.Source{Name: brokerName, Asked: r.Now}, List: timeline, Texts: []view.Block{block},
			Facts: []view.Fact{
				{Name: "Status", Value: view.Text(m.Status)},
				{Name: "Received", Value: view.Ago(m.ReceivedAt, "not stated")},
				{Name: "Produced by", Value: view.Text(path.Base(m.ProducedBy))},
				{Name: "Content type", Value: view.Text(m.ContentType)},
			},
		}},
	}, nil
}

// Overview implements [Summary].
func (b *Broker) Overview(ctx context.Context, r Request) view.Part {
	s := b.latest.Fresh(ctx)
	part := view.Part{ID: "broker", Title: "Broker", Source: source(brokerName, s)}
	if s.At.IsZero() {
		return part
	}
	queued, dead, bad := 0, 0, 0
	for _, one := range s.Value {
		queued, dead = queued+one.queued, dead+one.dead
		if one.dead > 0 {
			bad++
		}
	}
	part.Problem, part.ProblemTone = worst(len(s.Value), bad, 0, "consumer")
	part.Facts = []view.Fact{
		{Name: "Consumers", Value: view.Linked(view.Int(len(s.Value)).Text, "broker")},
		{Name: "Queued", Value: view.Int(queued)},
		{Name: "Failures to look at", Value: view.Linked(view.Count(uint64(dead), "dead job"), "broker?state=dead")},
	}
	part.Charts = []chart.Chart{chart.Large("Queued", b.history.Values(r.Now, total, histQueued, 360)), chart.Large("Dead", b.history.Values(r.Now, total, histDead, 360))}
	return part
}
