package work

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

const (
	// backlogSeries bounds for how many consumers backlog and age are shown: those with the oldest messages.
	backlogSeries = 1000
	// usageTimeout bounds the question for the store's size.
	usageTimeout = time.Second
)

// Usage is how much of the store is used.
type Usage struct {
	Bytes int64
	// Limit is at how many bytes broadcasts are refused; 0: it is not known.
	Limit int64
}

// gauges are computed when they are read.
type gauges struct {
	*core
	dispatch *Dispatch
	// usage tells how much of the store is used. Nil: that is not known.
	usage func(ctx context.Context) (Usage, error)
}

var (
	queuedDesc  = prometheus.NewDesc("queued_job_count", "The current number of jobs in the queue", nil, nil)
	deadDesc    = prometheus.NewDesc("dead_job_count", "Number of dead jobs per consumer", []string{"channel", "consumer"}, nil)
	backlogDesc = prometheus.NewDesc("broker_backlog", "Jobs of a consumer that are queued or in flight. Consumers without one are left out, and with more than 1,000 of them those whose oldest is younger.", []string{"channel", "consumer"}, nil)
	oldestDesc  = prometheus.NewDesc("broker_oldest_seconds", "Age of the oldest message that a consumer has not worked off.", []string{"channel", "consumer"}, nil)
	bytesDesc   = prometheus.NewDesc("broker_store_bytes", "Bytes that the store takes on one server.", nil, nil)
	limitDesc   = prometheus.NewDesc("broker_store_limit_bytes", "Bytes at which broadcasts are refused.", nil, nil)
	pausedDesc  = prometheus.NewDesc("broker_consumer_paused", "1 for each consumer whose jobs wait until it is resumed.", []string{"channel", "consumer", "reason"}, nil)
	openDesc    = prometheus.NewDesc("broker_breaker_open", "1 for each consumer whose circuit breaker is open or half-open on this node.", []string{"channel", "consumer"}, nil)
	shardDesc   = prometheus.NewDesc("broker_dispatching", "1 where this node makes the callbacks of the shard's channels.", []string{"shard"}, nil)
	readyDesc   = prometheus.NewDesc("broker_ready", "1 where the process takes broadcasts, as /readyz says.", nil, nil)
)

// Describe implements prometheus.Collector.
func (gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{queuedDesc, deadDesc, backlogDesc, oldestDesc, bytesDesc, limitDesc, pausedDesc, openDesc, shardDesc, readyDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for shard := range g.store.Shards() {
		value := 0.0
		if g.store.Owns(shard) {
			value = 1
		}
		gauge(shardDesc, value, strconv.Itoa(shard))
	}
	backlogs := g.store.Backlogs()
	queued := 0
	for _, l := range backlogs {
		queued += l.Queued
		gauge(deadDesc, float64(l.Dead), l.Consumer.Channel, l.Consumer.ID)
		if l.Consumer.Paused() {
			gauge(pausedDesc, 1, l.Consumer.Channel, l.Consumer.ID, l.Consumer.Pause.Reason)
		}
	}
	gauge(queuedDesc, float64(queued))
	for _, c := range g.dispatch.openBreakers() {
		gauge(openDesc, 1, c.Channel, c.ID)
	}
	for _, l := range oldestFirst(backlogs) {
		gauge(backlogDesc, float64(l.Queued+l.Inflight), l.Consumer.Channel, l.Consumer.ID)
		gauge(oldestDesc, time.Since(l.Oldest).Seconds(), l.Consumer.Channel, l.Consumer.ID)
	}
	ready := 0.0
	if g.store.Ready() == nil && g.Room() == nil {
		ready = 1
	}
	gauge(readyDesc, ready)
	if g.usage == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), usageTimeout)
	defer cancel()
	if usage, err := g.usage(ctx); err == nil {
		gauge(bytesDesc, float64(usage.Bytes))
		if usage.Limit > 0 {
			gauge(limitDesc, float64(usage.Limit))
		}
	}
}

func oldestFirst(backlogs []domain.Backlog) []domain.Backlog {
	waiting := slices.DeleteFunc(backlogs, func(l domain.Backlog) bool { return l.Oldest.IsZero() })
	slices.SortFunc(waiting, func(a, b domain.Backlog) int {
		return cmp.Or(a.Oldest.Compare(b.Oldest), cmp.Compare(a.Consumer.Number, b.Consumer.Number))
	})
	return waiting[:min(len(waiting), backlogSeries)]
}
