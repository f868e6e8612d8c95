package broker

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

type attempt struct {
	Attempt              int
	StartedAt            time.Time
	Duration             float64
	StatusCode           int
	Error                string
	ResponseHeaders      map[string]string
	ResponseBody         string
	ResponseBodyEncoding string
}

// attemptsAt reads the attempts at a job of a message, and their number beside the message.
func attemptsAt(t testing.TB, n *Node, id, consumer string) (list []attempt, count int) {
	t.Helper()
	code, body, _ := call(t, n, "GET", "/channel/ch/message/"+id, nil, "")
	require.Equal(t, 200, code, body)
	var m struct {
		Jobs []struct {
			ListenerName, AttemptsURL string
			Attempts                  *int
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &m))
	for _, j := range m.Jobs {
		if j.ListenerName != consumer {
			continue
		}
		code, body, _ = call(t, n, "GET", j.AttemptsURL, nil, "")
		require.Equal(t, 200, code, body)
		var answer struct{ Result []attempt }
		require.NoError(t, json.Unmarshal([]byte(body), &answer))
		return answer.Result, *j.Attempts
	}
	require.Fail(t, "no job", body)
	return nil, 0
}

func numbers(list []attempt) (numbers []int) {
	for _, a := range list {
		numbers = append(numbers, a.Attempt)
	}
	return numbers
}

// The answers to each callback can be read until the message is pruned, without secrets and also after a restart.
func TestAttempts(t *testing.T) {
	var calls atomic.Int32
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Seen", "token "+r.Header.Get("X-Broker-Consumer-Token")+", "+r.Header.Get("X-Api-Key"))
		w.Header().Set("Set-Cookie", "id=42")
		w.Header().Add("X-Two", "a")
		w.Header().Add("X-Two", "b")
		switch calls.Add(1) {
		case 1:
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, strings.Repeat("x", 4095)+"very-secret-token")
		case 2:
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "\xff")
		case 3:
			panic(http.ErrAbortHandler)
		default:
			_, _ = io.WriteString(w, "taken")
		}
	}))
	defer receiver.Close()
	cfg := testConfig(t)
	n := startNode(t, cfg)
	putConsumer(t, n, "k", receiver.URL, url.Values{"token": {"very-secret-token"}, "headers": {`{"X-Api-Key":"very-secret-token-too"}`}})
	begin := time.Now()
	broadcast(t, n, "m", "x", nil)
	waitState(t, n, "m", "k", "DELIVERED")
	broadcast(t, n, "first", "x", nil)
	waitState(t, n, "first", "k", "DELIVERED")
	check := func(n *Node) {
		t.Helper()
		list, count := attemptsAt(t, n, "m", "k")
		require.Equal(t, 4, count)
		require.Equal(t, []int{4, 3, 2, 1}, numbers(list))
		require.Equal(t, []int{200, 0, 502, 418}, []int{list[0].StatusCode, list[1].StatusCode, list[2].StatusCode, list[3].StatusCode})
		require.Equal(t, "taken", list[0].ResponseBody)
		require.Empty(t, list[0].Error)
		require.Contains(t, list[1].Error, "EOF")
		require.Equal(t, "answered with status 502", list[2].Error)
		require.Equal(t, []string{"/w==", "base64"}, []string{list[2].ResponseBody, list[2].ResponseBodyEncoding})
		require.Equal(t, strings.Repeat("x", 4095), strings.TrimRight(list[3].ResponseBody, "…\ufffd"),
			"the first 4 KiB, without the beginning of the token")
		require.Equal(t, "token …, …", list[3].ResponseHeaders["X-Seen"])
		require.Equal(t, "…", list[3].ResponseHeaders["Set-Cookie"])
		require.Equal(t, "a, b", list[3].ResponseHeaders["X-Two"])
		for i, a := range list {
			require.Positive(t, a.Duration)
			require.True(t, a.StartedAt.After(begin.Add(-time.Millisecond)) && a.StartedAt.Before(time.Now()), i)
		}
		list, count = attemptsAt(t, n, "first", "k")
		require.Equal(t, 1, count)
		require.Len(t, list, 1)
		require.Equal(t, attempt{
			Attempt: 1, StartedAt: list[0].StartedAt, Duration: list[0].Duration, StatusCode: 200,
			ResponseHeaders: map[string]string{},
		}, list[0])
		require.Positive(t, list[0].Duration)
	}
	check(n)
	stopNode(t, n)
	again := startNode(t, cfg)
	check(again)
	stored := func() uint64 {
		js, err := again.jetStream()
		require.NoError(t, err)
		stream, err := js.Stream(t.Context(), "broker_attempts")
		require.NoError(t, err)
		return stream.CachedInfo().State.Msgs
	}
	require.EqualValues(t, 4, stored(), "a first success is in the record of its job")
	pruned, err := again.broker.Pruner.PruneFinished(t.Context(), time.Now().Add(30*24*time.Hour))
	require.NoError(t, err)
	require.Equal(t, 2, pruned)
	require.Zero(t, stored())
}

// The last 100 attempts are listed. The history continues when a dead job is queued again, and ends when its consumer is deleted.
func TestManyAttempts(t *testing.T) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	defer receiver.Close()
	cfg := testConfig(t)
	cfg.Dispatch.MaxRetry, cfg.Dispatch.Backoff = 59, domain.Backoff{0}
	n := startNode(t, cfg)
	putConsumer(t, n, "k", receiver.URL, nil)
	broadcast(t, n, "m", "x", nil)
	waitState(t, n, "m", "k", "DEAD")
	code, body, _ := call(t, n, "POST", "/channel/ch/consumer/k/dlq", map[string]string{"Content-Type": "application/x-www-form-urlencoded"},
		"requeue=kt")
	require.Equal(t, 202, code, body)
	waitUntil(t, func() bool { _, count := attemptsAt(t, n, "m", "k"); return count == 120 }, "not all attempts are in the history")
	list, _ := attemptsAt(t, n, "m", "k")
	require.Len(t, list, 100)
	require.Equal(t, []int{120, 21}, []int{list[0].Attempt, list[99].Attempt})

	code, body, _ = call(t, n, "GET", "/channel/ch/consumer/k/job/"+domain.JobID{Seq: 1, Consumer: 1 << 30}.String()+"/attempts", nil, "")
	require.Equal(t, 404, code, body)
	c := mustConsumer(t, n, "k")
	require.NoError(t, n.store.Directory.Consumers.Delete(t.Context(), c))
	_, err := n.store.Jobs.AttemptAt(t.Context(), domain.JobID{Seq: 1, Consumer: c.Number}, 120)
	require.ErrorIs(t, err, domain.ErrNotFound, fmt.Sprint(c.Number))
}

// A process that is killed between an attempt and its record makes the callback again. If that one succeeds, the history shows a
// success, and not a failure that was never recorded.
func TestFirstSuccessAfterAnAttemptWithoutRecord(t *testing.T) {
	receiver := newReplayReceiver(t)
	n := startNode(t, testConfig(t))
	putConsumer(t, n, "k", receiver.URL, nil)
	code, body, _ := call(t, n, "POST", "/channel/ch/consumer/k/pause", nil, "")
	require.Equal(t, 200, code, body)
	broadcast(t, n, "m", "x", nil)
	id := domain.JobID{Seq: 1, Consumer: mustConsumer(t, n, "k").Number}
	require.NoError(t, n.store.Jobs.KeepAttempt(t.Context(), id, domain.Attempt{Number: 1, StatusCode: 500, Error: "answered with status 500"}))
	code, body, _ = call(t, n, "POST", "/channel/ch/consumer/k/resume", nil, "")
	require.Equal(t, 200, code, body)
	for want := 1; want <= 2; want++ {
		waitState(t, n, "m", "k", "DELIVERED")
		list, count := attemptsAt(t, n, "m", "k")
		require.Equal(t, want, count)
		require.Len(t, list, want)
		for _, a := range list {
			require.Equal(t, 200, a.StatusCode, a)
		}
		if want == 1 {
			location := startReplay(t, n, "{}")
			waitUntil(t, func() bool { return replayOf(t, n, location).State == "DONE" }, "the replay does not end")
		}
	}
}
