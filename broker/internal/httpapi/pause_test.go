package httpapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type consumerState struct {
	State, PausedBy, Name string
	PausedAt              time.Time
}

func (s *site) consumerState(a answer) (state consumerState) {
	s.t.Helper()
	s.json(a, &state)
	return state
}

// Workers get no jobs of a paused consumer, and can complete the jobs that they hold. An update of the consumer does not resume
// it.
func TestPausedConsumer(t *testing.T) {
	s := newSite(t, nil)
	const path = "/channel/ch/consumer/pull"
	require.Equal(t, consumerState{State: "active", Name: "Puller"}, s.consumerState(s.expect(200, "", "GET", path, nil, "")))
	s.broadcast("held", "x", nil)
	held := s.work("POST", "claim")
	require.Len(t, held, 1)

	paused := s.expect(200, "", "POST", path+"/pause", nil, "")
	state := s.consumerState(paused)
	require.Equal(t, "paused", state.State)
	require.Equal(t, "operator", state.PausedBy)
	require.NotZero(t, state.PausedAt)
	require.Equal(t, state, s.consumerState(s.expect(200, "", "POST", path+"/pause", nil, "")), "it is already")
	for range 2 { // nodes alternate
		require.Eventually(t, func() bool { s.turn.Add(1); return s.consumerState(s.do("GET", path, nil, "")).State == "paused" }, 10*time.Second,
			time.Millisecond)
	}
	require.Contains(t, s.expect(200, "", "GET", "/consumers", nil, "").body, `"ConsumerID":"pull","Type":"pull","State":"paused"`)
	modified := s.expect(200, "", "GET", path, nil, "").header.Get("Last-Modified")
	require.Equal(t, paused.header.Get("Last-Modified"), modified)
	changed := s.expect(200, "", "PUT", path, with(formType, header{"If-Unmodified-Since": modified}),
		"name=other&token=kt&type=pull&callbackUrl=http://127.0.0.1:9/")
	state.Name = "other"
	require.Equal(t, state, s.consumerState(changed))

	s.broadcast("waits", "x", nil)
	s.expect(202, "", "POST", job+held[0].ID, jobTokens, `{"NextState":"DELIVERED"}`)
	for range 2 {
		require.Eventually(t, func() bool { return len(s.work("GET", "queued-jobs")) == 0 }, 10*time.Second, time.Millisecond)
		require.Empty(t, s.work("POST", "claim"))
	}
	require.Contains(t, s.expect(200, "", "GET", "/channel/ch/message/waits", nil, "").body, `"ListenerName":"other","Status":"QUEUED"`)

	waiting := make(chan []workItem, 1)
	go func() { waiting <- s.work("POST", "claim?wait=20s") }()
	state = s.consumerState(s.expect(200, "", "POST", path+"/resume", nil, ""))
	require.Equal(t, consumerState{State: "active", Name: "other"}, state)
	require.Len(t, <-waiting, 1, "a waiting worker gets an answer")
	for _, what := range []string{"/pause", "/resume"} {
		s.expect(404, "Request resource not found", "POST", "/channel/ch/consumer/none"+what, nil, "")
		s.expect(404, "Request resource not found", "POST", "/channel/none/consumer/pull"+what, nil, "")
	}
}
