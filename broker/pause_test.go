package broker

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

type operatorEvent struct{ Event, Channel, Consumer, Reason string }

// newOperator is an operator's URL, with the events that have arrived.
func newOperator(t *testing.T) (url string, arrived func() []operatorEvent) {
	var mu sync.Mutex
	var received []operatorEvent
	operator := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		var e operatorEvent
		assert.NoError(t, json.Unmarshal(body, &e))
		mu.Lock()
		defer mu.Unlock()
		received = append(received, e)
	}))
	t.Cleanup(operator.Close)
	return operator.URL, func() []operatorEvent { mu.Lock(); defer mu.Unlock(); return slices.Clone(received) }
}

// A paused push consumer gets no callbacks, also after a restart, until it is resumed. The operator's URL is notified, even if
// the address policy forbids callbacks to it.
func TestPauseSurvivesARestart(t *testing.T) {
	url, calls, _ := tallied(t, "")
	operator, arrived := newOperator(t)
	cfg := testConfig(t)
	cfg.Breaker.EventURL = operator
	n := startNode(t, cfg)
	putConsumer(t, n, "k", url, nil)
	putConsumer(t, n, "other", url, nil)
	post := func(what string) {
		t.Helper()
		code, body, _ := call(t, n, "POST", "/channel/ch/consumer/k/"+what, nil, "")
		require.Equal(t, 200, code, body)
	}
	arrive := func(want ...operatorEvent) {
		t.Helper()
		waitUntil(t, func() bool { return assert.ObjectsAreEqual(want, arrived()) }, "the event does not arrive at the operator's URL")
	}
	post("pause")
	paused := operatorEvent{"consumer paused", "ch", "k", "operator"}
	arrive(paused)
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
	arrive(paused, operatorEvent{"consumer resumed", "ch", "k", ""})
}

// A failing receiver opens its circuit breaker, and closes it when it recovers. The dispatching node shows the state. Each is reported once, with
// the reason.
func TestBreakerIsShown(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		operator, arrived := newOperator(t)
		cfg := breakerConfig(testConfig(t))
		cfg.Breaker.EventURL = operator
		breakerIsShown(t, startNode(t, cfg))
		waitUntil(t, func() bool { return len(arrived()) == 2 }, "the events do not arrive")
		require.Equal(t, []operatorEvent{
			{"circuit breaker opened", "ch", "k", "too many callbacks failed, the last one with: answered with status 500"},
			{"circuit breaker closed", "ch", "k", "a callback succeeded"},
		}, arrived())
	})
	t.Run("shared", func(t *testing.T) {
		srv := servertest.RunServer(t)
		a := startNode(t, breakerConfig(externalConfig(t, srv.URL(), 1)))
		breakerIsShown(t, a, startNode(t, breakerConfig(externalConfig(t, srv.URL(), 1))))
	})
}

func breakerConfig(cfg *Config) *Config {
	cfg.Dispatch.MaxRetry = 200
	cfg.Breaker.FailurePercent, cfg.Breaker.MinCallbacks, cfg.Breaker.Open = 50, 3, 300*time.Millisecond
	return cfg
}

func breakerIsShown(t *testing.T, nodes ...*Node) {
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
	putConsumer(t, nodes[0], "k", receiver.URL, nil)
	shows := func(want ...string) {
		t.Helper()
		waitUntil(t, func() bool {
			var states []string
			for _, n := range nodes {
				var k struct{ State, Breaker string }
				_, body, _ := call(t, n, "GET", "/channel/ch/consumer/k", nil, "")
				require.NoError(t, json.Unmarshal([]byte(body), &k))
				require.Equal(t, "active", k.State)
				if k.Breaker != "" {
					states = append(states, k.Breaker)
				}
			}
			return len(states) == 1 && slices.Contains(want, states[0])
		}, "the breaker does not get "+want[0]+" on the one node that makes the callbacks")
	}
	shows("closed")
	broadcast(t, nodes[0], "m", "x", nil)
	shows("open", "half-open")
	mu.Lock()
	isWell = true
	mu.Unlock()
	waitState(t, nodes[0], "m", "k", "DELIVERED")
	shows("closed")
}
