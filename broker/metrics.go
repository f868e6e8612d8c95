package broker

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are a node's Prometheus metrics.
type Metrics struct {
	Registry *prometheus.Registry

	requests    *prometheus.HistogramVec
	broadcasts  *prometheus.CounterVec
	callbacks   *prometheus.HistogramVec
	endToEnd    prometheus.Histogram
	outcomes    *prometheus.CounterVec
	claims      prometheus.Counter
	transitions *prometheus.CounterVec
	expiries    *prometheus.CounterVec
	events      *prometheus.CounterVec
}

var latencyBuckets = prometheus.ExponentialBuckets(0.0005, 2, 18) // 0.5 ms to 65 s

// NewMetrics makes metrics with a registry of their own.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: latencyBuckets}, labels)
	}
	m := &Metrics{
		Registry:    prometheus.NewRegistry(),
		requests:    histogram("broker_http_request_seconds", "Time to answer a request, by route, method and status.", "route", "method", "status"),
		broadcasts:  counter("broker_broadcasts_total", "Messages offered, by result.", "result"),
		callbacks:   histogram("broker_callback_seconds", "Time that callbacks took, by result.", "result"),
		endToEnd:    prometheus.NewHistogram(prometheus.HistogramOpts{Name: "broker_delivery_seconds", Help: "Time from the receipt of a message to its delivery by callback.", Buckets: latencyBuckets}),
		outcomes:    counter("broker_callback_outcomes_total", "What became of jobs after a callback; QUEUED is a retry.", "status"),
		claims:      prometheus.NewCounter(prometheus.CounterOpts{Name: "broker_claims_total", Help: "Jobs claimed by workers."}),
		transitions: counter("broker_transitions_total", "Transitions asked for by workers and accepted.", "status"),
		expiries:    counter("broker_claims_expired_total", "Claims that ended by time, by the job's state after.", "status"),
		events:      counter("broker_consumer_events_total", "Changes of consumers that operators are told of: paused, resumed, circuit breaker opened or closed.", "event"),
	}
	m.Registry.MustRegister(m.requests, m.broadcasts, m.callbacks, m.endToEnd, m.outcomes, m.claims, m.transitions,
		m.expiries, m.events, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Request counts an answered request.
func (m *Metrics) Request(route, method string, status int, took time.Duration) {
	m.requests.WithLabelValues(route, method, strconv.Itoa(status)).Observe(took.Seconds())
}

func resultLabel(ok bool) string {
	if ok {
		return "ok"
	}
	return "failed"
}

func (m *Metrics) broadcast(err error) { m.broadcasts.WithLabelValues(resultLabel(err == nil)).Inc() }

func (m *Metrics) called(ok bool, took time.Duration) {
	m.callbacks.WithLabelValues(resultLabel(ok)).Observe(took.Seconds())
}

func (m *Metrics) attempted(next JobStatus, receivedAt time.Time) {
	m.outcomes.WithLabelValues(next.String()).Inc()
	if next == Delivered {
		m.endToEnd.Observe(time.Since(receivedAt).Seconds())
	}
}

func (m *Metrics) claimed(n int)            { m.claims.Add(float64(n)) }
func (m *Metrics) transitioned(s JobStatus) { m.transitions.WithLabelValues(s.String()).Inc() }
func (m *Metrics) expired(next JobStatus)   { m.expiries.WithLabelValues(next.String()).Inc() }

// observe adds the gauges that are computed from the store when they are read.
func (m *Metrics) observe(store observed) { m.Registry.MustRegister(&jobCollector{store}) }

// observed is the part of a store that metrics are computed from.
type observed interface {
	Directory
	JobLists
	Shards
}

// jobCollector has the two gauges of the contract, and one of what this node dispatches.
type jobCollector struct{ store observed }

var (
	queuedDesc = prometheus.NewDesc("queued_job_count", "The current number of jobs in the queue", nil, nil)
	deadDesc   = prometheus.NewDesc("dead_job_count", "Number of dead jobs per consumer", []string{"channel", "consumer"}, nil)
	pausedDesc = prometheus.NewDesc("broker_consumer_paused", "1 for each consumer whose jobs wait until it is resumed.", []string{"channel", "consumer", "reason"}, nil)
	shardDesc  = prometheus.NewDesc("broker_dispatching", "1 where this node makes the callbacks of the shard's channels.", []string{"shard"}, nil)
)

// Describe implements prometheus.Collector.
func (*jobCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- queuedDesc
	ch <- deadDesc
	ch <- shardDesc
	ch <- pausedDesc
}

// Collect implements prometheus.Collector.
func (jc *jobCollector) Collect(ch chan<- prometheus.Metric) {
	for shard := range jc.store.Shards() {
		value := 0.0
		if jc.store.Owns(shard) {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(shardDesc, prometheus.GaugeValue, value, strconv.Itoa(shard))
	}
	queued := 0
	for _, c := range jc.store.Consumers("") {
		if c.Paused() {
			ch <- prometheus.MustNewConstMetric(pausedDesc, prometheus.GaugeValue, 1, c.Channel, c.ID, c.Pause.Reason)
		}
		for _, count := range jc.store.CountJobs(c.Number) {
			switch count.Status {
			case Queued:
				queued += count.Count
			case Dead:
				ch <- prometheus.MustNewConstMetric(deadDesc, prometheus.GaugeValue, float64(count.Count), c.Channel, c.ID)
			}
		}
	}
	ch <- prometheus.MustNewConstMetric(queuedDesc, prometheus.GaugeValue, float64(queued))
}
