package feed

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// TestBacklog counts items in each state, also those that another program wrote.
func TestBacklog(t *testing.T) {
	t.Parallel()
	onEvery(t, func(t *testing.T, s *Store, _ string) {
		b, err := s.Backlog(t.Context())
		require.NoError(t, err)
		require.Zero(t, b)
		later := time.Now().Add(time.Hour)
		create(t, s, Partition{ID: "p"}, Item{ID: "a"}, Item{ID: "b", NotBefore: later}, Item{ID: "c", Gate: 1}, Item{ID: "d", Gate: 2, NotBefore: later},
			Item{ID: "e"})
		create(t, s, Partition{ID: "q"}, Item{ID: "a"})
		create(t, s, Partition{ID: "r", Gate: 2})
		require.NoError(t, s.sql.DB.Exec("INSERT INTO items (partition_id, id, gate, status, data, version) VALUES ('r', 'foreign', 1, 'Available', "+
			"NULL, 1)").Error)
		require.NoError(t, s.sql.DB.Exec("INSERT INTO items (partition_id, id, gate, status, data, version) VALUES ('q', 'foreign', 0, 'Available', "+
			"NULL, 1)").Error)
		require.NoError(t, s.sql.DB.Exec("UPDATE items SET status = 'Failed', version = version + 1 WHERE id = 'e'").Error)
		require.NoError(t, s.sql.DB.Exec("UPDATE items SET status = 'Complete', version = version + 1 WHERE partition_id = 'q' AND id = 'a'").Error)
		eventually(t, "an item has an age", func() bool {
			b, err = s.Backlog(t.Context())
			return err == nil && b.Oldest > 0
		})
		require.Less(t, b.Oldest, time.Hour)
		b.Oldest = 0
		passed, err := s.Items(t.Context(), Query{Partition: "r", Gate: new(1), Status: Available})
		require.NoError(t, err)
		require.Len(t, passed, 1, "what is below the gate is listed")
		require.Equal(t, 1, counts(t, s, "r")[1].Available)
		require.Equal(t, Backlog{Ready: 2, Delayed: 1, Gated: 2, Passed: 1, Failed: 1, BlockedPartitions: 1}, b)
	})
}

// TestStats has each count grow by what it counts.
func TestStats(t *testing.T) {
	t.Parallel()
	s := openStore(t, backends[0].fresh(t))
	create(t, s, Partition{ID: "p"}, Item{ID: "a"}, Item{ID: "b"}, Item{ID: "c", Gate: 1}, Item{ID: "foreign", Gate: 2}, Item{ID: "fails", Gate: 3})
	within := make(chan struct{})
	w := NewWatcher(s, ProcessorFunc(func(_ context.Context, it Item) (Response, error) {
		switch {
		case it.ID == "fails", it.ID == "b" && it.Attempt == 1:
			return Response{}, RetryAfter(0, errors.New("fails"))
		case it.ID == "c":
			within <- struct{}{}
			<-within
		case it.ID == "foreign" && string(it.Data) == "":
			return doneUnless(s.sql.DB.Exec("UPDATE items SET data = 'changed', version = version + 1 WHERE id = 'foreign'").Error)
		}
		return done()
	}), MaxRetries(1), Poll(5*time.Millisecond, 50*time.Millisecond))
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(ctx) }()
	<-within
	eventually(t, "one runs", func() bool { return w.Stats().Running == 1 })
	require.Equal(t, 1, w.Stats().Leases)
	require.EqualValues(t, 1, w.Stats().GatesPassed)
	within <- struct{}{}
	awaitPartition(t, s, "p", Failed)
	cancel()
	require.NoError(t, <-stopped)
	got := w.Stats()
	require.Positive(t, got.HandlerTime)
	require.Positive(t, got.LeasesTaken)
	got.HandlerTime, got.LeasesTaken = 0, 0
	require.Equal(t, Stats{Attempts: 8, FailedAttempts: 3, Completed: 4, Failed: 1, Conflicts: 1, GatesPassed: 3, GatesBlocked: 1}, got)
}

func doneUnless(err error) (Response, error) { return Response{Done: true}, err }

// TestTraces: an attempt is a span with what it was about, and the handler behind HTTP gets its parent.
func TestTraces(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	parents := make(chan string, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parents <- r.Header.Get("Traceparent")
		if r.Header.Get(HeaderAttempt) == "1" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		_, _ = w.Write([]byte(`{"done":true}`))
	}))
	t.Cleanup(srv.Close)
	s := openStore(t, backends[0].fresh(t))
	create(t, s, Partition{ID: "p", Sealed: true}, Item{ID: "a"})
	p, err := NewHTTPProcessor(srv.URL)
	require.NoError(t, err)
	w := startWatcher(t, s, p, AutoClose(), Tracer(provider))
	awaitPartition(t, s, "p", Complete)
	require.NoError(t, w.stop(t))
	ended := spans.Ended()
	require.Len(t, ended, 2)
	for i, span := range ended {
		require.Equal(t, "process", span.Name())
		for _, want := range []attribute.KeyValue{
			attribute.String("feed.partition", "p"), attribute.String("feed.item", "a"), attribute.Int("feed.gate", 0), attribute.Int("feed.attempt", i+1),
		} {
			require.Contains(t, span.Attributes(), want)
		}
		require.Contains(t, <-parents, span.SpanContext().SpanID().String())
	}
	require.Equal(t, codes.Error, ended[0].Status().Code)
	require.Equal(t, codes.Unset, ended[1].Status().Code)
	require.Contains(t, ended[1].Attributes(), attribute.Bool("feed.done", true))
}

// TestTraceOfAPanic: the span of an attempt ends also where the processor panics.
func TestTraceOfAPanic(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	h := handler{
		config:    newConfig([]WatcherOption{Tracer(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))}),
		processor: ProcessorFunc(func(context.Context, Item) (Response, error) { panic("boom") }),
	}
	_, err := h.Process(t.Context(), &sqlstore.Item{ID: "a"})
	require.ErrorContains(t, err, "boom")
	require.Len(t, spans.Ended(), 1)
	require.Equal(t, codes.Error, spans.Ended()[0].Status().Code)
}
