package jetpull_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// said is how many lines were logged, but for those that only a debugger reads.
func (w *world) said() int { return len(w.Logs.With("level=")) - len(w.Logs.With("level=DEBUG")) }

func countIs(errs []error, target error) (n int) {
	for _, err := range errs {
		if errors.Is(err, target) {
			n++
		}
	}
	return n
}

// Something keeps Consume from its messages for a while. Few requests go out
// meanwhile, its begin and its end are logged once, and messages flow soon after
// it is possible, each once.
func TestConsumeBacksOffAndComesBack(t *testing.T) {
	type disturbance struct {
		begin, end func(*world)
		is         error // that OnError is given for each refusal
		back       time.Duration
	}
	refused := func(code int, text string, is error, back time.Duration) disturbance {
		return disturbance{
			func(w *world) { w.answer(code, text); w.C().EndPulls(code, text) }, func(w *world) { w.TakePulls(nil) }, is, back,
		}
	}
	// The probe that is lost last may be silent for its 0.6 s and a second more, and then comes the back-off.
	const silence = 1600*time.Millisecond + 5*time.Second
	dead := disturbance{func(w *world) { w.Peer.Pause(true) }, func(w *world) { w.Peer.Pause(false) }, nil, silence}
	cut := disturbance{(*world).disconnect, (*world).reconnect, nil, time.Second}
	silent := disturbance{func(w *world) { w.TakePulls(stage.All); w.C().DropPulls() }, func(w *world) { w.TakePulls(nil) }, nil, silence}
	for name, tc := range map[string]struct {
		disturbance
		cfg jetstream.ConsumerConfig
	}{
		"no responders":       {disturbance: refused(503, "", jetpull.ErrNoResponders, time.Second)},
		"leader changes":      {disturbance: refused(409, "Leadership Change", jetpull.ErrLeadershipChanged, time.Second)},
		"a shutdown":          {disturbance: refused(409, "Server Shutdown", jetpull.ErrServerShutdown, time.Second)},
		"MaxWaiting":          {disturbance: refused(409, "Exceeded MaxWaiting", jetpull.ErrMaxWaiting, 6*time.Second)},
		"an unknown text":     {disturbance: refused(409, "Something New", jetpull.ErrTimeout, 6*time.Second)},
		"an unknown code":     {disturbance: refused(499, "Something New", jetpull.ErrTimeout, 6*time.Second)},
		"a dead network":      {disturbance: dead},
		"a cut":               {disturbance: cut},
		"a stopped server":    {disturbance: disturbance{func(w *world) { w.Model.Shutdown() }, func(w *world) { w.Model.Start() }, nil, time.Second}},
		"a crashed server":    {disturbance: disturbance{func(w *world) { w.Model.Crash() }, func(w *world) { w.Model.Start() }, nil, time.Second}},
		"pulls that are lost": {disturbance: silent},
		"ack policy none":     {disturbance: dead, cfg: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}},
		"a long AckWait":      {disturbance: cut, cfg: jetstream.ConsumerConfig{AckWait: time.Hour}},
	} {
		t.Run(name, at(tc.cfg, func(t *testing.T, w *world) {
			r := w.consume(taking(&w.j, 0))
			for round := range 3 {
				w.Publish(10)
				stage.Pass(time.Minute)
				from, said, before := time.Now(), w.said(), len(r.errs.all())
				tc.begin(w)
				stage.Pass(20 * time.Second)
				w.bounded(from, 6)
				require.Equal(t, said+1, w.said(), "one line a change: %v", w.Logs.With(""))
				if tc.is != nil {
					tries := int(20 * time.Second / max(tc.back, time.Second))
					require.GreaterOrEqual(t, countIs(r.errs.all()[before:], tc.is), tries, "OnError hears of each")
				}
				tc.end(w)
				w.Publish(10)
				w.soon(tc.back, "pulling again takes too long", func() bool { return w.j.Len() == 20*(round+1) })
				stage.Pass(10 * time.Second)
				require.Equal(t, said+2, w.said(), "its end is one line: %v", w.Logs.With(""))
			}
			require.Equal(t, stage.UpTo(60), w.j.All())
			require.True(t, r.running())
		}))
	}
}

// A deletion is known by its 409, or by a 503 and the consumer's info.
func TestConsumeOfADeletedConsumer(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for _, await := range []bool{false, true} {
			t.Run(fmt.Sprintf("silent %v, AwaitConsumer %v", silent, await), at(jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy}, func(t *testing.T, w *world) {
				var opts []jetpull.Option
				if await {
					opts = append(opts, jetpull.AwaitConsumer())
				}
				r := w.consume(taking(&w.j, 0), opts...)
				for round := range 2 {
					w.Publish(5)
					stage.Pass(time.Minute)
					cfg, said, deleted := w.C().Config(), w.said(), time.Now()
					if silent {
						w.C().EndPulls(408, "Request Timeout")
					}
					w.C().Delete()
					if !await {
						require.ErrorIs(t, r.result(), jetpull.ErrConsumerDeleted)
						require.LessOrEqual(t, time.Since(deleted), time.Second)
						synctest.Wait() // OnError is called on a goroutine of its own
						require.Positive(t, countIs(r.errs.all(), jetpull.ErrConsumerDeleted))
						return
					}
					stage.Pass(10 * time.Minute)
					require.True(t, r.running())
					w.bounded(deleted, 6)
					require.Equal(t, said+1, w.said(), "one line a change: %v", w.Logs.With(""))
					w.AddConsumer(cfg)
					w.Publish(5)
					w.soon(time.Second, "the consumer is there again", func() bool { return w.j.Len() == 10*round+10 })
				}
				require.NoError(t, r.stop())
				require.Equal(t, stage.UpTo(20), w.j.All())
			}))
		}
	}
}

// askingHandler asks the Subscription whenever something is logged.
type askingHandler struct {
	slog.Handler
	ask func()
}

func (h askingHandler) Handle(ctx context.Context, r slog.Record) error {
	h.ask()
	return h.Handler.Handle(ctx, r)
}

func (h askingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return askingHandler{h.Handler.WithAttrs(attrs), h.ask}
}

// The user's logger and callbacks are called without a lock: they may use the
// Subscription, and end it.
func TestLoggersAndCallbacksMayUseTheSubscription(t *testing.T) {
	on(t, pinnedCfg, func(t *testing.T, w *world) {
		var asked atomic.Int64
		var sub *jetpull.Subscription
		ask := func() {
			asked.Add(1)
			_, _ = sub.Pin()
			_ = sub.Stats()
			_, err := sub.Next(ended(t))
			require.ErrorIs(t, err, context.Canceled)
		}
		log := jetpull.Logger(slog.New(askingHandler{slog.NewTextHandler(w.Logs, nil), ask}))
		sub = w.subscribe(w.JS, jetpull.Group("g"), log, jetpull.OnPin(func(jetpull.PinEvent) { ask() }), jetpull.OnUnpin(func(jetpull.PinEvent) { ask() }))
		r := w.consumeOn(sub, failing(&w.j, 1, 3), log, jetpull.RetryDelays(0), jetpull.OnError(func(error) { ask() }))
		for _, disturb := range []func(){w.Peer.Cut, func() { w.C().Unpin("g") }, func() { w.C().EndPulls(409, "Leadership Change") }, func() { w.Hush(20 * time.Second) }} {
			w.Publish(10)
			disturb()
			stage.Pass(10 * time.Second)
		}
		require.GreaterOrEqual(t, asked.Load(), int64(8))
		go func() { ask(); _ = sub.Close(t.Context()) }()
		require.ErrorIs(t, r.result(), jetpull.ErrClosed)
	}, jetpull.Group("g"))
}

// Without a logger of the user's, lines go to slog's default, and normal operation has level debug.
func TestTheDefaultLogger(t *testing.T) {
	for level, lines := range map[slog.Level]int{slog.LevelDebug: 3, slog.LevelError: 0} {
		on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			defer slog.SetDefault(slog.Default())
			slog.SetDefault(slog.New(slog.NewTextHandler(w.Logs, &slog.HandlerOptions{Level: level})))
			sub := w.subscribe(w.JS)
			c, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			w.Publish(1)
			require.NoError(t, sub.Consume(c, failing(&w.j, 3, 1), jetpull.RetryDelays(0)))
			require.Len(t, w.Logs.With("level=WARN", "handler failed", "stream=S", "broken"), lines)
			require.Empty(t, w.Logs.With("level=INFO", "jetpull"))
		})
	}
}

// A pull falls silent because the network is, its inbox waits for a sign of life, and the connection breaks.
func TestASilentInboxEndsWithItsConnection(t *testing.T) {
	for range 20 {
		on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			r := w.consume(taking(&w.j, 0))
			stage.Pass(time.Second)
			for range 3 {
				w.Peer.Pause(true)
				stage.Pass(6 * time.Second)
				w.Peer.Cut()
				w.Peer.Pause(false)
				stage.Pass(20 * time.Second)
			}
			require.NoError(t, r.stop())
			require.NoError(t, w.sub.Close(t.Context()))
			stage.Pass(time.Second)
			require.LessOrEqual(t, w.NC.NumSubscriptions(), 1, "but for that of nats.go for requests")
		})
	}
}
