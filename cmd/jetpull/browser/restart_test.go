package test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/natsembed/embedtest"
)

// The log of actions, an operation that runs, and the values of charts survive a restart of the console, which creates no consumer for that.
func TestRestart(t *testing.T) {
	t.Parallel()
	env := embedtest.StartWith(t, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, AllowDirect: true},
		jetstream.ConsumerConfig{Durable: "c00"})
	const all = 30
	for i := range all {
		_, err := env.JS.CreateOrUpdateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{Durable: fmt.Sprintf("c%02d", i), AckPolicy: jetstream.AckExplicitPolicy})
		require.NoError(t, err)
	}
	var c *console.Console
	start := func() { c = console.Handler(console.Config{NATS: console.JetStream(env.JS), State: "console-state"}) }
	use := func(method, page string, form url.Values) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, "/"+page, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer := httptest.NewRecorder()
		c.ServeHTTP(answer, r)
		return answer
	}
	eventually := func(page string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			require.Eventually(t, func() bool { return strings.Contains(use(http.MethodGet, page, nil).Body.String(), text) }, waitMost, 1, "%q on %s", text, page)
		}
	}
	paused := func() (n int) {
		stream, err := env.JS.Stream(t.Context(), "ORDERS")
		require.NoError(t, err)
		infos := stream.ListConsumers(t.Context())
		for info := range infos.Info() {
			if info.Paused {
				n++
			}
		}
		require.NoError(t, infos.Err())
		return n
	}
	start()
	eventually("consumers", "30 consumers")
	var operation string
	require.Eventually(t, func() bool { // not before the bucket is read
		answer := use(http.MethodPost, "consumers?q=c", url.Values{"do": {"pause-all"}, "rate": {"5"}, "for": {"1h"}})
		operation = answer.Header().Get("Location")
		return answer.Code == http.StatusSeeOther
	}, waitMost, 1)
	require.Eventually(t, func() bool { return paused() > 3 }, waitMost, 1)
	c.Close()
	before := paused()
	require.Less(t, before, all)
	start()
	defer func() { c.Close() }()
	eventually("log", "Pause all that match", "anybody")
	eventually("operations", "pause consumers")
	eventually(operation, "Ended: 30 objects are done")
	require.Equal(t, all, paused())
	eventually("operations?hours=24", "operations")

	stream, err := env.JS.Stream(t.Context(), "KV_console-state")
	require.NoError(t, err)
	require.Zero(t, stream.CachedInfo().State.Consumers)
	values, err := stream.GetLastMsgForSubject(t.Context(), "$KV.console-state.values.consumers")
	require.NoError(t, err)
	require.NotEmpty(t, values.Data)
}
