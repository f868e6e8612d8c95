package jetpull_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// An OnError that blocks holds up no handler. What waits for it is bounded, and all
// problems are accounted for.
func TestAnOnErrorThatBlocks(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		const n, attempts = 2500, 4
		release := make(chan struct{})
		var got errorList
		w.consume(func(ctx, *jetpull.Msg) error { return errBroken }, jetpull.RetryDelays(0), jetpull.MaxAttempts(attempts), jetpull.OnError(func(err error) {
			<-release
			got.add(err)
		}))
		w.Publish(n)
		stage.Pass(time.Minute)
		require.Len(t, w.Acks("+TERM"), n)
		close(release)
		synctest.Wait()
		errs := got.all()
		require.LessOrEqual(t, len(errs), 4098)
		missed := 0
		_, err := fmt.Sscanf(errs[len(errs)-1].Error(), "jetpull: %d problems", &missed)
		require.NoError(t, err, "the last one counts the others: %v", errs[len(errs)-1])
		require.Equal(t, n*attempts, len(errs)-1+missed)
		w.Publish(1)
		stage.Pass(time.Second)
		require.Len(t, got.all(), len(errs)+attempts, "it is given all again")
	})
}

// nosyHandler asks the Subscription whenever something is logged.
type nosyHandler struct {
	slog.Handler
	ask func()
}

func (h nosyHandler) Handle(ctx context.Context, r slog.Record) error {
	h.ask()
	return h.Handler.Handle(ctx, r)
}

func (h nosyHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return nosyHandler{h.Handler.WithAttrs(attrs), h.ask}
}

// The user's logger and callbacks are called without a lock: they may use the
// Subscription, and end it.
func TestLoggersAndCallbacksMayUseTheSubscription(t *testing.T) {
	on(t, pinnedCfg, func(t *testing.T, w *world) {
		asked := 0
		ask := func() {
			asked++
			_, _ = w.sub.Pin()
			_ = w.sub.Stats()
			_, err := w.sub.Next(ended(t))
			require.ErrorIs(t, err, context.Canceled)
		}
		log := jetpull.Logger(slog.New(nosyHandler{slog.NewTextHandler(w.Logs, nil), ask}))
		r := w.consume(failing(&w.j, 1, 3), log, jetpull.RetryDelays(0), jetpull.OnError(func(error) { ask() }),
			jetpull.OnPin(func(jetpull.PinEvent) { ask() }), jetpull.OnUnpin(func(jetpull.PinEvent) { ask() }))
		for _, disturb := range []func(){w.Peer.Cut, func() { w.C().Unpin("g") }, func() { w.C().EndPulls(409, "Leadership Change") }, func() { w.Hush(20 * time.Second) }} {
			w.Publish(10)
			disturb()
			stage.Pass(10 * time.Second)
		}
		require.GreaterOrEqual(t, asked, 8)
		go func() { ask(); _ = w.sub.Close(t.Context()) }()
		require.ErrorIs(t, r.result(), jetpull.ErrClosed)
	}, jetpull.Group("g"))
}

// Without a logger of the user's what fails is warned of through slog's default,
// but not as often as it fails.
func TestTheDefaultLoggerWarns(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		defer slog.SetDefault(slog.Default())
		slog.SetDefault(w.Logs.Logger())
		sub := w.subscribe(w.JS)
		c, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		w.Publish(500)
		require.NoError(t, sub.Consume(c, failing(&w.j, 9, stage.UpTo(500)...), jetpull.RetryDelays(0)))
		require.Equal(t, 5000, w.j.Len())
		require.NotEmpty(t, w.Logs.With("level=WARN", "broken"))
		require.LessOrEqual(t, len(w.Logs.With("jetpull")), 100)
		require.Empty(t, w.Logs.With("level=INFO"))
	})
}

// A handler that runs for over ten AckWaits is warned of once.
func TestAHandlerThatHangsIsWarnedOf(t *testing.T) {
	on(t, jetstream.ConsumerConfig{AckWait: time.Second}, func(t *testing.T, w *world) {
		w.Publish(1)
		w.consume(taking(&w.j, time.Minute))
		stage.Pass(9 * time.Second)
		require.Empty(t, w.Logs.With("level=WARN"))
		stage.Pass(time.Minute)
		require.Len(t, w.Logs.With("level=WARN", "sequence=1"), 1)
	})
}
