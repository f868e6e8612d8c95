package otelpull

import (
	"context"
	"fmt"
	"net/textproto"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"

	"github.com/jetpull/jetpull"
)

// canonical is the form in which HTTP-minded senders write a header.
func canonical(key string) string { return textproto.CanonicalMIMEHeaderKey(key) }

// counter is one metric read from the Stats of a Subscription.
type counter struct {
	name, unit, text string
	read             func(*jetpull.Stats) int64
}

var counters = []counter{
	{"jetpull.client.consumed.bytes", "By", "Bytes that were delivered, subjects and headers included.", func(s *jetpull.Stats) int64 { return int64(s.Bytes) }},
	{"jetpull.client.pulls", "{pull}", "Pull requests sent.", func(s *jetpull.Stats) int64 { return int64(s.Pulls) }},
	{"jetpull.client.pulls.silent", "{pull}", "Pull requests that the server never answered.", func(s *jetpull.Stats) int64 { return int64(s.Silent) }},
	{"jetpull.client.handed_back", "{message}", "Messages handed back because nobody waited for them.", func(s *jetpull.Stats) int64 { return int64(s.HandedBack) }},
	{"jetpull.client.redelivered", "{message}", "Messages that had been delivered before.", func(s *jetpull.Stats) int64 { return int64(s.Redelivered) }},
	{"jetpull.client.reconnects", "{reconnect}", "Times that the connection came back.", func(s *jetpull.Stats) int64 { return int64(s.Reconnects) }},
}

var gauges = []counter{
	{"jetpull.client.outstanding", "{message}", "Messages that open pulls may still bring.", func(s *jetpull.Stats) int64 { return int64(s.Outstanding) }},
	{"jetpull.client.buffered", "{message}", "Messages that wait for a handler.", func(s *jetpull.Stats) int64 { return int64(s.Buffered) }},
	{"jetpull.client.running", "{message}", "Messages that are being handled.", func(s *jetpull.Stats) int64 { return int64(s.Running) }},
	{"jetpull.client.window", "{message}", "Messages that may be held at a time.", func(s *jetpull.Stats) int64 { return int64(s.Window) }},
}

// pull is the operation by which messages come.
const pull = "pull"

// deliveries count the messages that were given to handlers and callers.
type deliveries struct {
	mu   sync.Mutex
	most int64
}

// count is what the pulls brought, less what waits and what was given to nobody. Stats
// are not of one moment: while messages go back they can be counted twice there, and a
// counter must not fall.
func (d *deliveries) count(s *jetpull.Stats) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.most = max(d.most, int64(s.Messages)-int64(s.Buffered)-int64(s.HandedBack)-int64(s.Dropped))
	return d.most
}

// Observe reports the Stats of a Subscription as metrics each time that the
// meter's reader collects, with attrs on each, by which to tell Subscriptions
// apart: messaging.destination.name with the stream and
// messaging.destination.subscription.name with the consumer are those of the spans of
// [Handler]; server.address is for the program to know. messaging.client.consumed.messages
// counts what was given to handlers and callers, without what waits for them and what was
// handed back. Unregister the result before the Subscription is closed. It fails if the
// meter refuses an instrument, and with [jetpull.ErrInvalidOption] if sub or an option is
// nil.
func Observe(sub *jetpull.Subscription, attrs []attribute.KeyValue, opts ...Option) (metric.Registration, error) {
	if sub == nil {
		return nil, fmt.Errorf("otelpull: %w: sub: is nil", jetpull.ErrInvalidOption)
	}
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	meter := c.meters.Meter(scope)
	attrs = append([]attribute.KeyValue{system}, attrs...)
	var all []metric.Observable
	var observe []func(metric.Observer, *jetpull.Stats)
	set := metric.WithAttributes(attrs...)
	for _, d := range counters {
		o, err := meter.Int64ObservableCounter(d.name, metric.WithUnit(d.unit), metric.WithDescription(d.text))
		if err != nil {
			return nil, fmt.Errorf("otelpull: counter %s: %w", d.name, err)
		}
		all = append(all, o)
		observe = append(observe, func(w metric.Observer, s *jetpull.Stats) { w.ObserveInt64(o, d.read(s), set) })
	}
	for _, d := range gauges {
		o, err := meter.Int64ObservableUpDownCounter(d.name, metric.WithUnit(d.unit), metric.WithDescription(d.text))
		if err != nil {
			return nil, fmt.Errorf("otelpull: gauge %s: %w", d.name, err)
		}
		all = append(all, o)
		observe = append(observe, func(w metric.Observer, s *jetpull.Stats) { w.ObserveInt64(o, d.read(s), set) })
	}
	outcomes, err := meter.Int64ObservableCounter("jetpull.client.acknowledgements",
		metric.WithUnit("{message}"), metric.WithDescription("Acknowledgements sent, by kind."))
	if err != nil {
		return nil, fmt.Errorf("otelpull: counter jetpull.client.acknowledgements: %w", err)
	}
	statuses, err := meter.Int64ObservableCounter("jetpull.client.statuses",
		metric.WithUnit("{status}"), metric.WithDescription("Status frames of the server, by code."))
	if err != nil {
		return nil, fmt.Errorf("otelpull: counter jetpull.client.statuses: %w", err)
	}
	consumed, err := messagingconv.NewClientConsumedMessagesObservable(meter)
	if err != nil {
		return nil, fmt.Errorf("otelpull: counter %s: %w", consumed.Name(), err)
	}
	var given deliveries
	all = append(all, outcomes, statuses, consumed.Inst())
	return meter.RegisterCallback(func(_ context.Context, w metric.Observer) error {
		s := sub.Stats()
		for _, f := range observe {
			f(w, &s)
		}
		w.ObserveInt64(consumed.Inst(), given.count(&s), set, metric.WithAttributes(consumed.AttrOperationName(pull)))
		for kind, n := range map[string]uint64{"ack": s.Acks, "nak": s.Naks, "term": s.Terms, "in_progress": s.InProgress} {
			w.ObserveInt64(outcomes, int64(n), set, metric.WithAttributes(attribute.String("kind", kind)))
		}
		for code, n := range s.Statuses {
			w.ObserveInt64(statuses, int64(n), set, metric.WithAttributes(attribute.String("code", strconv.Itoa(code))))
		}
		return nil
	}, all...)
}
