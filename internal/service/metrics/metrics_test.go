package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestSet(t *testing.T) {
	s := New("shop", []float64{0.1, 1})
	s.LoginFailed()
	s.Request("/x", "GET", 204, time.Second)
	s.Counter("shop_sales_total", "Sales.", "kind").WithLabelValues("tea").Add(2)
	s.Histogram("shop_wait_seconds", "Wait.", "kind").WithLabelValues("tea").Observe(0.5)
	open := prometheus.NewDesc("shop_open", "1 while it is open.", []string{"door"}, nil)
	scrapes := 0
	s.Registry.MustRegister(Gauges(func(gauge func(*prometheus.Desc, float64, ...string)) {
		scrapes++
		gauge(open, OneIf(true), "front")
	}))
	require.Zero(t, scrapes, "gauges may ask a server, so a start does not compute them")
	n, err := testutil.GatherAndCount(s.Registry, "shop_failed_logins_total", "shop_http_request_seconds", "shop_sales_total", "shop_wait_seconds",
		"shop_open")
	require.NoError(t, err)
	require.Equal(t, []int{5, 1}, []int{n, scrapes})
}

func TestClass(t *testing.T) {
	for code, want := range map[int]string{99: "other", 100: "1xx", 204: "2xx", 599: "5xx", 600: "other", 0: "other"} {
		require.Equal(t, want, Class(code))
	}
	require.Zero(t, OneIf(false))
}
