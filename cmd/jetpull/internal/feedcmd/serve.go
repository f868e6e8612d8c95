package feedcmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/feed/feedmetrics"
)

// readyWait is how long the database has to answer for a watcher to be ready.
const readyWait = 2 * time.Second

// serve answers /metrics, /healthz and /readyz on an address until the returned function is called.
func serve(ctx context.Context, address string, s *feed.Store, w *feed.Watcher, log *slog.Logger) (stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w; free the address, or choose another with --metrics", err)
	}
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
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: readyWait}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("feed: metrics", "error", err)
		}
	}()
	log.Info("feed: metrics", "url", "http://"+listener.Addr().String()+"/metrics")
	return func() {
		_ = srv.Close()
		<-done
	}, nil
}
