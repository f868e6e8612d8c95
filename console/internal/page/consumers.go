package page

import (
	"cmp"
	"context"
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
	// Consumers returns all consumers with their state.
	Consumers(ctx context.Context) ([]*jetstream.ConsumerInfo, error)
	// StoredAfter returns when the first message for a consumer after a sequence was stored, or zero if there is none.
	StoredAfter(ctx context.Context, c *jetstream.ConsumerInfo, sequence uint64) (time.Time, error)
	// PauseConsumer, ResumeConsumer and DeleteConsumer are like those of a [jetstream.JetStream].
	PauseConsumer(ctx context.Context, stream, consumer string, until time.Time) (*jetstream.ConsumerPauseResponse, error)
	ResumeConsumer(ctx context.Context, stream, consumer string) (*jetstream.ConsumerPauseResponse, error)
	DeleteConsumer(ctx context.Context, stream, consumer string) error
	Unpin(ctx context.Context, stream, consumer, group string) error
	// Reset makes the consumer start again at a sequence. 0 means after the acknowledged messages.
	Reset(ctx context.Context, stream, consumer string, sequence uint64) error
	// Running returns the workers of the consumer that answer in time, with the messages that they handle. Other workers are not known.
	Running(ctx context.Context, stream, consumer string) ([]workers.List, error)
	// Cancel asks the workers to cancel the handler of a message. It returns all answers that arrive in time.
	Cancel(ctx context.Context, stream, consumer string, sequence uint64) ([]workers.Cancelled, error)
}

// Consumers has the pages of the consumers.
type Consumers struct {
	Family
	source ConsumerSource
	latest *sample.Latest[[]*consumer]
	// internal reports whether the consumers of a stream are hidden. nil means that none are.
	internal func(stream string) bool
	all      *objects[*consumer]
	history  *sample.History
	// before is the result of the last sample, by key. Only the sampler's goroutine uses it.
	before map[string]*consumer
	// first is the consumer at which the next sample starts. Only the sampler's goroutine uses it.
	first int
}

// consumer is a consumer with values that are computed from several samples.
type consumer struct {
	state.Consumer
	key       string
	seen      time.Time
	state     state.State
	since     since
	delivered meter
	trend     state.Trend
	// ages are the times at which the first messages after the acknowledgement floor and after the last delivery were stored.
	ages [2]age
	// oldest is when the oldest unacknowledged message was stored, or zero if there is none or it is not known.
	oldest time.Time
}

// meter measures the rate of a count: its growth per second over the last rateWindow.
type meter struct {
	rate  float64
	marks []mark
}

type mark struct {
	at    time.Time
	count uint64
}

// plus returns the meter with one more value. The marks of a meter do not change.
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

// NewConsumers returns the pages. The sampler asks their source. The runner runs operations on many consumers.
func NewConsumers(s *sample.Sampler, source ConsumerSource, runner *operation.Runner) *Consumers {
	c := &Consumers{source: source, history: s.History("consumers", consumerWidth)}
	c.Family = Family{"Consumers", "consumers", map[string]Func{"consumers": c.list, "consumer": c.one}}
	c.latest = sample.Add(s, c.ask)
	c.all = sampled(objects[*consumer]{
		runner: runner, noun: "consumer", continued: true, name: func(one *consumer) string { return one.key }, actions: c.actions, offers: consumerOffers,
		fits: c.fits, created: func(one *consumer) time.Time { return one.Created },
	}, "NATS", c.latest, whole)
	return c
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
		// Each sample starts further on, so that each consumer is sometimes among the first ones, for which there are enough reads.
		i := (c.first + n) % len(infos)
		info := infos[i]
		one := &consumer{Consumer: state.Consumer{ConsumerInfo: info}, key: info.Stream + "/" + info.Name, seen: now}
		before := c.before[one.key]
		one.measure(before, now)
		one.lag(ctx, c.source, &reads)
		one.state, one.since = one.Of(), since{now, c.before == nil}
		if before != nil && before.state.Word == one.state.Word {
			one.since = before.since
		}
		c.history.Put(now, one.key, float64(info.NumPending), float64(info.NumAckPending), one.Rate, float64(info.NumRedelivered),
			float64(info.NumWaiting), one.waited(uint64(max(0, info.NumAckPending)), one.oldest), one.waited(info.NumPending, one.Next))
		pending, rate = pending+float64(info.NumPending), rate+one.Rate
		all[i] = one
		found[one.key] = one
	}
	c.history.Put(now, total, pending, math.NaN(), rate, math.NaN(), math.NaN(), math.NaN(), math.NaN())
	c.before, c.first = found, c.first+agesAtOnce
	return all, nil
}

// known reports whether a server knows the consumer's values now.
func (c *consumer) known() bool { return !state.Leaderless(c.Cluster) }

// storedAt returns when the oldest of n messages was stored.
func storedAt(n uint64, at time.Time, none string) view.Value {
	if n == 0 {
		return view.None(none)
	}
	return view.Ago(at, "It has not been read yet, or is not stored any more")
}

// columns returns the columns of the list. The page of a consumer shows the values from the fourth on.
func (c *Consumers) columns(now time.Time) []column[*consumer] {
	return append([]column[*consumer]{
		text("Stream", func(one *consumer) view.Value { return view.Linked(one.Stream, link("messages", "stream", one.Stream)) }).
			by("stream", byKey),
		text("Consumer", (*consumer).linked).
			by("name", func(a, b *consumer) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Stream, b.Stream)) }),
		text("State", func(one *consumer) view.Value { return one.state.Value() }).by("state", worstConsumer),
		text("Since", func(one *consumer) view.Value { return one.since.value() }).help("When the console first saw this state"),
	}, ifKnown((*consumer).known,
		count("Pending", "pending", func(one *consumer) uint64 { return one.NumPending }).help("Messages that have not been delivered yet"),
		text("Last hour", func(one *consumer) view.Value {
			return view.Value{Chart: chart.Small("Pending", c.history.Values(now, time.Hour, one.key, histPending, 60))}
		}).help("Pending messages over the last hour"),
		count("Ack pending", "ackpending", func(one *consumer) int { return one.NumAckPending }).help("Messages that are delivered and not acknowledged"),
		count("Redelivered", "redelivered", func(one *consumer) int { return one.NumRedelivered }).
			help("Unacknowledged messages that were delivered more than once"),
		count("Waiting pulls", "waiting", func(one *consumer) int { return one.NumWaiting }).help("Pull requests that wait for messages"),
		number("Rate", func(one *consumer) view.Value { return view.Rate(one.Rate) }).help("Deliveries in a second, over the last 10 s").
			by("rate", func(a, b *consumer) int { return cmp.Compare(a.Rate, b.Rate) }),
		number("Oldest pending", func(one *consumer) view.Value {
			return storedAt(one.NumPending, one.Next, "Every message is delivered")
		}).help("When the oldest message was stored that was not delivered").
			by("lag", func(a, b *consumer) int { return cmp.Compare(a.Lag, b.Lag) }),
		number("Oldest unacked", func(one *consumer) view.Value {
			return storedAt(uint64(max(0, one.NumAckPending)), one.oldest, "Every delivered message is acknowledged")
		}).help("When the oldest unacknowledged message was stored").
			by("oldest", func(a, b *consumer) int {
				return cmp.Or(cmp.Compare(boolInt(a.oldest.IsZero()), boolInt(b.oldest.IsZero())), a.oldest.Compare(b.oldest))
			}),
	)...)
}

func (c *Consumers) list(ctx context.Context, r Request) (*view.Page, error) {
	s, q, list := c.latest.Fresh(ctx), r.Query, &view.List{Empty: inSentence("no consumers", nil), Path: "consumers"}
	return c.all.page(r, "Consumers", source("NATS", s), list, s.Value, c.columns(r.Now),
		searchField(q, "q", "Name", "stream or consumer"),
		choice(q, "state", "State", options("", "all", "trouble", "needs attention", "paused", "paused",
			"pending", "has pending messages", "idle", "idle")),
		internalField(q), hidden(q, "stream")), nil
}

// fits reports whether the list with a query contains a consumer. It hides consumers of internal streams, unless an operator must look at them.
func (c *Consumers) fits(q url.Values, one *consumer) bool {
	stream, waits := q.Get("stream"), one.NumPending > 0
	fits := map[string]bool{
		"": true, "trouble": one.state.Trouble(), "paused": one.Paused, "pending": waits, "idle": !waits && one.NumAckPending == 0,
	}
	return contains(q.Get("q"), one.Stream, one.Name, one.key) && (stream == "" || stream == one.Stream) && fits[q.Get("state")] &&
		(one.state.Trouble() || stream != "" || q.Get("all") != "" || c.internal == nil || !c.internal(one.Stream))
}

func byKey(a, b *consumer) int { return cmp.Compare(a.key, b.key) }

// worstConsumer orders by state, worst first, and then by pending messages, most first.
func worstConsumer(a, b *consumer) int {
	return cmp.Or(cmp.Compare(a.state.Level, b.state.Level), cmp.Compare(b.NumPending, a.NumPending), byKey(a, b))
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// linked returns a link to the consumer's page.
func (c *consumer) linked() view.Value {
	return view.Linked(c.Name, link("consumer", "stream", c.Stream, "name", c.Name))
}

func quietZero(v view.Value, notable bool, tone view.Tone) view.Value {
	v.Tone = view.Muted
	if notable {
		v.Tone = tone
	}
	return v
}

// since is when the console first saw a state. In its very first sample, the state may have begun at any time before.
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

// agesAtOnce is the maximum number of messages that one sample reads to determine their age.
const agesAtOnce = 64

// age is when the first message after a sequence was stored, or zero if there is none. It was read at read.
type age struct {
	after    uint64
	at, read time.Time
}

// lag determines when the oldest unacknowledged message was stored, and how long the oldest pending one has waited. reads is the number of messages
// that this sample may still read. When it is 0, a consumer keeps its last values.
func (c *consumer) lag(ctx context.Context, source ConsumerSource, reads *int) {
	sequences, some := [2]uint64{c.AckFloor.Stream, c.Delivered.Stream}, [2]bool{c.NumAckPending > 0, c.NumPending > 0}
	for i, after := range sequences {
		switch {
		case !some[i]:
			c.ages[i] = age{}
		case *reads > 0 && (c.ages[i].at.IsZero() || c.ages[i].after != after):
			*reads--
			c.ages[i] = age{}
			if at, err := source.StoredAfter(ctx, c.ConsumerInfo, after); err == nil {
				c.ages[i] = age{after, at, c.seen}
			}
		}
	}
	if c.ages[0].after == c.AckFloor.Stream {
		c.oldest = c.ages[0].at
	}
	first := c.ages[1]
	switch {
	case c.NumPending == 0 || !first.read.IsZero() && first.at.IsZero():
		return
	case first.read.IsZero():
		c.Lag = state.NotKnown
		return
	case first.after == c.Delivered.Stream:
		first.read = c.seen
	}
	c.Lag = max(0, first.read.Sub(first.at))
	c.Next = c.seen.Add(-c.Lag)
}

// measure computes the rate of deliveries and the growth of the backlog. It starts again for a consumer that was recreated or reset.
func (c *consumer) measure(before *consumer, now time.Time) {
	if before != nil && before.Created.Equal(c.Created) && before.Delivered.Consumer <= c.Delivered.Consumer {
		c.delivered, c.trend, c.ages = before.delivered, before.trend, before.ages
	}
	c.delivered, c.trend = c.delivered.plus(now, c.Delivered.Consumer), c.trend.Next(now, c.NumPending)
	c.Rate, c.Growth = c.delivered.rate, c.trend.Growth()
}

// waited returns how long the oldest of n messages has waited, in seconds, or NaN if that is not known.
func (c *consumer) waited(n uint64, since time.Time) float64 {
	switch {
	case n == 0:
		return 0
	case since.IsZero():
		return math.NaN()
	}
	return max(0, c.seen.Sub(since).Seconds())
}
