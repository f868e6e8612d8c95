package feedcmd

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/consolecmd"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/feed/feedmetrics"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/httpserve"
)

// readyWait is how long the database has to answer for a watcher to be ready.
const readyWait = 2 * time.Second

const (
	// metricsTime bounds a request with its answer.
	metricsTime = time.Minute
	// metricsConnections is how many connections an address may have: Prometheus and probes need few.
	metricsConnections = 64
)

var errNotReady = httpserve.Refuse(http.StatusServiceUnavailable, "", "the database does not answer")

// runServing runs a watcher, and answers /metrics, /healthz, /readyz and, unless that is off, /console/ on the address of --metrics meanwhile.
func (f *flags) runServing(ctx context.Context, s *feed.Store, w *feed.Watcher, log *slog.Logger) error {
	var pages http.Handler
	if f.console {
		c, err := consolecmd.OfFeed(s, w, f.metrics, f.consoleToken, log)
		if err != nil {
			return err
		}
		defer c.Close()
		pages = c
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(feedmetrics.New(s, w), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	ready := func(_ http.ResponseWriter, r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), readyWait)
		defer cancel()
		if _, err := s.Partitions(ctx, feed.Query{Limit: 1}); err != nil {
			return fmt.Errorf("%w: %w", errNotReady, err)
		}
		return nil
	}
	loopback, _ := service.Loopback(f.metrics) // listening on an address that is none fails
	frame := httpserve.NewFrame(httpserve.System{
		Log: log, Text: true, Unguarded: true, Loopback: loopback, Private: "have the proxy check who may read the metrics",
		Describe: func(err error) *httpserve.Error { return httpserve.Describe(err, nil) },
	}, httpserve.Common(httpserve.Open, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), nil, ready))
	srv, err := httpserve.Listen(ctx, httpserve.Config{
		Address: f.metrics, Flag: "--metrics", Handler: httpserve.Mount(ctx, "/console/", pages, frame), Read: metricsTime, Write: metricsTime,
		PerAddress: metricsConnections, Log: log,
	})
	if err != nil {
		return fmt.Errorf("--metrics: %w", err)
	}
	defer func() {
		if err := srv.Stop(context.WithoutCancel(ctx), readyWait); err != nil {
			log.Warn("feed: metrics", "error", err)
		}
	}()
	log.Info("feed: metrics", "url", "http://"+srv.Addr()+"/metrics")
	return w.Run(ctx)
}
