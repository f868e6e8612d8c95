package otelpull

import (
	"context"
	"fmt"
	"net/textproto"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

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
	{"messaging.client.consumed.messages", "{message}", "Messages that were delivered.", func(s *jetpull.Stats) int64 { return int64(s.Messages) }},
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

// Observe reports the Stats of a Subscription as metrics each time that the
// meter's reader collects, with attrs on each, by which to tell Subscriptions
// apart: messaging.destination.name and messaging.consumer.group.name say most.
// Unregister the result before the Subscription is closed. It fails if the meter
// refuses an instrument, and with [jetpull.ErrInvalidOption] if sub is nil.
func Observe(sub *jetpull.Subscription, attrs []attribute.KeyValue, opts ...Option) (metric.Registration, error) {
	if sub == nil {
		return nil, fmt.Errorf("otelpull: %w: sub: is nil", jetpull.ErrInvalidOption)
	}
	c := newConfig(opts)
	meter := c.meters.Meter(scope)
	attrs = append([]attribute.KeyValue{attribute.String("messaging.system", "nats")}, attrs...)
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
	all = append(all, outcomes, statuses)
	return meter.RegisterCallback(func(_ context.Context, w metric.Observer) error {
		s := sub.Stats()
		for _, f := range observe {
			f(w, &s)
		}
		for kind, n := range map[string]uint64{"ack": s.Acks, "nak": s.Naks, "term": s.Terms, "in_progress": s.InProgress} {
			w.ObserveInt64(outcomes, int64(n), set, metric.WithAttributes(attribute.String("kind", kind)))
		}
		for code, n := range s.Statuses {
			w.ObserveInt64(statuses, int64(n), set, metric.WithAttributes(attribute.String("code", strconv.Itoa(code))))
		}
		return nil
	}, all...)
}
