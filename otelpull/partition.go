package otelpull

import (
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/partition"
)

var partitionCounters = []counter[partition.Stats]{
	{
		"jetpull.partition.assigned", "{partition}", "Partitions that came to members in this process.",
		func(s *partition.Stats) int64 { return int64(s.Assigned) },
	},
	{
		"jetpull.partition.revoked", "{partition}", "Partitions that left members in this process.",
		func(s *partition.Stats) int64 { return int64(s.Revoked) },
	},
	{
		"jetpull.partition.takeovers", "{partition}", "Partitions whose owner had not released them.",
		func(s *partition.Stats) int64 { return int64(s.Takeovers) },
	},
	{
		"jetpull.partition.resets", "{consumer}", "Consumers that were reset to their acknowledgement floor.",
		func(s *partition.Stats) int64 { return int64(s.Resets) },
	},
	{
		"jetpull.partition.refused", "{attempt}", "Attempts to join that failed, for example because a permission is missing.",
		func(s *partition.Stats) int64 { return int64(s.Refused) },
	},
	{
		"jetpull.partition.lost", "{membership}", "Memberships that ended because no heartbeat was stored within the TTL.",
		func(s *partition.Stats) int64 { return int64(s.Lost) },
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
	o := newObserver(c, set.Stats, append([]attribute.KeyValue{
		system, semconv.MessagingDestinationName(set.Stream()), semconv.MessagingConsumerGroupName(set.Config().Name),
	}, attrs...))
	o.gauge("jetpull.partition.owned", "{partition}", "Partitions that members in this process own.",
		func(observe observeFunc, s *partition.Stats) { observe(int64(s.Owned)) })
	o.counters(partitionCounters)
	return o.register()
}
