package broker

import (
	"cmp"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// badReceivers are receivers of callbacks that misbehave. Each counts its calls. Those that hang end with stop.
func badReceivers(stop <-chan struct{}) map[string]http.HandlerFunc {
	answer := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
		}
	}
	return map[string]http.HandlerFunc{
		"error":    answer(http.StatusInternalServerError),
		"gone":     answer(http.StatusGone),
		"redirect": answer(http.StatusFound),
		"hang": func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-stop:
			}
		},
		"reset": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			}
		},
		"half an answer": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 200 O")
				_ = conn.Close()
			}
		},
		"gigabyte": func(w http.ResponseWriter, _ *http.Request) {
			block := make([]byte, 1<<20)
			for range 1 << 10 {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		},
		"drip": func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := w.Write([]byte("x")); err != nil {
					return
				}
				_ = http.NewResponseController(w).Flush()
				select {
				case <-time.After(20 * time.Millisecond):
				case <-r.Context().Done():
					return
				case <-stop:
					return
				}
			}
		},
	}
}

// Whatever a receiver does, an accepted message is delivered or dead after the configured number of calls, and other receivers
// are not affected.
func TestReceiversThatMisbehave(t *testing.T) {
	stop := make(chan struct{})
	cfg := testConfig(t)
	cfg.Connection.Timeout = time.Second
	cfg.Dispatch.MaxRetry = 1
	n := startNode(t, cfg)
	var elsewhere atomic.Int32
	calls := map[string]*atomic.Int32{}
	receivers := badReceivers(stop)
	receivers["good"] = func(http.ResponseWriter, *http.Request) {}
	names := slices.Sorted(maps.Keys(receivers))
	slices.SortStableFunc(names, func(a, b string) int { // the good receiver's job is dispatched first
		return cmp.Compare(strings.TrimPrefix(a, "good"), strings.TrimPrefix(b, "good"))
	})
	for _, name := range names {
		handle := receivers[name]
		count := &atomic.Int32{}
		calls[name] = count
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/hook" {
				elsewhere.Add(1)
				return
			}
			count.Add(1)
			handle(w, r)
		}))
		t.Cleanup(srv.Close)
		putConsumer(t, n, name, srv.URL+"/hook", nil)
	}
	t.Cleanup(func() { close(stop) }) // before the servers are closed, which wait for their handlers
	broadcast(t, n, "m", "x", nil)
	for name := range receivers {
		want, tries := "DEAD", int32(2)
		switch name {
		case "good", "gigabyte": // the beginning of a long answer is enough
			want, tries = "DELIVERED", 1
		}
		waitState(t, n, "m", name, want)
		require.Equal(t, tries, calls[name].Load(), name)
	}
	require.Zero(t, elsewhere.Load(), "a redirect is not followed")
	ended := func(consumer string) time.Time {
		m, err := n.store.Messages.Message(t.Context(), "ch", "m")
		require.NoError(t, err)
		j, err := n.store.Jobs.Job(t.Context(), domain.JobID{Seq: m.Seq, Consumer: mustConsumer(t, n, consumer).Number})
		require.NoError(t, err)
		return j.ChangedAt
	}
	require.True(t, ended("good").Before(ended("hang")), "one that hangs holds the others up")
}
