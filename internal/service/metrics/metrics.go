// Package metrics has the shared parts of the systems' Prometheus metrics.
package metrics

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Set contains the metrics of one process and of its HTTP interface. It is safe for concurrent use.
type Set struct {
	Registry *prometheus.Registry
	buckets  []float64
	requests *prometheus.HistogramVec
	logins   prometheus.Counter
}

// New returns the metrics of a system, whose name is the prefix of their names. All histograms have the same buckets, in seconds.
func New(system string, buckets []float64) *Set {
	s := &Set{Registry: prometheus.NewRegistry(), buckets: buckets}
	s.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.requests = s.Histogram(system+"_http_request_seconds", "Time to respond to a request, by route, method and status.", "route", "method", "status")
	s.logins = s.Counter(system+"_failed_logins_total", "Requests with a wrong token.").WithLabelValues()
	return s
}

// Handler serves the metrics.
func (s *Set) Handler() http.Handler { return promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{}) }

// Counter adds a counter.
func (s *Set) Counter(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(s.Registry).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Histogram adds a histogram.
func (s *Set) Histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return promauto.With(s.Registry).NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: s.buckets}, labels)
}

// Request counts an answered request.
func (s *Set) Request(route, method string, status int, took time.Duration) {
	s.requests.WithLabelValues(route, method, strconv.Itoa(status)).Observe(took.Seconds())
}

// LoginFailed counts a request with a wrong token.
func (s *Set) LoginFailed() { s.logins.Inc() }

// Desc describes a gauge for [Gauges].
func Desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Gauges is a collector of gauges that are computed at each scrape. It calls gauge for each of them.
type Gauges func(gauge func(d *prometheus.Desc, value float64, labels ...string))

// Describe implements [prometheus.Collector]. It sends no descriptions. A [prometheus.CollectorFunc] would compute the gauges to describe them, and a
// start would wait for that.
func (Gauges) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (g Gauges) Collect(c chan<- prometheus.Metric) {
	g(func(d *prometheus.Desc, value float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	})
}

// OneIf returns the value of a boolean gauge, 1 or 0.
func OneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Class returns the class of a status, such as 2xx. The other side chooses the statuses, and each status would be a series of its own.
func Class(code int) string {
	if code < 100 || code > 599 {
		return "other"
	}
	return strconv.Itoa(code/100) + "xx"
}
