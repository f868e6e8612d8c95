package broker

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type toldEvent struct{ Event, Channel, Consumer, Reason string }

// A push consumer that is paused gets no callbacks, also after a restart, until it is
// resumed. The operator's URL is told, even where callbacks may not go.
func TestPauseSurvivesARestart(t *testing.T) {
	url, calls, _ := tallied(t, "")
	var mu sync.Mutex
	var told []toldEvent
	operator := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		var e toldEvent
		assert.NoError(t, json.Unmarshal(body, &e))
		mu.Lock()
		defer mu.Unlock()
		told = append(told, e)
	}))
	defer operator.Close()
	cfg := testConfig(t)
	cfg.Breaker.EventURL = operator.URL
	n := startNode(t, cfg)
	putConsumer(t, n, "k", url, nil)
	putConsumer(t, n, "other", url, nil)
	post := func(what string) {
		t.Helper()
		code, body, _ := call(t, n, "POST", "/channel/ch/consumer/k/"+what, nil, "")
		require.Equal(t, 200, code, body)
	}
	tells := func(want ...toldEvent) {
		t.Helper()
		waitUntil(t, func() bool { mu.Lock(); defer mu.Unlock(); return assert.ObjectsAreEqual(want, told) }, "the operator's URL is not told")
	}
	post("pause")
	paused := toldEvent{"consumer paused", "ch", "k", "operator"}
	tells(paused)
	broadcast(t, n, "a", "x", nil)
	waitState(t, n, "a", "other", "DELIVERED")
	stopNode(t, n)
	n = startNode(t, cfg)
	broadcast(t, n, "b", "x", nil)
	waitState(t, n, "b", "other", "DELIVERED")
	_, body, _ := call(t, n, "GET", "/metrics", nil, "")
	require.True(t, containsLine(body, `broker_consumer_paused{channel="ch",consumer="k",reason="operator"} 1`))
	require.Equal(t, "QUEUED", jobStates(t, n, "a")["k"])
	_, calledTwice := calls.missing([]string{"a", "b"})
	require.Zero(t, calledTwice)
	post("resume")
	waitState(t, n, "a", "k", "DELIVERED")
	waitState(t, n, "b", "k", "DELIVERED")
	tells(paused, toldEvent{"consumer resumed", "ch", "k", ""})
}

// A receiver that fails opens its circuit breaker, which is shown, and closes it when it
// is well again.
func TestBreakerIsShown(t *testing.T) {
	var isWell bool
	var mu sync.Mutex
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if !isWell {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer receiver.Close()
	cfg := testConfig(t)
	cfg.Dispatch.MaxRetry = 200
	cfg.Breaker.FailurePercent, cfg.Breaker.MinCallbacks, cfg.Breaker.Open = 50, 3, 1
	n := startNode(t, cfg)
	putConsumer(t, n, "k", receiver.URL, nil)
	shown := func() string {
		var k struct{ State, Breaker string }
		_, body, _ := call(t, n, "GET", "/channel/ch/consumer/k", nil, "")
		require.NoError(t, json.Unmarshal([]byte(body), &k))
		require.Equal(t, "active", k.State)
		return k.Breaker
	}
	require.Equal(t, "closed", shown())
	broadcast(t, n, "m", "x", nil)
	waitUntil(t, func() bool { return shown() != "closed" }, "the breaker does not open")
	mu.Lock()
	isWell = true
	mu.Unlock()
	waitState(t, n, "m", "k", "DELIVERED")
	waitUntil(t, func() bool { return shown() == "closed" }, "the breaker does not close")
}
