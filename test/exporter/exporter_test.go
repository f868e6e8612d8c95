// Package exporter tests the exporter of consumers on servers.
package exporter

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/service/exporter"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/test/servertest"
)

// export serves an exporter, which tests ask with a token.
func export(t *testing.T, js jetstream.JetStream) (ask func(path, token string) (status int, body string)) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	server := httptest.NewServer(exporter.Handler(exporter.Config{
		JS: js, Log: log, Valid: func(token string) bool { return token == "secret" }, Logins: httpserve.NewLogins(0, log, func() {}),
	}))
	t.Cleanup(server.Close)
	return func(path, token string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(body)
	}
}

func connect(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

// backlog stores 25 messages in the stream S, of which the consumer c delivers 5, and 1 of them twice.
func backlog(t *testing.T, js jetstream.JetStream, replicas int) {
	t.Helper()
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}, Replicas: replicas})
	require.NoError(t, err)
	for range 25 {
		_, err := js.Publish(t.Context(), "s.a", nil)
		require.NoError(t, err)
	}
	c, err := js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "c", AckWait: time.Hour})
	require.NoError(t, err)
	fetch := func(n int) (all []jetstream.Msg) {
		for len(all) < n {
			batch, err := c.Fetch(n-len(all), jetstream.FetchMaxWait(time.Minute))
			require.NoError(t, err)
			for m := range batch.Messages() {
				all = append(all, m)
			}
			// Of a cluster, the server of this client may not have heard of the consumer yet.
			if !errors.Is(batch.Error(), nats.ErrNoResponders) {
				require.NoError(t, batch.Error())
			}
		}
		return all
	}
	_, err = js.Conn().RequestWithContext(t.Context(), fetch(5)[0].Reply(), []byte("-NAK")) // the server answers when it is done
	require.NoError(t, err)
	require.Len(t, fetch(1), 1)
}

// A consumer's load is what it has not delivered and what is not acknowledged.
func TestScale(t *testing.T) {
	srv := servertest.RunServer(t)
	js := connect(t, srv.Connect(t))
	backlog(t, js, 1)
	ask := export(t, js)
	for query, processes := range map[string]int{
		"per=1": 25, "per=5": 5, "per=24": 2, "per=25": 1, "per=1000": 1, "per=1&max=3": 3, "per=12&max=100": 3,
	} {
		status, body := ask("/v1/scale/S/c?"+query, "secret")
		require.Equal(t, http.StatusOK, status, body)
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &got))
		require.EqualValues(t, processes, got["processes"], "%s: %s", query, body)
		require.EqualValues(t, 25, got["load"], "messages in the hands of a process are work")
		require.EqualValues(t, 20, got["pending"])
		require.EqualValues(t, 5, got["ack_pending"])
	}
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/v1/scale/S/none?per=1":                              {404, `stream \"S\" has no consumer \"none\"`},
		"/v1/scale/NONE/c?per=1":                              {404, `there is no stream \"NONE\"`},
		"/v1/scale/S/c":                                       {400, `per \"\": give the number of messages`},
		"/v1/scale/S/c?per=0":                                 {400, `per \"0\"`},
		"/v1/scale/S/c?per=x":                                 {400, `per \"x\"`},
		"/v1/scale/S/c?per=1&max=-1":                          {400, `max \"-1\"`},
		"/v1/scale/S/c?per=1&min=1":                           {400, `\"min\"`},
		"/v1/scale/S/a*b?per=1":                               {400, `a*b`},
		"/v1/scale/S/" + strings.Repeat("x", 5000) + "?per=1": {400, "5000 bytes"},
		"/v1/scale/S":                                         {404, "no such route"},
	} {
		status, body := ask(path, "secret")
		require.Equal(t, want.status, status, "%s: %s", path, body)
		require.Contains(t, body, want.text, path)
	}
	require.True(t, js.Conn().IsConnected())
	for _, path := range []string{"/v1/scale/S/c?per=1", "/v1/scale/S/none?per=1", "/metrics"} {
		status, body := ask(path, "wrong")
		require.Equal(t, http.StatusUnauthorized, status, path)
		require.NotContains(t, body, "load")
	}

	// An empty consumer needs no process, and a server that is away is no empty consumer.
	require.NoError(t, js.DeleteConsumer(t.Context(), "S", "c"))
	_, err := js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "c", DeliverPolicy: jetstream.DeliverNewPolicy})
	require.NoError(t, err)
	_, body := ask("/v1/scale/S/c?per=1", "secret")
	require.Contains(t, body, `"processes":0`)
	srv.Stop()
	for _, path := range []string{"/v1/scale/S/c?per=1&max=7", "/metrics", "/readyz"} {
		status, body := ask(path, "secret")
		require.Equal(t, http.StatusServiceUnavailable, status, body)
		require.NotContains(t, body, "processes")
	}
}

// The server that has a consumer's only replica, and its leader, is away: nobody knows the load.
func TestScaleWithoutALeader(t *testing.T) {
	c := servertest.RunCluster(t)
	js := connect(t, c.Connect(t, nats.MaxReconnects(-1)))
	backlog(t, js, 1)
	leader := c.ConsumerLeader("S", "c")
	c.StopServer(leader)
	ask := export(t, js)
	for range 3 {
		status, body := ask("/v1/scale/S/c?per=1&max=7", "secret")
		require.Equal(t, http.StatusServiceUnavailable, status, body)
		require.NotContains(t, body, "processes")
		t.Log(body)
	}
	c.StartServer(t, leader)
	require.Eventually(t, func() bool {
		status, body := ask("/v1/scale/S/c?per=1&max=7", "secret")
		return status == http.StatusOK && strings.Contains(body, `"processes":7`)
	}, time.Minute, 10*time.Millisecond)
}

var sample = regexp.MustCompile(`(?m)^(jetpull_consumer_\w+)\{consumer="(\w+)",stream="S"\} (\S+)$`)

// Each consumer has its metrics. One that cannot be asked has none but up, which is 0.
func TestMetrics(t *testing.T) {
	srv := servertest.RunServer(t)
	js := connect(t, srv.Connect(t))
	backlog(t, js, 1)
	_, err := js.CreateConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "idle", DeliverPolicy: jetstream.DeliverNewPolicy})
	require.NoError(t, err)
	read := func(js jetstream.JetStream) map[string]float64 {
		status, body := export(t, js)("/metrics", "secret")
		require.Equal(t, http.StatusOK, status, body)
		all := map[string]float64{}
		for _, m := range sample.FindAllStringSubmatch(body, -1) {
			value, err := strconv.ParseFloat(m[3], 64)
			require.NoError(t, err)
			all[m[2]+" "+strings.TrimPrefix(m[1], "jetpull_consumer_")] = value
		}
		return all
	}
	got := read(js)
	require.Positive(t, got["c oldest_unacknowledged_seconds"])
	delete(got, "c oldest_unacknowledged_seconds")
	require.Equal(t, map[string]float64{
		"c up": 1, "c pending": 20, "c ack_pending": 5, "c redelivered": 1, "c waiting_pulls": 0, "c deliveries_total": 6,
		"idle up": 1, "idle pending": 0, "idle ack_pending": 0, "idle redelivered": 0, "idle waiting_pulls": 0, "idle deliveries_total": 0,
		"idle oldest_unacknowledged_seconds": 0,
	}, got)

	denied := servertest.RunServer(t, servertest.WithConfig(`
		authorization { users: [
			{user: all, password: p}
			{user: some, password: p, permissions: {publish: {allow: ">", deny: "$JS.API.CONSUMER.INFO.S.c"}}}
		] }`))
	login := func(user string) jetstream.JetStream { return connect(t, denied.Connect(t, nats.UserInfo(user, "p"))) }
	backlog(t, login("all"), 1)
	require.Equal(t, map[string]float64{"c up": 0}, read(login("some")))
}
