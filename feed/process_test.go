package feed

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// textError is an error whose methods need what it points to, as most have.
type textError struct{ text string }

func (e *textError) Error() string { return e.text }

// TestTypedNilErrors: a handler that returns a nil pointer as its error fails an attempt, and ends nothing else.
func TestTypedNilErrors(t *testing.T) {
	t.Parallel()
	var none *textError
	p := ProcessorFunc(func(context.Context, Item) (Response, error) { return Response{Done: true}, none })
	s := openStore(t, backends[0].fresh(t))
	create(t, s, Partition{ID: "p"}, Item{ID: "a"})
	w := startWatcher(t, s, p, MaxRetries(0))
	awaitPartition(t, s, "p", Failed)
	require.NoError(t, w.stop(t))
	it, err := s.Item(t.Context(), "p", "a")
	require.NoError(t, err)
	require.Contains(t, it.Errors[0], "panic")
}

// LogValue needs what the error points to, too.
func (e *valueError) LogValue() slog.Value { return slog.StringValue(e.text) }

type valueError struct{ *textError }

func (*valueError) Error() string { return "no value" }

// TestHooksOfErrorsAndOptions: an error whose LogValue panics, and an OnError or a Backoff that ends its goroutine, are a failed attempt like any
// other.
func TestHooksOfErrorsAndOptions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		c.create(Partition{ID: "p"})
		require.NoError(t, c.insert(t.Context(), "p", Item{ID: "a"}, Item{ID: "b"}))
		var log bytes.Buffer
		calls := 0
		p := ProcessorFunc(func(context.Context, Item) (Response, error) {
			if calls++; calls <= 2 {
				return Response{}, new(valueError)
			}
			return done()
		})
		opts := []WatcherOption{
			Concurrency(1), Logger(slog.New(slog.NewTextHandler(&log, nil))),
			Backoff(func(int) time.Duration { runtime.Goexit(); return 0 }), OnError(func(Item, error) { runtime.Goexit() }),
		}
		onModel(t, c, p, opts, func(*Watcher) { time.Sleep(10 * time.Second) })
		require.Equal(t, 4, calls)
		require.Contains(t, log.String(), "panic")
	})
}

// TestPanicsOfOptions: a panic of Backoff or OnError ends no watcher. The attempt has failed, with the delay of the default.
func TestPanicsOfOptions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		c.create(Partition{ID: "p"})
		require.NoError(t, c.insert(t.Context(), "p", Item{ID: "a"}))
		begin, calls := time.Now(), 0
		p := ProcessorFunc(func(context.Context, Item) (Response, error) {
			calls++
			return Response{Done: true}, failedBefore(Item{Attempt: calls}, 2)
		})
		opts := []WatcherOption{AutoClose(), Backoff(func(int) time.Duration { panic("no delay") }), OnError(func(Item, error) { panic("no room") })}
		onModel(t, c, p, opts, func(*Watcher) { time.Sleep(10 * time.Second) })
		require.Equal(t, 2, calls)
		require.Equal(t, Complete, Status(c.items["p"][0].Status))
		require.Greater(t, time.Since(begin), 800*time.Millisecond)
	})
}
