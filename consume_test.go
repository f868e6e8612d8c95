package jetpull_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

var nothing = func(context.Context, *jetpull.Msg) error { return nil }

func delays(d ...time.Duration) []jetpull.ConsumeOption { return opts(jetpull.RetryDelays(d...)) }

func returns(err error) jetpull.Handler { return func(ctx, *jetpull.Msg) error { return err } }

var (
	errCause = errors.New("cause")
	tooLong  = "status 500:\r\n" + strings.Repeat("x", 2<<20) // more than the server accepts
)

// outcomes are the outcomes of messages by the results of their handlers.
var outcomes = []struct {
	name    string
	opts    []jetpull.ConsumeOption
	handler jetpull.Handler
	verb    string
	arg     string
	again   time.Duration // approximate time until it is redelivered; 0: never
	problem string
}{
	{"error", delays(0), returns(errCause), "-NAK", "", time.Nanosecond, "cause"},
	{"retry", nil, returns(jetpull.Retry(3*time.Second, errCause)), "-NAK", `{"delay":3000000000}`, 3 * time.Second, "cause"},
	{"retry at once", delays(time.Hour), returns(jetpull.Retry(0, nil)), "-NAK", "", time.Nanosecond, "retry"},
	{"retry delays", delays(7 * time.Second), returns(errCause), "-NAK", `{"delay":7000000000}`, 7 * time.Second, "cause"},
	{
		"wrapped retry", nil, returns(errors.Join(errors.New("x"), jetpull.Retry(2*time.Second, nil))), "-NAK", `{"delay":2000000000}`, 2 * time.Second,
		"x",
	},
	{"a RetryError", nil, returns(&jetpull.RetryError{After: 2 * time.Second}), "-NAK", `{"delay":2000000000}`, 2 * time.Second, "retry"},
	{"a nil pointer", delays(0), returns((*jetpull.RetryError)(nil)), "-NAK", "", time.Nanosecond, "*jetpull.RetryError that cannot be read"},
	{"a TerminateError", nil, returns(fmt.Errorf("x: %w", &jetpull.TerminateError{Reason: "no good"})), "+TERM", "no good", 0, "x: "},
	{"terminate", nil, returns(jetpull.Terminate("no good", errCause)), "+TERM", "no good", 0, "cause"},
	{"terminate without a reason", nil, returns(jetpull.Terminate("", nil)), "+TERM", "", 0, "terminate"},
	{"terminate for a long reason", nil, returns(jetpull.Terminate(tooLong, errCause)), "+TERM", "status 500: " + strings.Repeat("x", 1012), 0, "cause"},
	{"terminate for white space", nil, returns(jetpull.Terminate("\r\n", nil)), "+TERM", "", 0, "terminate"},
	{"panic", delays(0), func(context.Context, *jetpull.Msg) error { panic("oh no") }, "-NAK", "", time.Nanosecond, "panicked: oh no"},
	{"where it panicked", delays(0), func(context.Context, *jetpull.Msg) error { panic(errCause) }, "-NAK", "", time.Nanosecond, "consume_test.go"},
	{
		"goexit", delays(0), func(context.Context, *jetpull.Msg) error { runtime.Goexit(); return nil }, "-NAK", "", time.Nanosecond,
		"ended its goroutine",
	},
	{"settled by the handler", nil, func(_ context.Context, m *jetpull.Msg) error { return m.Term() }, "+TERM", "", 0, ""},
	{"settled and failed", nil, func(_ context.Context, m *jetpull.Msg) error { _ = m.Ack(); return errCause }, "+ACK", "", 0, "cause"},
}

func TestConsumeSettlesByWhatTheHandlerReturns(t *testing.T) {
	for _, tc := range outcomes {
		t.Run(tc.name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			var calls atomic.Int64
			r := w.consume(func(ctx context.Context, m *jetpull.Msg) error {
				if calls.Add(1) > 1 {
					return nil
				}
				return tc.handler(ctx, m)
			}, tc.opts...)
			w.Publish(1)
			if tc.again > 0 {
				w.soon(tc.again+20*time.Millisecond, "delivered again", func() bool { return calls.Load() == 2 })
			} else {
				stage.Pass(time.Minute)
				require.EqualValues(t, 1, calls.Load())
			}
			first := w.Acks(tc.verb, 1)
			require.Len(t, first, 1)
			require.Equal(t, tc.arg, first[0].Arg)
			errs := r.errs.all()
			if tc.problem == "" {
				require.Empty(t, errs)
			} else {
				require.Len(t, errs, 1)
				require.ErrorContains(t, errs[0], tc.problem)
				require.ErrorContains(t, errs[0], "stream sequence 1")
			}
			w.Publish(1)
			stage.Pass(time.Second)
			require.Len(t, w.Acks("+ACK", 2), 1, "it goes on")
			require.Empty(t, w.C().Unsettled())
		}))
	}
}

func TestConsumeStats(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(30)
		handled := taking(&w.j, 10*second)
		w.consume(func(ctx ctx, m *jetpull.Msg) error {
			if m.Delivered() == 1 && m.Sequence() == 1 {
				return errBroken
			}
			return handled(ctx, m)
		}, jetpull.Concurrency(3), jetpull.Prefetch(10))
		st := w.sub.Stats()
		require.Equal(t, []int{3, 10}, []int{st.Running, st.Window})
		require.InDelta(t, 6, st.Buffered, 1, "what was settled last is not yet worth a pull")
		stage.Pass(3 * time.Minute)
		st = w.sub.Stats()
		require.Equal(t, []uint64{30, 1, 31, 1, uint64(len(w.Pulls()))}, []uint64{st.Acks, st.Naks, st.Messages, st.Redelivered, st.Pulls})
		require.Zero(t, st.Running+st.Buffered)
	})
}

func TestDrainTimeout(t *testing.T) {
	slow, untilCancelled := jetpull.ErrDrainTimeout, func(ctx context.Context, _ *jetpull.Msg) error { <-ctx.Done(); return ctx.Err() }
	for name, tt := range map[string]struct {
		drain   time.Duration
		handler jetpull.Handler
		takes   time.Duration
		is      error
		says    string
		naks    int
	}{
		"handlers finish": {
			30 * time.Second, func(ctx ctx, _ *jetpull.Msg) error { <-time.After(20 * time.Second); return ctx.Err() },
			20 * time.Second, nil, "", 8,
		},
		"handlers are cancelled": {5 * time.Second, untilCancelled, 5 * time.Second, slow, "2 handlers", 10},
		"at once":                {0, untilCancelled, 0, slow, "2 handlers", 10},
		"handlers that go on":    {5 * time.Second, taking(&stage.Journal{}, time.Minute), 6 * time.Second, slow, "go on", 8},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.Publish(10)
			r := w.consume(tt.handler, jetpull.Concurrency(2), jetpull.DrainTimeout(tt.drain), jetpull.MaxAttempts(1))
			pulls := len(w.Pulls())
			r.cancel()
			synctest.Wait()
			if tt.drain > 0 {
				require.EqualValues(t, 8, w.sub.Stats().HandedBack, "what was read ahead goes back at once")
			}
			err := r.result()
			near(t, tt.takes, w.Elapsed(), 100*time.Millisecond)
			require.ErrorIs(t, err, tt.is)
			require.Contains(t, fmt.Sprint(err), tt.says)
			require.Len(t, w.Acks("-NAK"), tt.naks)
			require.Len(t, w.Pulls(), pulls, "nothing is pulled while it drains")
			stage.Pass(time.Minute)
			require.Len(t, w.Acks("+ACK"), 10-tt.naks, "what they settle later counts")
			st := w.sub.Stats()
			require.EqualValues(t, tt.naks, st.HandedBack)
			require.Zero(t, st.Failed+st.Terms, "a handler that was cancelled has not failed")
		}))
	}
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		for range 50 {
			idle := w.consume(nothing, jetpull.Concurrency(4), jetpull.DrainTimeout(0))
			require.NoError(t, idle.stop(), "nothing ran that could be cancelled")
		}
	})
}

// The ends of Consume and Messages other than by their contexts, with 40 messages before two
// workers. Handlers that run finish.
func TestWhatEndsConsumeAndMessages(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(*world) error
		is   []error
		naks bool
	}{
		"Close":               {func(w *world) error { return w.sub.Close(w.t.Context()) }, []error{jetpull.ErrClosed}, true},
		"a drain":             {func(w *world) error { return w.NC.Drain() }, []error{jetpull.ErrClosed}, true},
		"a closed connection": {func(w *world) error { w.NC.Close(); return nil }, []error{jetpull.ErrClosed, nats.ErrConnectionClosed}, false},
		"a deletion":          {func(w *world) error { w.C().Delete(); return nil }, []error{jetpull.ErrConsumerDeleted}, true},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{AckWait: time.Hour}, func(t *testing.T, w *world) {
			w.Publish(40)
			r := w.consume(taking(&w.j, time.Second), jetpull.Concurrency(2))
			messages := w.later(func() (ms []*jetpull.Msg, end error) {
				for m, err := range w.sub.Messages(t.Context()) {
					require.NoError(t, end, "an error is the last")
					ms, end = append(ms, m), err
				}
				return ms, end
			})
			stage.Pass(100 * milli)
			require.NoError(t, tt.end(w))
			synctest.Wait()
			require.Equal(t, tt.naks, len(w.Acks("-NAK")) > 0, "handed back at once")
			for _, err := range []error{(<-messages).err, r.result()} {
				for _, is := range tt.is {
					require.ErrorIs(t, err, is)
				}
			}
			require.LessOrEqual(t, w.Elapsed(), 42*second)
			stage.Pass(time.Minute)
		}))
	}
}

// Handlers that were running when the consumer's configuration changed are drained like all others.
func TestTheEndOfConsumeAfterANewConfiguration(t *testing.T) {
	for name, end := range map[string]func(*world){
		"Close":               func(w *world) { w.closing(w.t.Context()) },
		"a drain":             func(w *world) { require.NoError(w.t, w.NC.Drain()) },
		"a closed connection": func(w *world) { w.NC.Close() },
	} {
		t.Run(name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.Publish(1)
			r := w.consume(func(ctx context.Context, _ *jetpull.Msg) error { <-ctx.Done(); return ctx.Err() }, jetpull.Concurrency(16),
				jetpull.DrainTimeout(5*second))
			w.C().Update(func(cfg *jetstream.ConsumerConfig) { cfg.MaxRequestBatch = 4 })
			w.soon(time.Minute, "the new configuration is read", func() bool { return len(w.Logs.With("configuration has changed")) > 0 })
			w.Peer.Pause(true)
			from := time.Now()
			end(w)
			err := r.result()
			require.ErrorIs(t, err, jetpull.ErrClosed)
			require.ErrorIs(t, err, jetpull.ErrDrainTimeout)
			require.LessOrEqual(t, time.Since(from), 6*second)
			w.Peer.Pause(false)
			stage.Pass(time.Minute)
		}))
	}
}

// Calls that keep ending do not delay the end of Consume and Messages, which waits only for messages of its own pulls.
func TestTheEndOfConsumeBesideOtherCalls(t *testing.T) {
	const oneWay = 40 * milli
	link := model.Delay{Min: oneWay, Max: oneWay}
	for name, run := range map[string]func(*world, context.Context) error{
		"Consume": func(w *world, ctx context.Context) error { return w.sub.Consume(ctx, nothing) },
		"Messages": func(w *world, ctx context.Context) (err error) {
			for _, err = range w.sub.Messages(ctx) {
				continue
			}
			return err
		},
	} {
		t.Run(name, atStage(stage.Config{Model: model.Config{Up: link, Down: link}}, func(t *testing.T, w *world) {
			over, stop := context.WithCancel(t.Context())
			var calling sync.WaitGroup
			for i := range 8 {
				calling.Go(func() {
					for over.Err() == nil {
						_, _ = w.sub.Next(over, jetpull.MaxWait(time.Duration(50+10*i)*milli))
					}
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), second)
			defer cancel()
			err := run(w, ctx)
			require.True(t, err == nil || errors.Is(err, context.DeadlineExceeded), "%v", err)
			require.LessOrEqual(t, w.Elapsed(), 1500*milli, "the end took longer")
			stop()
			calling.Wait()
		}))
	}
}

// Consume returns at most DrainTimeout and a second after the end of its context, whatever it waits for, even if the server cannot
// be reached. Acknowledgements that were sent meanwhile reach the server later.
func TestStopWithoutAServer(t *testing.T) {
	fails := func(ctx, *jetpull.Msg) error { <-time.After(milli); return errBroken }
	asks := func(c ctx, m *jetpull.Msg) error { <-time.After(milli); return m.DoubleAck(context.WithoutCancel(c)) }
	slow, journal := jetpull.ErrDrainTimeout, &stage.Journal{}
	for name, tt := range map[string]struct {
		handler     jetpull.Handler
		drain, most time.Duration
		is          error
		opts        []jetpull.ConsumeOption
		cfg         jetstream.ConsumerConfig
		acks        int
	}{
		"handlers, at once":  {handler: taking(journal, time.Minute), most: second, is: slow, acks: 1},
		"handlers, soon":     {handler: taking(journal, time.Minute), drain: 3 * second, most: 4 * second, is: slow, acks: 1},
		"handlers, in order": {handler: taking(journal, 500*milli), drain: time.Minute, most: 1500 * milli, acks: 1},
		"an answer":          {handler: asks, drain: second, most: 2 * second, is: slow, acks: 1},
		"a failure":          {handler: fails, drain: second, most: 2 * second},
		"a failure of a key": {handler: fails, drain: second, most: 2 * second, opts: opts(bySubject)},
		"a dead letter": {
			handler: fails, drain: second, most: 2 * second, is: slow,
			opts: opts(jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.s")), cfg: jetstream.ConsumerConfig{MaxDeliver: 1},
		},
		"nothing, ack none":    {handler: nothing, drain: second, most: 2 * second, cfg: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}},
		"whether it is pinned": {handler: taking(journal, milli), drain: second, most: 2 * second, opts: opts(jetpull.Group("g")), cfg: pinnedCfg, acks: 1},
	} {
		for _, cut := range []bool{false, true} {
			if tt.cfg.AckPolicy != jetstream.AckNonePolicy {
				tt.cfg.AckWait = time.Hour
			}
			t.Run(fmt.Sprint(name, ", cut ", cut), at(tt.cfg, func(t *testing.T, w *world) {
				w.Model.AddStream("D", "dead.>")
				w.Publish(20)
				r := w.consume(tt.handler, append(tt.opts, jetpull.DrainTimeout(tt.drain))...)
				if w.Peer.Pause(!cut); cut {
					w.disconnect()
				}
				require.ErrorIs(t, r.stop(), tt.is)
				require.LessOrEqual(t, w.Elapsed(), tt.most)
				w.Peer.Pause(false)
				w.reconnect()
				stage.Pass(2 * time.Minute)
				require.Empty(t, w.C().Held())
				require.Len(t, w.Acks("+ACK"), tt.acks)
			}, as[jetpull.SubscribeOption](tt.opts[:min(1, len(tt.cfg.PriorityGroups))])...))
		}
	}
}

// lateEnd is a context that has ended, but shows that only after the first call of Err.
type lateEnd struct {
	context.Context
	looked bool
}

func (c *lateEnd) Err() error {
	if !c.looked {
		c.looked = true
		return nil
	}
	return c.Context.Err()
}

// A context that ends while Consume begins is no error.
func TestConsumeWhoseContextEndsAtItsBeginning(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		handler := func(context.Context, *jetpull.Msg) error { return nil }
		require.NoError(t, w.sub.Consume(ctx, handler))
		require.NoError(t, w.sub.Consume(&lateEnd{Context: ctx}, handler))
		require.ErrorIs(t, w.sub.Consume(ctx, handler, jetpull.Concurrency(0)), jetpull.ErrInvalidOption)
	})
}

// An OrderedBy function that blocks delays only the messages of its own call.
func TestOrderedByBlocksNoOtherCall(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		release := make(chan struct{})
		r := w.consume(taking(&w.j, 0), jetpull.OrderedBy(func(m *jetpull.Msg) string {
			<-release
			return m.Subject()
		}))
		w.Publish(1)
		stage.Pass(time.Second)
		next := w.next(t.Context())
		w.Publish(1)
		stage.Pass(time.Second)
		require.Len(t, next, 1, "Next waits for the function of another call")
		got := <-next
		require.NoError(t, got.err)
		require.NoError(t, got.ms[0].Ack())
		close(release)
		stage.Pass(time.Second)
		require.Equal(t, []int{1}, w.j.All())
		require.NoError(t, r.stop())
	})
}

// A handler passes its messages on, as with nats.go: the goroutine that gets a message settles it.
func TestManualAckLeavesMessagesToTheHandler(t *testing.T) {
	on(t, jetstream.ConsumerConfig{AckWait: 10 * time.Second}, func(t *testing.T, w *world) {
		passed := make(chan *jetpull.Msg, 10)
		r := w.consume(func(_ ctx, m *jetpull.Msg) error {
			passed <- m
			return nil
		}, jetpull.ManualAck(), jetpull.Prefetch(3))
		w.Publish(5)
		stage.Pass(25 * time.Second)
		require.Len(t, passed, 3, "no more than the window")
		require.Empty(t, w.Acks("+ACK"))
		require.Equal(t, 3, w.sub.Stats().Outstanding+len(passed), "and no more is asked for")
		settle := []func(*jetpull.Msg) error{
			func(m *jetpull.Msg) error { return m.DoubleAck(t.Context()) },
			(*jetpull.Msg).Term,
			func(m *jetpull.Msg) error { return jetpull.ConfirmAcks(t.Context(), m) },
			(*jetpull.Msg).Ack,
			(*jetpull.Msg).Ack,
		}
		for _, f := range settle {
			require.NoError(t, f(<-passed))
			stage.Pass(time.Second)
		}
		require.Empty(t, passed, "each was handled once, though it took longer than AckWait")
		require.Empty(t, w.C().Unsettled())
		require.NoError(t, r.stop())
	})
}

func TestStopAfterAsksForNoMore(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, w *world) []int{
		"consume": func(t *testing.T, w *world) []int {
			require.NoError(t, w.sub.Consume(t.Context(), taking(&w.j, 0), jetpull.StopAfter(20)))
			return w.j.All()
		},
		"consume, in parallel": func(t *testing.T, w *world) []int {
			require.NoError(t, w.sub.Consume(t.Context(), taking(&w.j, time.Second), jetpull.StopAfter(20), jetpull.Concurrency(8)))
			return w.j.All()
		},
		"messages": func(t *testing.T, w *world) (got []int) {
			for m, err := range w.sub.Messages(t.Context(), jetpull.StopAfter(20)) {
				require.NoError(t, err)
				require.NoError(t, m.Ack())
				got = append(got, int(m.Sequence()))
			}
			return got
		},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.Publish(7)
			time.AfterFunc(time.Minute, func() { w.Publish(50) })
			got := run(t, w)
			require.ElementsMatch(t, stage.UpTo(20), got)
			stage.Pass(time.Second)
			require.Len(t, w.Acks("+ACK"), 20)
			require.Empty(t, w.Acks("-NAK"), "nothing has to be handed back")
			require.Len(t, w.C().Unsettled(), 37, "what was not delivered")
			m, err := w.sub.Next(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 21, m.Sequence())
			require.NoError(t, m.Ack())
		}))
	}
}
