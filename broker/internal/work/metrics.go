package work

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/metrics"
	"github.com/jetpull/jetpull/internal/service/webhook/breaker"
)

// Metrics are a node's Prometheus metrics.
type Metrics struct {
	*metrics.Set

	broadcasts  *prometheus.CounterVec
	callbacks   *prometheus.HistogramVec
	endToEnd    prometheus.Observer
	outcomes    *prometheus.CounterVec
	attempts    *prometheus.CounterVec
	claims      prometheus.Counter
	transitions *prometheus.CounterVec
	expiries    *prometheus.CounterVec
	events      *prometheus.CounterVec
}

var latencyBuckets = prometheus.ExponentialBuckets(0.0005, 2, 18) // 0.5 ms to 65 s

// NewMetrics returns metrics with a registry of their own.
func NewMetrics() *Metrics {
	set := metrics.New("broker", latencyBuckets)
	m := &Metrics{
		Set:        set,
		broadcasts: set.Counter("broker_broadcasts_total", "Broadcasts, by result.", "result"),
		callbacks:  set.Histogram("broker_callback_seconds", "Time that callbacks took, by result.", "result"),
		endToEnd:   set.Histogram("broker_delivery_seconds", "Time from the receipt of a message to its delivery by callback.").WithLabelValues(),
		outcomes:   set.Counter("broker_callback_outcomes_total", "States of jobs after a callback; QUEUED is a retry.", "status"),
		attempts: set.Counter("broker_attempts_total", "Callbacks, by the class of their status, timeout, or error.",
			"outcome"),
		claims:      set.Counter("broker_claims_total", "Jobs claimed by workers.").WithLabelValues(),
		transitions: set.Counter("broker_transitions_total", "Accepted transitions of workers.", "status"),
		expiries:    set.Counter("broker_claims_expired_total", "Claims that ended by time, by the job's state after.", "status"),
		events: set.Counter("broker_consumer_events_total", "Changes of consumers that are reported to operators: paused, resumed, circuit "+
			"breaker opened or closed.", "event"),
	}
	// Start each series at 0. Otherwise the first event, which creates the series at 1, would not show in its rate.
	for _, result := range []string{"ok", "failed"} {
		m.broadcasts.WithLabelValues(result)
		m.callbacks.WithLabelValues(result)
	}
	for _, outcome := range []string{"2xx", "3xx", "4xx", "5xx", "timeout", "error"} {
		m.attempts.WithLabelValues(outcome)
	}
	for _, status := range []domain.JobStatus{domain.Queued, domain.Dead} {
		m.expiries.WithLabelValues(status.String())
	}
	return m
}

func resultLabel(ok bool) string {
	if ok {
		return "ok"
	}
	return "failed"
}

func (m *Metrics) broadcast(err error) { m.broadcasts.WithLabelValues(resultLabel(err == nil)).Inc() }

func (m *Metrics) called(a domain.Attempt, err error) {
	m.callbacks.WithLabelValues(resultLabel(err == nil)).Observe(a.Duration.Seconds())
	outcome := "error"
	switch {
	case a.StatusCode != 0:
		outcome = metrics.Class(a.StatusCode)
	case errors.Is(err, context.DeadlineExceeded):
		outcome = "timeout"
	}
	m.attempts.WithLabelValues(outcome).Inc()
}

func (m *Metrics) attempted(next domain.JobStatus, age time.Duration) {
	m.outcomes.WithLabelValues(next.String()).Inc()
	if next == domain.Delivered {
		m.endToEnd.Observe(age.Seconds())
	}
}

const (
	// backlogSeries is the maximum number of consumers whose backlog and age are exported: those with the oldest messages.
	backlogSeries = 1000
	// usageTimeout bounds the query for the store's size.
	usageTimeout = time.Second
)

// Usage is how much of the store is used.
type Usage struct {
	Bytes int64
	// Limit is the size, in bytes, from which broadcasts are refused. 0 means that it is not known.
	Limit int64
}

// gauges are computed on each scrape.
type gauges struct {
	*core
	dispatch *Dispatch
}

var (
	queuedDesc  = metrics.Desc("queued_job_count", "The current number of jobs in the queue")
	deadDesc    = metrics.Desc("dead_job_count", "Number of dead jobs per consumer", "channel", "consumer")
	backlogDesc = metrics.Desc("broker_backlog", "Jobs of a consumer that are queued or in flight. Consumers without one are left out, and "+
		"with more than 1,000 of them those whose oldest is younger.", "channel", "consumer")
	oldestDesc = metrics.Desc("broker_oldest_seconds", "Age of the oldest message that a consumer has not finished.", "channel", "consumer")
	bytesDesc  = metrics.Desc("broker_store_bytes", "Bytes that the store takes on one server.")
	limitDesc  = metrics.Desc("broker_store_limit_bytes", "Bytes at which broadcasts are refused.")
	pausedDesc = metrics.Desc("broker_consumer_paused", "1 for each consumer whose jobs wait until it is resumed.", "channel", "consumer", "reason")
	openDesc   = metrics.Desc("broker_breaker_open", "1 for each consumer whose circuit breaker is open or half-open on this node.",
		"channel", "consumer")
	shardDesc = metrics.Desc("broker_dispatching", "1 where this node makes the callbacks of the shard's channels.", "shard")
	readyDesc = metrics.Desc("broker_ready", "1 if the process accepts broadcasts, as in /readyz.")
)

func (g gauges) collect(gauge func(d *prometheus.Desc, value float64, labels ...string)) {
	for shard := range g.Shards.Shards() {
		gauge(shardDesc, metrics.OneIf(g.Shards.Owns(shard)), strconv.Itoa(shard))
	}
	backlogs := g.Index.Backlogs()
	queued := 0
	for _, l := range backlogs {
		queued += l.Queued
		gauge(deadDesc, float64(l.Dead), l.Consumer.Channel, l.Consumer.ID)
		if l.Consumer.Paused() {
			gauge(pausedDesc, 1, l.Consumer.Channel, l.Consumer.ID, l.Consumer.Pause.Reason)
		}
		if b := g.dispatch.State(l.Consumer).Breaker; b != "" && b != breaker.Closed {
			gauge(openDesc, 1, l.Consumer.Channel, l.Consumer.ID)
		}
	}
	gauge(queuedDesc, float64(queued))
	for _, l := range oldestFirst(backlogs) {
		gauge(backlogDesc, float64(l.Queued+l.Inflight), l.Consumer.Channel, l.Consumer.ID)
		gauge(oldestDesc, g.Now().Sub(l.Oldest).Seconds(), l.Consumer.Channel, l.Consumer.ID)
	}
	gauge(readyDesc, metrics.OneIf(g.Ready() == nil))
	ctx, cancel := context.WithTimeout(context.Background(), usageTimeout)
	defer cancel()
	if usage, err := g.Usage(ctx); err == nil {
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
