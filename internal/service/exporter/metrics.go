package exporter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

const (
	// scrapeTimeout limits a scrape. It is below Prometheus's default timeout of 10 s.
	scrapeTimeout = 9 * time.Second
	// asked is the maximum number of consumers to ask at the same time.
	asked = 64
)

var (
	up          = desc("up", "1 if the consumer's leader has answered. If it has not, this is 0, and the consumer has no other metric.")
	pending     = desc("pending", "Messages that the consumer has not delivered yet.")
	ackPending  = desc("ack_pending", "Messages that are delivered and not acknowledged.")
	redelivered = desc("redelivered", "Messages that are not acknowledged and were delivered more than once.")
	waiting     = desc("waiting_pulls", "Pulls that wait for messages.")
	deliveries  = desc("deliveries_total", "Deliveries since the consumer was created, redeliveries included.")
	oldest      = desc("oldest_unacknowledged_seconds", "Age of the oldest message that is not acknowledged; 0: there is none. With several "+
		"filters it may be that of an older message of another subject. It is left out if the stream has not answered.")
)

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("jetpull_consumer_"+name, help, []string{"stream", "consumer"}, nil)
}

func (c Config) metrics(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), scrapeTimeout)
	defer cancel()
	found, err := c.collect(ctx)
	if err != nil {
		httpserve.Describe(unavailable(err), nil).Write(w, true)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.CollectorFunc(func(to chan<- prometheus.Metric) {
		for _, m := range found {
			to <- m
		}
	}))
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

func (c Config) collect(ctx context.Context) ([]prometheus.Metric, error) {
	var found []prometheus.Metric
	var mu sync.Mutex
	var asking sync.WaitGroup
	slots := make(chan struct{}, asked)
	defer asking.Wait()
	streams := c.JS.ListStreams(ctx)
	for stream := range streams.Info() {
		if stream.State.Consumers == 0 {
			continue
		}
		handle, err := c.JS.Stream(ctx, stream.Config.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue // it was deleted after it was listed
		}
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", stream.Config.Name, err)
		}
		names := handle.ConsumerNames(ctx)
		for name := range names.Name() {
			slots <- struct{}{}
			asking.Go(func() {
				defer func() { <-slots }()
				one := c.of(ctx, stream.Config.Name, name)
				mu.Lock()
				defer mu.Unlock()
				found = append(found, one...)
			})
		}
		if err := names.Err(); err != nil {
			return nil, fmt.Errorf("consumers of stream %s: %w", stream.Config.Name, err)
		}
	}
	if err := streams.Err(); err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	asking.Wait()
	return found, nil
}

func (c Config) of(ctx context.Context, stream, consumer string) (all []prometheus.Metric) {
	add := func(d *prometheus.Desc, kind prometheus.ValueType, value float64) {
		all = append(all, prometheus.MustNewConstMetric(d, kind, value, stream, consumer))
	}
	info, err := c.info(ctx, stream, consumer)
	if e, ok := errors.AsType[*httpserve.Error](err); ok {
		if e.Status == http.StatusServiceUnavailable { // another status means that it is gone, or has no pulls
			add(up, prometheus.GaugeValue, 0)
		}
		return all
	}
	for d, value := range map[*prometheus.Desc]int{
		up: 1, pending: int(info.NumPending), ackPending: info.NumAckPending, redelivered: info.NumRedelivered, waiting: info.NumWaiting,
	} {
		add(d, prometheus.GaugeValue, float64(value))
	}
	add(deliveries, prometheus.CounterValue, float64(info.Delivered.Consumer))
	var at time.Time
	if info.NumPending > 0 || info.NumAckPending > 0 {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if at, err = jsstream.StoredAfter(ctx, c.JS, info, info.AckFloor.Stream); err != nil {
			return all
		}
	}
	age := 0.0
	if !at.IsZero() {
		age = max(0, time.Since(at).Seconds())
	}
	add(oldest, prometheus.GaugeValue, age)
	return all
}
