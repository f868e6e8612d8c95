package feed

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHandlerTimeout: a handler that obeys its context has failed with the cause, and one that does not is counted, and logged rarely.
func TestHandlerTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newClient()
		c.create(Partition{ID: "p"})
		require.NoError(t, c.insert(t.Context(), "p", Item{ID: "obeys"}, Item{ID: "hangs"}))
		over := make(chan struct{})
		p := ProcessorFunc(func(ctx context.Context, it Item) (Response, error) {
			if it.ID == "hangs" {
				<-over
				return done()
			}
			<-ctx.Done()
			return Response{}, ctx.Err()
		})
		var log bytes.Buffer
		logger := Logger(slog.New(slog.NewTextHandler(&log, nil)))
		onModel(t, c, p, []WatcherOption{logger, HandlerTimeout(time.Second), MaxRetries(0)}, func(w *Watcher) {
			time.Sleep(time.Hour)
			require.Equal(t, 1, w.Stats().Slow)
			close(over)
			time.Sleep(time.Minute)
			require.Zero(t, w.Stats().Slow)
		})
		require.Equal(t, `["the attempt took over 1s: context deadline exceeded"]`, text(c.items["p"][0].Errors))
		lines := strings.Count(log.String(), "handler runs for long")
		require.True(t, lines >= 5 && lines <= 10, "%d lines:\n%s", lines, log.String())
		require.Contains(t, log.String(), "item=hangs gate=0 for=20s slots=1 of=64")
	})
}
