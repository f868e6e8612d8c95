package test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/service/dashboard"
	"github.com/jetpull/jetpull/otelpull"
	"github.com/jetpull/jetpull/partition"
	"github.com/jetpull/jetpull/test/servertest"
)

// The dashboard, the alert rules and the table of docs/metrics.md name metrics that a real scrape has.
func TestDashboardAlertsAndTableAgainstAScrape(t *testing.T) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	require.NoError(t, err)
	meters := otelpull.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)))
	js := natstest.JetStream(t, servertest.RunServer(t).Connect(t))
	natstest.Stream(t, js, "ORDERS", "orders.>")
	natstest.Consumer(t, js, "ORDERS", jetstream.ConsumerConfig{Durable: "work", AckPolicy: jetstream.AckExplicitPolicy})
	sub, err := jetpull.Subscribe(t.Context(), js, "ORDERS", "work")
	require.NoError(t, err)
	defer func() { require.NoError(t, sub.Close(context.Background())) }()
	registration, err := otelpull.Observe(sub, nil, meters, otelpull.WithBacklog(time.Second))
	require.NoError(t, err)
	defer func() { require.NoError(t, registration.Unregister()) }()
	natstest.Stream(t, js, "PARTITIONED", "p.*.*")
	set, err := partition.Open(t.Context(), js, "PARTITIONED", partition.Config{Name: "billing", Partitions: 2, Subject: "p.{partition}.*"})
	require.NoError(t, err)
	setRegistration, err := otelpull.ObserveSet(set, nil, meters)
	require.NoError(t, err)
	defer func() { require.NoError(t, setRegistration.Unregister()) }()
	member(t, set)
	traced, err := otelpull.Middleware(meters)
	require.NoError(t, err)

	for range 4 {
		_, err := js.Publish(t.Context(), "orders.new", nil)
		require.NoError(t, err)
	}
	require.NoError(t, sub.Consume(t.Context(), func(_ context.Context, m *jetpull.Msg) error {
		switch m.Sequence() {
		case 1:
			return jetpull.Terminate("of no use", nil)
		case 2:
			return jetpull.Retry(time.Hour, errors.New("busy"))
		}
		return nil
	}, jetpull.Use(traced), jetpull.StopAfter(3)))
	_, err = sub.Next(t.Context())
	require.NoError(t, err)
	_, err = sub.Next(t.Context(), jetpull.NoWait())
	require.ErrorIs(t, err, jetpull.ErrNoMessages, "so that there is a status")
	require.Eventually(t, func() bool { // acknowledgements are on their way
		info, err := sub.Info(t.Context())
		return err == nil && info.NumAckPending == 2
	}, time.Minute, time.Millisecond)

	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	body := page.Body.String()
	scrape, err := dashboard.ParseScrape(body)
	require.NoError(t, err)
	for file, check := range map[string]func([]byte) error{
		"../../otelpull/monitoring/dashboard.json": scrape.CheckDashboard,
		"../../otelpull/monitoring/alerts.yaml":    scrape.CheckRules,
	} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, check(text), file)
	}
	reference, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(reference), "\n## The library\n")
	names := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(section, -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.Regexp(t, `(?m)^`+name[1]+`[{ ]`, body)
	}
	for _, line := range []string{
		`jetpull_client_attempts_failed_total{.*jetpull_outcome="terminated",messaging_destination_name="ORDERS",messaging_destination_subscription_name="work".*} 1`,
		`jetpull_client_attempts_failed_total{.*jetpull_outcome="retried".*} 1`,
		`jetpull_client_attempts_failed_total{.*jetpull_outcome="dead_lettered".*} 0`,
		`jetpull_consumer_pending{.*messaging_destination_name="ORDERS".*} 0`,
		`jetpull_consumer_ack_pending{.*} 2`,
		`jetpull_partition_owned{messaging_consumer_group_name="billing",messaging_destination_name="PARTITIONED".*} 2`,
		`jetpull_partition_assigned_total{.*} 2`,
		`jetpull_partition_takeovers_total{.*} 0`,
	} {
		require.Regexp(t, `(?m)^`+line, body)
	}
}

// member starts a member of a set, which has all partitions when member returns.
func member(t *testing.T, set *partition.Set) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	assigned, ended := make(chan int), make(chan error, 1)
	go func() {
		ended <- set.Consume(ctx, func(context.Context, *jetpull.Msg) error { return nil }, partition.OnAssign(func(n int, _ string) { assigned <- n }))
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	for range set.Config().Partitions {
		<-assigned
	}
}
