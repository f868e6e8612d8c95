package broker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/service/dashboard"
)

// Each metric in the dashboard and the alert rules is one that a broker exposes.
func TestDashboardAndAlertsAgainstAScrape(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "bad") {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer receiver.Close()
	cfg := testConfig(t)
	cfg.Dispatch.MaxRetry, cfg.NATS.StoreMax = 1, 1<<30
	cfg.Breaker.FailurePercent, cfg.Breaker.MinCallbacks = 50, 4
	n := startNode(t, cfg)
	putConsumer(t, n, "good", receiver.URL, nil)
	putConsumer(t, n, "bad", receiver.URL+"/bad", nil)
	putConsumer(t, n, "pull", receiver.URL, url.Values{"type": {"pull"}})
	broadcast(t, n, "m", "x", nil)
	waitState(t, n, "m", "good", "DELIVERED")
	waitState(t, n, "m", "bad", "DEAD")
	broadcast(t, n, "m2", "x", nil)
	waitState(t, n, "m2", "good", "DELIVERED")
	waitState(t, n, "m2", "bad", "DEAD")
	putConsumer(t, n, "paused", receiver.URL, nil)
	paused := mustConsumer(t, n, "paused")
	paused.Pause = domain.Pause{Reason: domain.PausedFailing, At: time.Now()}
	_, err := n.store.Directory.Consumers.Save(t.Context(), paused)
	require.NoError(t, err)
	tokens := map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Consumer-Token": "kt"}
	job := claim(t, n, "pull", "?limit=1")[0]
	code, body, _ := call(t, n, "POST", "/channel/ch/consumer/pull/job/"+job.ID, tokens, `{"NextState":"DELIVERED"}`)
	require.Equal(t, 202, code, body)

	code, body, _ = call(t, n, "GET", "/metrics", nil, "")
	require.Equal(t, 200, code)
	scrape, err := dashboard.ParseScrape(body)
	require.NoError(t, err)
	board, err := os.ReadFile("monitoring/dashboard.json")
	require.NoError(t, err)
	require.NoError(t, scrape.CheckDashboard(board))
	rules, err := os.ReadFile("monitoring/alerts.yaml")
	require.NoError(t, err)
	require.NoError(t, scrape.CheckRules(rules))
	for _, want := range []string{
		`broker_attempts_total{outcome="2xx"} 2`, `broker_attempts_total{outcome="4xx"} 4`, `dead_job_count{channel="ch",consumer="bad"} 2`,
		`broker_backlog{channel="ch",consumer="pull"} 1`, "broker_store_limit_bytes 1.073741824e+09", "broker_ready 1", "queued_job_count 1",
		`broker_breaker_open{channel="ch",consumer="bad"} 1`, `broker_consumer_paused{channel="ch",consumer="paused",reason="failing"} 1`,
	} {
		require.Contains(t, body, want)
	}
	require.NotContains(t, body, `broker_backlog{channel="ch",consumer="good"}`)
	size, err := strconv.ParseFloat(regexp.MustCompile(`(?m)^broker_store_bytes (.*)$`).FindStringSubmatch(body)[1], 64)
	require.NoError(t, err)
	require.Positive(t, size)
}

// However many consumers have a backlog, a scrape has a bounded number of series: those of the oldest jobs.
func TestSeriesOfBacklogsAreBounded(t *testing.T) {
	n := startNode(t, testConfig(t))
	const consumers = 1010
	for i := range consumers {
		_, err := n.store.Directory.Consumers.Save(t.Context(), domain.Consumer{
			Stakeholder: domain.Stakeholder{ID: fmt.Sprint(i), Name: "k", Token: "t"}, Channel: "ch", CallbackURL: "http://h/", Type: domain.Pull,
		})
		require.NoError(t, err)
		if i == 9 {
			broadcast(t, n, "first", "x", nil)
		}
	}
	broadcast(t, n, "last", "x", nil)
	_, body, _ := call(t, n, "GET", "/metrics", nil, "")
	require.Equal(t, 1000, strings.Count(body, "\nbroker_backlog{"))
	for i := range 10 {
		require.Contains(t, body, fmt.Sprintf("broker_backlog{channel=\"ch\",consumer=\"%d\"} 2\n", i), "its job is the oldest")
	}
}
