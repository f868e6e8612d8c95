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

// serve answers /metrics, /healthz and /readyz on an address until the returned function is called.
func serve(ctx context.Context, address string, s *feed.Store, w *feed.Watcher, log *slog.Logger) (stop func(), err error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(feedmetrics.New(s, w), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyWait)
		defer cancel()
		if _, err := s.Partitions(ctx, feed.Query{Limit: 1}); err != nil {
			log.Warn("feed: not ready", "error", err)
			http.Error(w, "the database does not answer", http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	srv, err := httpserve.Listen(ctx, httpserve.Config{
		Address: address, Flag: "--metrics", Handler: localOnly(address, mux), Read: metricsTime, Write: metricsTime, PerAddress: metricsConnections, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	log.Info("feed: metrics", "url", "http://"+srv.Addr()+"/metrics")
	return func() {
		if err := srv.Stop(context.WithoutCancel(ctx), readyWait); err != nil {
			log.Warn("feed: metrics", "error", err)
		}
	}, nil
}

// localOnly has a listener on loopback go by local names only: a page of another site that has led a name of its own to this machine could read
// the answers otherwise (DNS rebinding). An address that is none is what listening on it fails for.
func localOnly(address string, h http.Handler) http.Handler {
	if loopback, err := service.Loopback(address); err != nil || !loopback {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !httpserve.LocalName(r.Host) {
			http.Error(w, fmt.Sprintf("a listener on loopback does not go by the name %q: use localhost or 127.0.0.1", r.Host), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
