package feedmetrics

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/service/dashboard"
)

// scrape reads what Prometheus would.
func scrape(t *testing.T, c prometheus.Collector) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	srv := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer srv.Close()
	resp, err := http.Get(srv.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(body))
	return string(body)
}

// TestScrape holds the metrics of a feed that has worked, and the dashboard and the alert rules against them.
func TestScrape(t *testing.T) {
	s, err := feed.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "feed.db"))
	require.NoError(t, err)
	defer s.Close()
	_, err = s.CreatePartition(t.Context(), feed.Partition{ID: "p"}, feed.Item{ID: "a"}, feed.Item{ID: "bad"}, feed.Item{ID: "next", Gate: 1})
	require.NoError(t, err)
	w := feed.NewWatcher(s, feed.ProcessorFunc(func(_ context.Context, it feed.Item) (feed.Response, error) {
		if it.ID == "bad" {
			return feed.Response{}, feed.Permanent(errors.New("bad"))
		}
		return feed.Response{Done: true}, nil
	}), feed.Logger(slog.New(slog.DiscardHandler)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	require.Eventually(t, func() bool {
		p, err := s.Partition(t.Context(), "p")
		return err == nil && p.Status == feed.Failed
	}, 30*time.Second, 5*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	body := scrape(t, New(s, w))
	for _, want := range []string{
		`feed_database_up 1`, `feed_items{state="ready"} 0`, `feed_items{state="gated"} 1`, `feed_items{state="passed"} 0`,
		`feed_items{state="failed"} 1`, `feed_blocked_partitions 1`,
		`feed_running_items 0`, `feed_slow_handlers 0`, `feed_leases 0`, `feed_attempts_total{result="ok"} 1`, `feed_attempts_total{result="failed"} 1`,
		`feed_ended_items_total{status="Complete"} 1`, `feed_ended_items_total{status="Failed"} 1`, `feed_gates_total{result="blocked"} 1`,
	} {
		require.Contains(t, body, want+"\n")
	}
	// What Prometheus adds to each sample.
	body = strings.ReplaceAll(body, "feed_leases 0", `feed_leases{instance="x"} 0`)
	body = strings.ReplaceAll(body, "feed_running_items 0", `feed_running_items{instance="x"} 0`)
	exposed, err := dashboard.ParseScrape(body)
	require.NoError(t, err)
	board, err := os.ReadFile("../monitoring/dashboard.json")
	require.NoError(t, err)
	require.NoError(t, exposed.CheckDashboard(board))
	rules, err := os.ReadFile("../monitoring/alerts.yaml")
	require.NoError(t, err)
	require.NoError(t, exposed.CheckRules(rules))
}

// TestCountsAreBounded: however often it is scraped, a slow database counts for a twentieth of the time.
func TestCountsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, took, fail := 0, time.Second, error(nil)
		c := newCollector(func(context.Context) (feed.Backlog, error) {
			n++
			time.Sleep(took)
			return feed.Backlog{Ready: n}, fail
		}, func() feed.Pruned { return feed.Pruned{} })
		counted := func() int {
			b, err := c.counted()
			require.Equal(t, fail, err)
			return b.Ready
		}
		require.Equal(t, 1, counted())
		time.Sleep(19 * time.Second)
		require.Equal(t, 1, counted(), "20 s after a count of 1 s")
		time.Sleep(2 * time.Second)
		took = 0
		require.Equal(t, 2, counted())
		require.Equal(t, 2, counted())
		time.Sleep(5 * time.Second)
		fail = errors.New("down")
		require.Equal(t, 3, counted())
		require.NotContains(t, metricNames(c), "feed_items")
		require.Contains(t, metricNames(c), "feed_database_up")
	})
}

// metricNames are the names of what a collector collects.
func metricNames(c prometheus.Collector) string {
	ch := make(chan prometheus.Metric, 100)
	c.Collect(ch)
	close(ch)
	var names strings.Builder
	for m := range ch {
		names.WriteString(m.Desc().String() + "\n")
	}
	return names.String()
}
