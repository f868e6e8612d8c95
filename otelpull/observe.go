package otelpull

import (
	"context"
	"fmt"
	"net/textproto"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"

	"github.com/jetpull/jetpull"
)

// canonical returns the canonical HTTP form of a header, which some senders use.
func canonical(key string) string { return textproto.CanonicalMIMEHeaderKey(key) }

// counter is a metric that is read from the Stats of a Subscription or a Set.
type counter[S any] struct {
	name, unit, text string
	read             func(*S) int64
}

var counters = []counter[jetpull.Stats]{
	{
		"jetpull.client.consumed.bytes", "By", "Bytes that were delivered, subjects and headers included.",
		func(s *jetpull.Stats) int64 { return int64(s.Bytes) },
	},
	{"jetpull.client.pulls", "{pull}", "Pull requests sent.", func(s *jetpull.Stats) int64 { return int64(s.Pulls) }},
	{"jetpull.client.pulls.silent", "{pull}", "Pull requests that the server never answered.", func(s *jetpull.Stats) int64 { return int64(s.Silent) }},
	{
		"jetpull.client.handed_back", "{message}", "Messages handed back because nobody waited for them.",
		func(s *jetpull.Stats) int64 { return int64(s.HandedBack) },
	},
	{
		"jetpull.client.redelivered", "{message}", "Messages that had been delivered before.",
		func(s *jetpull.Stats) int64 { return int64(s.Redelivered) },
	},
	{
		"jetpull.client.attempts.timed_out", "{attempt}", "Attempts of handlers that ran for HandlerTimeout.",
		func(s *jetpull.Stats) int64 { return int64(s.TimedOut) },
	},
	{"jetpull.client.reconnects", "{reconnect}", "Times that the connection came back.", func(s *jetpull.Stats) int64 { return int64(s.Reconnects) }},
}

var gauges = []counter[jetpull.Stats]{
	{
		"jetpull.client.outstanding", "{message}", "Messages that open pulls may still bring.",
		func(s *jetpull.Stats) int64 { return int64(s.Outstanding) },
	},
	{"jetpull.client.buffered", "{message}", "Messages that wait for a handler.", func(s *jetpull.Stats) int64 { return int64(s.Buffered) }},
	{"jetpull.client.running", "{message}", "Messages that are being handled.", func(s *jetpull.Stats) int64 { return int64(s.Running) }},
	{"jetpull.client.window", "{message}", "Messages that may be held at a time.", func(s *jetpull.Stats) int64 { return int64(s.Window) }},
}

// pull is the name of the operation that receives messages.
const pull = "pull"

// deliveries counts the messages that handlers and callers got.
type deliveries struct {
	mu   sync.Mutex
	most int64
}

// count returns the messages received, without those that wait, were handed back or were
// dropped. Stats is not a snapshot: while messages are handed back, it can count them
// twice. A counter must not fall, so count returns the highest value so far.
func (d *deliveries) count(s *jetpull.Stats) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.most = max(d.most, int64(s.Messages)-int64(s.Buffered)-int64(s.HandedBack)-int64(s.Dropped))
	return d.most
}

// outcomes are the values of jetpull.outcome on jetpull.client.attempts.failed.
func outcomes(s *jetpull.Stats) map[jetpull.EventOutcome]uint64 {
	return map[jetpull.EventOutcome]uint64{
		jetpull.Retried: s.Retried, jetpull.DeadLettered: s.DeadLettered, jetpull.Terminated: s.Terminated,
		jetpull.HandedBack: s.Failed - s.Retried - s.DeadLettered - s.Terminated,
	}
}

// Observe reports the Stats of a Subscription as metrics each time the meter's reader collects. Like the spans of [Handler],
// each metric has the stream as messaging.destination.name and the consumer as messaging.destination.subscription.name. It
// also has attrs: add server.address if it is known. messaging.client.consumed.messages counts the messages that handlers
// and callers got, without those that wait for them or were handed back.
//
// Unregister the result before the Subscription is closed. Observe fails if the meter refuses an instrument, and with
// [jetpull.ErrInvalidOption] if sub or an option is nil.
func Observe(sub *jetpull.Subscription, attrs []attribute.KeyValue, opts ...Option) (metric.Registration, error) {
	if sub == nil {
		return nil, fmt.Errorf("otelpull: %w: sub: is nil", jetpull.ErrInvalidOption)
	}
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	o := newObserver(c, sub.Stats, append([]attribute.KeyValue{
		system, semconv.MessagingDestinationName(sub.Stream()), semconv.MessagingDestinationSubscriptionName(sub.Consumer()),
	}, attrs...))
	o.counters(counters)
	for _, d := range gauges {
		o.gauge(d.name, d.unit, d.text, func(observe observeFunc, s *jetpull.Stats) { observe(d.read(s)) })
	}
	o.counter("jetpull.client.acknowledgements", "{message}", "Acknowledgements sent, by kind.", func(observe observeFunc, s *jetpull.Stats) {
		for kind, n := range map[string]uint64{"ack": s.Acks, "nak": s.Naks, "term": s.Terms, "in_progress": s.InProgress} {
			observe(int64(n), attribute.String("kind", kind))
		}
	})
	o.counter("jetpull.client.statuses", "{status}", "Status frames of the server, by code.", func(observe observeFunc, s *jetpull.Stats) {
		for code, n := range s.Statuses {
			observe(int64(n), attribute.String("code", strconv.Itoa(code)))
		}
	})
	o.counter("jetpull.client.attempts.failed", "{attempt}", "Attempts of handlers that failed, by what they came to.",
		func(observe observeFunc, s *jetpull.Stats) {
			for what, n := range outcomes(s) {
				observe(int64(n), outcome.String(string(what)))
			}
		})
	consumed, err := messagingconv.NewClientConsumedMessagesObservable(o.meter)
	if err != nil {
		return nil, fmt.Errorf("otelpull: counter %s: %w", consumed.Name(), err)
	}
	var given deliveries
	o.add(consumed.Inst(), func(observe observeFunc, s *jetpull.Stats) { observe(given.count(s), consumed.AttrOperationName(pull)) })
	if c.backlog > 0 {
		observeBacklog(o, sub, c.backlog)
	}
	return o.register()
}

// observer holds the instruments of one Subscription or Set.
type observer[S any] struct {
	stats      func() S
	meter      metric.Meter
	set        metric.ObserveOption
	all        []metric.Observable
	collectors []func(context.Context, metric.Observer, *S)
	err        error
}

func newObserver[S any](c config, stats func() S, attrs []attribute.KeyValue) *observer[S] {
	return &observer[S]{stats: stats, meter: c.meters.Meter(scope), set: metric.WithAttributes(attrs...)}
}

type observeFunc func(n int64, attrs ...attribute.KeyValue)

func (o *observer[S]) add(i metric.Int64Observable, read func(observeFunc, *S)) {
	o.all = append(o.all, i)
	o.collectors = append(o.collectors, func(_ context.Context, w metric.Observer, s *S) {
		read(func(n int64, attrs ...attribute.KeyValue) {
			w.ObserveInt64(i, n, o.set, metric.WithAttributes(attrs...))
		}, s)
	})
}

func (o *observer[S]) counters(all []counter[S]) {
	for _, d := range all {
		o.counter(d.name, d.unit, d.text, func(observe observeFunc, s *S) { observe(d.read(s)) })
	}
}

func (o *observer[S]) counter(name, unit, text string, read func(observeFunc, *S)) {
	i, err := o.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
	o.failed(name, err)
	o.add(i, read)
}

func (o *observer[S]) gauge(name, unit, text string, read func(observeFunc, *S)) {
	i, err := o.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
	o.failed(name, err)
	o.add(i, read)
}

func (o *observer[S]) failed(name string, err error) {
	if err != nil && o.err == nil {
		o.err = fmt.Errorf("otelpull: instrument %s: %w", name, err)
	}
}

func (o *observer[S]) register() (metric.Registration, error) {
	if o.err != nil {
		return nil, o.err
	}
	return o.meter.RegisterCallback(func(ctx context.Context, w metric.Observer) error {
		s := o.stats()
		for _, f := range o.collectors {
			f(ctx, w, &s)
		}
		return nil
	}, o.all...)
}
