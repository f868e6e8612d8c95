package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/url"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/chart"
	"github.com/jetpull/jetpull/console/internal/operation"
	"github.com/jetpull/jetpull/console/internal/sample"
	"github.com/jetpull/jetpull/console/internal/state"
	"github.com/jetpull/jetpull/console/internal/view"
	workers "github.com/jetpull/jetpull/internal/running"
)

// ConsumerSource lists and changes the consumers of a JetStream account.
type ConsumerSource interface {
	// Consumers are all consumers, with their state.
	Consumers(ctx context.Context) ([]*jetstream.ConsumerInfo, error)
	// StoredAfter is when the first message for a consumer after a sequence was stored; zero: there is none.
	StoredAfter(ctx context.Context, c *jetstream.ConsumerInfo, sequence uint64) (time.Time, error)
	Pause(ctx context.Context, stream, consumer string, until time.Time) error
	Resume(ctx context.Context, stream, consumer string) error
	Unpin(ctx context.Context, stream, consumer, group string) error
	// Reset has the consumer begin again at a sequence; 0: after the messages that are acknowledged.
	Reset(ctx context.Context, stream, consumer string, sequence uint64) error
	Delete(ctx context.Context, stream, consumer string) error
	// Running are the workers of the consumer that answer in time, with the messages that they handle. Others are not known.
	Running(ctx context.Context, stream, consumer string) ([]workers.List, error)
	// Cancel has the workers cancel the handler of a message. It returns the answers of all that answer in time.
	Cancel(ctx context.Context, stream, consumer string, sequence uint64) ([]workers.Cancelled, error)
}

// Consumers are the pages of the consumers.
type Consumers struct {
	source ConsumerSource
	latest *sample.Latest[[]*consumer]
	// internal are the streams whose consumers are hidden; nil: none.
	internal func() map[string]bool
	all      *objects[*consumer]
	history  *sample.History
	// before is what the last sample found, by key. Only the sampler's goroutine uses it.
	before map[string]*consumer
	// ages are when the first messages after the acknowledgement floor and after the last delivery of each consumer were stored.
	ages ages
	// first is the consumer that the next sample begins with. Only the sampler's goroutine uses it.
	first int
}

// consumer is a consumer with values that are computed from more than one sample.
type consumer struct {
	state.Consumer
	key       string
	seen      time.Time
	state     state.State
	since     since
	delivered meter
	trend     state.Trend
	// oldest is when the oldest unacknowledged message was stored; zero: there is none, or it is not known.
	oldest time.Time
}

// meter measures the rate of a count: how much it grows in a second, over the last rateWindow.
type meter struct {
	rate  float64
	marks []mark
}

type mark struct {
	at    time.Time
	count uint64
}

// plus is the meter with one more value. The marks of a meter do not change.
func (m meter) plus(now time.Time, count uint64) meter {
	for len(m.marks) > 1 && now.Sub(m.marks[1].at) >= rateWindow {
		m.marks = m.marks[1:]
	}
	m.rate = 0
	if len(m.marks) > 0 && count >= m.marks[0].count {
		m.rate = float64(count-m.marks[0].count) / now.Sub(m.marks[0].at).Seconds()
	}
	m.marks = append(m.marks[:len(m.marks):len(m.marks)], mark{now, count})
	return m
}

const rateWindow = 10 * time.Second

// The values of a consumer's history.
const (
	histPending = iota
	histAckPending
	histRate
	histRedelivered
	histWaiting
	histOldest
	histLag
	consumerWidth
)

// NewConsumers makes the pages, and has the sampler ask their source. The runner runs operations on many consumers.
func NewConsumers(s *sample.Sampler, source ConsumerSource, runner *operation.Runner) *Consumers {
	c := &Consumers{source: source, history: s.History("consumers", consumerWidth), ages: ages{}}
	c.latest = sample.Add(s, c.ask)
	c.all = sampled(objects[*consumer]{
		runner: runner, noun: "consumer", continued: true, name: func(one *consumer) string { return one.key }, actions: c.actions, offers: consumerOffers,
	}, "NATS", c.latest, func(all []*consumer) []*consumer { return all }, func(q url.Values, one *consumer) bool { return c.fits()(q, one) })
	return c
}

// Pages are the functions of the pages by their paths.
func (c *Consumers) Pages() map[string]Func {
	return map[string]Func{"consumers": c.list, "consumer": c.one}
}

func (c *Consumers) ask(ctx context.Context) ([]*consumer, error) {
	infos, err := c.source.Consumers(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	all := make([]*consumer, len(infos))
	found := make(map[string]*consumer, len(infos))
	reads := agesAtOnce
	pending, rate := 0.0, 0.0
	for n := range infos {
		// Each sample begins further on, so each consumer is at some time among the first, for which there are enough reads.
		i := (c.first + n) % len(infos)
		info := infos[i]
		one := &consumer{Consumer: state.Consumer{ConsumerInfo: info}, key: info.Stream + "/" + info.Name, seen: now}
		before := c.before[one.key]
		one.measure(before, now)
		c.ages.measure(ctx, c.source, one, &reads)
		one.state = one.Of()
		one.since = since{now, c.before == nil}
		if before != nil && before.state.Word == one.state.Word {
			one.since = before.since
		}
		c.history.Put(now, one.key, float64(info.NumPending), float64(info.NumAckPending), one.Rate, float64(info.NumRedelivered),
			float64(info.NumWaiting), one.unacknowledged(), knownSeconds(one.Lag))
		pending, rate = pending+float64(info.NumPending), rate+one.Rate
		all[i] = one
		found[one.key] = one
	}
	c.history.Put(now, total, pending, math.NaN(), rate, math.NaN(), math.NaN(), math.NaN(), math.NaN())
	c.before, c.first = found, c.first+agesAtOnce
	maps.DeleteFunc(c.ages, func(key string, _ [2]age) bool { return found[key] == nil })
	return all, nil
}

func (c *consumer) oldestValue() view.Value {
	if c.NumAckPending > 0 {
		return view.Ago(c.oldest, "It has not been read yet, or is not stored any more")
	}
	return view.None("Every delivered message is acknowledged")
}

const consumersEmpty = "This list shows the consumers of all streams. Create one with `nats consumer add`, or with `jetpull consume STREAM NAME " +
	"--create SUBJECTS`."

// columns are those of the list. The page of a consumer has the values from the fourth on.
func (c *Consumers) columns(now time.Time) []column[*consumer] {
	return []column[*consumer]{
		text("Stream", func(one *consumer) view.Value { return view.Linked(one.Stream, link("messages", "stream", one.Stream)) }).
			by("stream", byKey),
		text("Consumer", (*consumer).linked).
			by("name", func(a, b *consumer) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Stream, b.Stream)) }),
		text("State", func(one *consumer) view.Value { return one.state.Value() }).by("state", worstConsumer),
		text("Since", func(one *consumer) view.Value { return one.since.value() }).help("When the console first saw this state"),
		count("Pending", "pending", func(one *consumer) uint64 { return one.NumPending }).help("Messages that have not been delivered yet"),
		text("Last hour", func(one *consumer) view.Value {
			return view.Value{Chart: chart.Small("Pending", c.history.Values(now, time.Hour, one.key, histPending, 60))}
		}).help("Pending messages over the last hour"),
		number("Ack pending", ackPending).help("Messages that are delivered and not acknowledged").
			by("ackpending", func(a, b *consumer) int { return cmp.Compare(a.NumAckPending, b.NumAckPending) }),
		number("Redelivered", redelivered).help("Unacknowledged messages that were delivered more than once").
			by("redelivered", func(a, b *consumer) int { return cmp.Compare(a.NumRedelivered, b.NumRedelivered) }),
		count("Waiting pulls", "waiting", func(one *consumer) int { return one.NumWaiting }).help("Pull requests that wait for messages"),
		number("Rate", func(one *consumer) view.Value { return view.Rate(one.Rate) }).help("Deliveries in a second, over the last 10 s").
			by("rate", func(a, b *consumer) int { return cmp.Compare(a.Rate, b.Rate) }),
		number("Oldest pending", (*consumer).nextValue).help("When the oldest message was stored that was not delivered").
			by("lag", func(a, b *consumer) int { return cmp.Compare(a.Lag, b.Lag) }),
		number("Oldest unacked", (*consumer).oldestValue).help("When the oldest unacknowledged message was stored").
			by("oldest", func(a, b *consumer) int {
				return cmp.Or(cmp.Compare(boolInt(a.oldest.IsZero()), boolInt(b.oldest.IsZero())), a.oldest.Compare(b.oldest))
			}),
	}
}

func (c *Consumers) list(ctx context.Context, r Request) (*view.Page, error) {
	s := c.latest.Fresh(ctx)
	q := r.Query
	rows := selected(q, s.Value, c.fits())
	list := &view.List{Empty: consumersEmpty, Path: "consumers"}
	shown := table(list, q, rows, "state", len(s.Value), "consumer", func(one *consumer) string { return "c-" + one.key }, c.columns(r.Now))
	page := &view.Page{
		Nav: "consumers", Title: "Consumers",
		Filter: keepOrder(&view.Filter{Path: "consumers", Fields: []view.Field{
			searchField(q, "q", "Name", "stream or consumer"),
			choice(q, "state", "State", options("", "all", "trouble", "needs attention", "paused", "paused", "pending", "has pending messages",
				"idle", "idle")),
			internalField(q),
			hidden(q, "stream"),
		}}, q),
		Parts: []view.Part{{ID: "consumers", Source: source("NATS", s), List: list}},
	}
	page.Parts[0].Actions = c.all.forAll(r, s.Stale(), page.Filter, shown, len(rows) > len(shown))
	return page, nil
}

// fits returns a function that reports whether the list with a query has a consumer. Consumers of internal streams are hidden, unless an operator has
// to look at them.
func (c *Consumers) fits() func(q url.Values, one *consumer) bool {
	hidden := map[string]bool{}
	if c.internal != nil {
		hidden = c.internal()
	}
	return func(q url.Values, one *consumer) bool {
		stream := q.Get("stream")
		return contains(q.Get("q"), one.Stream, one.Name, one.key) && (stream == "" || stream == one.Stream) && fitsState(q.Get("state"), one) &&
			(!hidden[one.Stream] || one.state.Trouble() || stream != "" || q.Get("all") != "")
	}
}

func fitsState(want string, c *consumer) bool {
	switch want {
	case "trouble":
		return c.state.Trouble()
	case "paused":
		return c.Paused
	case "pending":
		return c.NumPending > 0
	case "idle":
		return c.NumPending == 0 && c.NumAckPending == 0
	}
	return true
}

func byKey(a, b *consumer) int { return cmp.Compare(a.key, b.key) }

// worstConsumer has the worst first, and of equals the one that most messages wait for.
func worstConsumer(a, b *consumer) int {
	return cmp.Or(cmp.Compare(a.state.Level, b.state.Level), cmp.Compare(b.NumPending, a.NumPending), byKey(a, b))
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// linked leads to the page of the consumer.
func (c *consumer) linked() view.Value {
	return view.Linked(c.Name, link("consumer", "stream", c.Stream, "name", c.Name))
}

func redelivered(c *consumer) view.Value {
	return quietZero(view.Int(c.NumRedelivered), c.NumRedelivered > 0, view.Warn)
}

func ackPending(c *consumer) view.Value {
	v := view.Int(c.NumAckPending)
	if limit := c.Config.MaxAckPending; limit > 0 {
		v.Title = fmt.Sprintf("%d of at most %d", c.NumAckPending, limit)
		if c.NumAckPending >= limit {
			v.Tone = view.Bad
			v.Text += " (limit)"
		}
	}
	return v
}

func quietZero(v view.Value, notable bool, tone view.Tone) view.Value {
	v.Tone = view.Muted
	if notable {
		v.Tone = tone
	}
	return v
}

// since is when the console first saw a state. If that was in its first sample of all, the state may have begun at any time before.
type since struct {
	at    time.Time
	start bool
}

func (s since) value() view.Value {
	v := view.Ago(s.at, "")
	if s.start {
		v.Prefix = "over "
	}
	return v
}
