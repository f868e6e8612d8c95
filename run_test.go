package jetpull_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/internal/natstest/stage"
	"github.com/jetpull/jetpull/limit"
)

// said returns how many lines were logged, without those of level debug.
func (w *world) said() int { return len(w.Logs.With("level=")) - len(w.Logs.With("level=DEBUG")) }

func countIs(errs []error, target error) (n int) {
	for _, err := range errs {
		if errors.Is(err, target) {
			n++
		}
	}
	return n
}

// A fault keeps messages from Consume for a while. Few requests are sent meanwhile,
// the begin and the end of the fault are logged once, and soon after it each message
// arrives once.
func TestConsumeBacksOffAndComesBack(t *testing.T) {
	type disturbance struct {
		begin, end func(*world)
		is         error // that OnError gets for each refusal
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
			t.Run(fmt.Sprintf("silent %v, AwaitConsumer %v", silent, await),
				at(jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverNewPolicy}, func(t *testing.T, w *world) {
					var opts []jetpull.ConsumeOption
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
							// Without a status of the server, a consumer that is not found may exist a moment later.
							require.LessOrEqual(t, time.Since(deleted), map[bool]time.Duration{true: 4 * time.Second, false: time.Second}[silent])
							synctest.Wait() // OnError is called on another goroutine
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

// A call that ends, and hands many messages back, while the consumer is deleted: every call on the Subscription ends.
func TestAConsumerIsDeletedWhileACallEnds(t *testing.T) {
	for range 30 {
		on(t, jetstream.ConsumerConfig{MaxAckPending: -1}, func(t *testing.T, w *world) {
			slow := func(ctx, *jetpull.Msg) error { <-time.After(time.Second); return nil }
			ends, stays := w.consume(slow, jetpull.Prefetch(1500)), w.consume(slow)
			w.Publish(3000)
			stage.Pass(100 * time.Millisecond)
			go w.C().Delete()
			require.NoError(t, ends.stop())
			require.ErrorIs(t, stays.result(), jetpull.ErrConsumerDeleted)
		})
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
		for _, disturb := range []func(){
			w.Peer.Cut, func() { w.C().Unpin("g") }, func() { w.C().EndPulls(409, "Leadership Change") },
			func() { w.Hush(20 * time.Second) },
		} {
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

// A pull becomes silent because the network is, its inbox waits for an answer, and the connection is lost.
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

// The window follows the handlers' speed: workers never wait for available
// messages, and no message waits for more than a quarter of AckWait.
func TestAdaptiveWindow(t *testing.T) {
	on(t, jetstream.ConsumerConfig{AckWait: 8 * time.Second, MaxAckPending: -1}, func(t *testing.T, w *world) {
		var takes atomic.Int64
		w.Publish(3000)
		w.consume(func(ctx, *jetpull.Msg) error {
			if d := time.Duration(takes.Load()); d > 0 {
				<-time.After(d)
			}
			return nil
		})
		stage.Pass(0)
		require.Greater(t, w.sub.Stats().Window, 300, "a fast handler reads far ahead")
		require.LessOrEqual(t, w.sub.Stats().Window, 1792)
		takes.Store(int64(30 * time.Millisecond))
		w.Publish(4000)
		stage.Pass(100 * time.Second) // enough to handle the messages that were read ahead before
		st := w.sub.Stats()
		require.InDelta(t, 66, st.Window, 3, "2 s, a quarter of AckWait, at 30 ms a message")
		require.LessOrEqual(t, st.Buffered+st.Running, 70)
		require.Positive(t, st.Buffered)
	})
}

// On any link, a server that has reached MaxAckPending delivers as many messages again a round trip later: when the acknowledgements
// arrive, it has a pull.
func TestMaxAckPendingIsOutstandingOnAnyLink(t *testing.T) {
	const trips = 10
	for _, most := range []int{10, 256, 1000} {
		for _, oneWay := range []time.Duration{2 * time.Millisecond, 50 * time.Millisecond} {
			t.Run(fmt.Sprint(most, oneWay), func(t *testing.T) {
				link := model.Delay{Min: oneWay, Max: oneWay}
				onStage(t, stage.Config{Model: model.Config{Up: link, Down: link}, Consumer: jetstream.ConsumerConfig{MaxAckPending: most}},
					func(_ *testing.T, w *world) {
						w.Publish(trips * most)
						w.consume(taking(&w.j, 0))
						w.soon(trips*2*oneWay*5/4, "a round trip for each MaxAckPending messages", func() bool { return w.j.Len() == trips*most })
					})
			})
		}
	}
}

// The bytes held stay within their limit, by default about 64 MiB, even if large
// messages follow small ones. A message larger than the limit arrives when nothing
// else is held, and no message is withheld.
func TestBytesHeldAreBounded(t *testing.T) {
	const mib = 1 << 20
	for name, tt := range map[string]struct {
		cfg          jetstream.ConsumerConfig
		small, total int
		sizes        []int // of the large ones, in turn
		opts         []jetpull.ConsumeOption
		most         int
	}{
		"MaxRequestMaxBytes": {
			cfg: jetstream.ConsumerConfig{MaxRequestMaxBytes: 100_000}, small: 100, total: 10 * mib, sizes: []int{300_000},
			most: 64 * mib,
		},
		"sizes in turn": {small: 5000, total: 160 * mib, sizes: []int{10, 3 * mib, 200, 20 * mib, 100 << 10}, most: 64 * mib},
		"PrefetchBytes": {
			total: 60_000, sizes: []int{100, 100, 100, 100, 9000}, opts: []jetpull.ConsumeOption{jetpull.PrefetchBytes(1000)},
			most: 9100,
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.cfg.AckWait, tt.cfg.MaxAckPending = time.Hour, 10_000
			on(t, tt.cfg, func(t *testing.T, w *world) {
				var done, most, handled atomic.Int64
				w.consume(func(_ ctx, m *jetpull.Msg) error {
					most.Store(max(most.Load(), int64(w.sub.Stats().Bytes)-done.Load()))
					if m.Sequence() > uint64(tt.small) {
						<-time.After(20 * time.Millisecond)
					}
					done.Add(int64(len(m.Subject()) + len(m.Reply()) + len(m.Data())))
					handled.Add(1)
					return nil
				}, tt.opts...)
				w.Publish(tt.small)
				stage.Pass(5 * time.Second)
				bodies, large := map[int]string{}, 0
				for _, size := range tt.sizes {
					bodies[size] = strings.Repeat("x", size)
				}
				if testing.Short() {
					tt.total = min(tt.total, tt.most+8*mib)
				}
				for bytes := 0; bytes < tt.total; large++ {
					size := tt.sizes[large%len(tt.sizes)]
					w.PublishTo("s.a", nil, bodies[size])
					bytes += size
				}
				pulls := len(w.Pulls())
				stage.Pass(30 * time.Second)
				require.EqualValues(t, tt.small+large, handled.Load(), "none is kept back")
				require.LessOrEqual(t, int(most.Load()), tt.most, "bytes held at most")
				require.Less(t, len(w.Pulls())-pulls, 3*large+20, fmt.Sprintf("pulls for %d messages", large))
			})
		})
	}
}

// At most two pulls of a Consume, or a quarter of MaxWaiting, wait at the server, which leaves places for other clients.
// A MaxRequestExpires that would make hundreds of pulls a second makes ten, with a warning.
func TestAShortMaxRequestExpires(t *testing.T) {
	on(t, jetstream.ConsumerConfig{MaxRequestExpires: milli}, func(t *testing.T, w *world) {
		r := w.consume(taking(&w.j, 0))
		stage.Pass(10 * second)
		require.LessOrEqual(t, len(w.Pulls()), 110)
		require.NoError(t, r.stop())
		require.Len(t, w.Logs.With("level=WARN", "MaxRequestExpires is short", "max_request_expires=1ms"), 1)
	})
}

func TestConsumeLeavesMaxWaitingToOthers(t *testing.T) {
	on(t, jetstream.ConsumerConfig{MaxWaiting: 4}, func(t *testing.T, w *world) {
		most := 0
		w.consume(func(ctx, *jetpull.Msg) error {
			most = max(most, w.C().State().NumWaiting)
			return nil
		})
		for range 50 {
			w.Publish(7)
			stage.Pass(milli)
		}
		require.Equal(t, 2, most)
	})
}

// If the key function of Limited panics, the start that MaxCrashes has recorded gets its end.
func TestALimitKeyThatPanicsLeavesNoStart(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		b := &natstest.Bucket{}
		r := w.consume(func(context.Context, *jetpull.Msg) error { return nil }, jetpull.RetryDelays(0), jetpull.MaxAttempts(3),
			jetpull.MaxCrashes(2, b), jetpull.Limited(&limit.Limiter{}, func(*jetpull.Msg) string { panic("no key") }))
		w.Publish(1)
		stage.Pass(second)
		require.NoError(t, r.stop())
		keys, writes := b.Size()
		require.Equal(t, []int{0, 2}, []int{keys, writes})
		require.EqualValues(t, 1, w.sub.Stats().Terminated)
	})
}
