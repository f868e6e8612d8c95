package work

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// Metrics are a node's Prometheus metrics.
type Metrics struct {
	Registry *prometheus.Registry

	requests    *prometheus.HistogramVec
	broadcasts  *prometheus.CounterVec
	callbacks   *prometheus.HistogramVec
	endToEnd    prometheus.Histogram
	outcomes    *prometheus.CounterVec
	attempts    *prometheus.CounterVec
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
		attempts:    counter("broker_attempts_total", "Callbacks, by what they were answered with: the class of the status, timeout, or error.", "outcome"),
		claims:      prometheus.NewCounter(prometheus.CounterOpts{Name: "broker_claims_total", Help: "Jobs claimed by workers."}),
		transitions: counter("broker_transitions_total", "Transitions asked for by workers and accepted.", "status"),
		expiries:    counter("broker_claims_expired_total", "Claims that ended by time, by the job's state after.", "status"),
		events:      counter("broker_consumer_events_total", "Changes of consumers that operators are told of: paused, resumed, circuit breaker opened, half-open or closed.", "event"),
	}
	m.Registry.MustRegister(m.requests, m.broadcasts, m.callbacks, m.endToEnd, m.outcomes, m.attempts, m.claims, m.transitions,
		m.expiries, m.events, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.begin()
	return m
}

// begin has series begin with 0: the rate of one that begins with 1 does not show its first event.
func (m *Metrics) begin() {
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

func (m *Metrics) called(a domain.Attempt, err error) {
	m.callbacks.WithLabelValues(resultLabel(err == nil)).Observe(a.Duration.Seconds())
	outcome := "error"
	switch {
	case a.StatusCode != 0:
		outcome = strconv.Itoa(a.StatusCode/100) + "xx"
	case errors.Is(err, context.DeadlineExceeded):
		outcome = "timeout"
	}
	m.attempts.WithLabelValues(outcome).Inc()
}

func (m *Metrics) attempted(next domain.JobStatus, receivedAt time.Time) {
	m.outcomes.WithLabelValues(next.String()).Inc()
	if next == domain.Delivered {
		m.endToEnd.Observe(time.Since(receivedAt).Seconds())
	}
}

func (m *Metrics) claimed(n int)                   { m.claims.Add(float64(n)) }
func (m *Metrics) transitioned(s domain.JobStatus) { m.transitions.WithLabelValues(s.String()).Inc() }

func (m *Metrics) expired(next domain.JobStatus) { m.expiries.WithLabelValues(next.String()).Inc() }
