package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/jetpulltest"
)

func TestRun(t *testing.T) {
	var out bytes.Buffer // needs no lock, because slog's handler makes one Write at a time
	start := time.Now()
	require.NoError(t, run(t.Context(), "", rate.NewLimiter(100, 1), &out))
	require.Equal(t, orders, strings.Count(out.String(), "msg=handled"), out.String())
	require.GreaterOrEqual(t, time.Since(start), (orders-1)*10*time.Millisecond, "one at once, the others 10 ms apart")
}

// TestLimited has a limit that no message can satisfy. The message is returned to the server, and the handler is not called.
func TestLimited(t *testing.T) {
	h := limited(rate.NewLimiter(rate.Every(time.Hour), 0))(func(context.Context, *jetpull.Msg) error {
		t.Error("the handler was called")
		return nil
	})
	got := jetpulltest.Handle(t.Context(), h, jetpulltest.NewMsg(subject, nil))
	require.Equal(t, jetpulltest.Nak, got.Verb)
	require.Error(t, got.Err)
}

func TestLoggedReturnsTheError(t *testing.T) {
	failed := errors.New("failed")
	h := logged(slog.New(slog.DiscardHandler))(func(context.Context, *jetpull.Msg) error { return failed })
	require.ErrorIs(t, jetpulltest.Handle(t.Context(), h, jetpulltest.NewMsg(subject, nil)).Err, failed)
}
