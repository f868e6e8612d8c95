package otelpull

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/metric"

	"github.com/jetpull/jetpull"
)

// backlogMost bounds how long a collection waits for the server. Without an answer, the gauges are not reported.
const backlogMost = 2 * time.Second

// backlog is the consumer's state, as the server last reported it.
type backlog struct {
	every time.Duration

	mu    sync.Mutex
	asked time.Time
	info  *jetstream.ConsumerInfo // nil: the server did not answer
}

// read returns the state. If it is older than the interval, read requests it from the server.
func (b *backlog) read(ctx context.Context, sub *jetpull.Subscription) *jetstream.ConsumerInfo {
	b.mu.Lock()
	now, info := time.Now(), b.info
	due := now.Sub(b.asked) >= b.every
	if due {
		b.asked = now
	}
	b.mu.Unlock()
	if !due {
		return info
	}
	ctx, cancel := context.WithTimeout(ctx, backlogMost)
	defer cancel()
	info, _ = sub.Info(ctx) // nil after an error
	b.mu.Lock()
	b.info = info
	b.mu.Unlock()
	return info
}

// observeBacklog adds gauges of the consumer. All of its clients report the same values.
func observeBacklog(o *observer[jetpull.Stats], sub *jetpull.Subscription, every time.Duration) {
	b := backlog{every: every}
	for _, g := range []struct {
		name, text string
		read       func(*jetstream.ConsumerInfo) int64
	}{
		{"jetpull.consumer.pending", "Messages that wait for their first delivery.", func(i *jetstream.ConsumerInfo) int64 { return int64(i.NumPending) }},
		{
			"jetpull.consumer.ack_pending", "Messages that were delivered and are not acknowledged.",
			func(i *jetstream.ConsumerInfo) int64 { return int64(i.NumAckPending) },
		},
		{
			"jetpull.consumer.redelivered", "Messages that wait for an acknowledgement of another delivery than the first.",
			func(i *jetstream.ConsumerInfo) int64 { return int64(i.NumRedelivered) },
		},
	} {
		i, err := o.meter.Int64ObservableGauge(g.name, metric.WithUnit("{message}"), metric.WithDescription(g.text))
		o.failed(g.name, err)
		o.all = append(o.all, i)
		o.collectors = append(o.collectors, func(ctx context.Context, w metric.Observer, _ *jetpull.Stats) {
			if info := b.read(ctx, sub); info != nil {
				w.ObserveInt64(i, g.read(info), o.set)
			}
		})
	}
}
