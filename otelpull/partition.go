package otelpull

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/partition"
)

const ownedName = "jetpull.partition.owned"

var partitionCounters = []struct {
	name, unit, text string
	read             func(*partition.Stats) uint64
}{
	{
		"jetpull.partition.assigned", "{partition}", "Partitions that came to members in this process.",
		func(s *partition.Stats) uint64 { return s.Assigned },
	},
	{"jetpull.partition.revoked", "{partition}", "Partitions that left members in this process.", func(s *partition.Stats) uint64 { return s.Revoked }},
	{
		"jetpull.partition.takeovers", "{partition}", "Partitions whose owner had not released them.",
		func(s *partition.Stats) uint64 { return s.Takeovers },
	},
	{
		"jetpull.partition.resets", "{consumer}", "Consumers that were reset to their acknowledgement floor.",
		func(s *partition.Stats) uint64 { return s.Resets },
	},
	{
		"jetpull.partition.refused", "{attempt}", "Attempts to join that failed, for example because a permission is missing.",
		func(s *partition.Stats) uint64 { return s.Refused },
	},
	{
		"jetpull.partition.lost", "{membership}", "Memberships that ended because no heartbeat was stored within the TTL.",
		func(s *partition.Stats) uint64 { return s.Lost },
	},
}

// ObserveSet reports the Stats of a Set of partitions as metrics, each time that the meter's reader collects. Each metric has
// the stream as messaging.destination.name, the name of the set as messaging.consumer.group.name, and attrs. ObserveSet fails
// if the meter refuses an instrument, and with [jetpull.ErrInvalidOption] if set or an option is nil.
func ObserveSet(set *partition.Set, attrs []attribute.KeyValue, opts ...Option) (metric.Registration, error) {
	if set == nil {
		return nil, fmt.Errorf("otelpull: %w: set: is nil", jetpull.ErrInvalidOption)
	}
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	meter := c.meters.Meter(scope)
	with := metric.WithAttributes(append([]attribute.KeyValue{
		system, semconv.MessagingDestinationName(set.Stream()), semconv.MessagingConsumerGroupName(set.Config().Name),
	}, attrs...)...)
	owned, err := meter.Int64ObservableUpDownCounter(ownedName, metric.WithUnit("{partition}"),
		metric.WithDescription("Partitions that members in this process own."))
	if err != nil {
		return nil, fmt.Errorf("otelpull: instrument %s: %w", ownedName, err)
	}
	all := []metric.Observable{owned}
	var counters []metric.Int64Observable
	for _, d := range partitionCounters {
		i, err := meter.Int64ObservableCounter(d.name, metric.WithUnit(d.unit), metric.WithDescription(d.text))
		if err != nil {
			return nil, fmt.Errorf("otelpull: instrument %s: %w", d.name, err)
		}
		all, counters = append(all, i), append(counters, i)
	}
	return meter.RegisterCallback(func(_ context.Context, w metric.Observer) error {
		s := set.Stats()
		w.ObserveInt64(owned, int64(s.Owned), with)
		for i, d := range partitionCounters {
			w.ObserveInt64(counters[i], int64(d.read(&s)), with)
		}
		return nil
	}, all...)
}
