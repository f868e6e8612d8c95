package jetpull_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

type order struct{ ID int }

func TestHandleJSON(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Model.AddStream("D", "dead.>")
		var got []order
		r := w.consume(jetpull.HandleJSON(func(_ ctx, o order, m *jetpull.Msg) error {
			got = append(got, o)
			require.Equal(t, "s.a", m.Subject())
			return nil
		}), jetpull.DeadLetter("dead.letters"), jetpull.MaxAttempts(5))
		w.PublishTo("s.a", nil, `{"ID":7}`)
		w.PublishTo("s.a", nil, `{"ID":"seven"}`)
		w.PublishTo("s.a", nil, `{"ID":8}`)
		require.NoError(t, r.stop())
		require.Equal(t, []order{{7}, {8}}, got)
		require.Zero(t, w.Elapsed(), "what does not parse is not tried again")
		require.Empty(t, w.C().Unsettled())
		require.Equal(t, []int{2}, w.Acked("+TERM"))
		require.Equal(t, 1, w.Model.Messages("D"))
		require.Contains(t, w.Model.Message("D", 1).Header.Get(jetpull.HeaderDeadReason), "not JSON for jetpull_test.order")
		require.True(t, slices.ContainsFunc(r.errs.all(), func(err error) bool { return errors.Is(err, jetpull.ErrPayload) }))

		r = w.consume(jetpull.HandleJSON(func(ctx, order, *jetpull.Msg) error { return nil }))
		w.PublishTo("s.a", nil, `{`)
		require.NoError(t, r.stop())
		require.Equal(t, []int{2, 4}, w.Acked("+TERM"), "without a dead letter it is terminated")
	})
	require.Nil(t, jetpull.HandleJSON[order](nil), "so that Consume refuses it")
}

func TestUse(t *testing.T) {
	var mu sync.Mutex
	var calls []string
	named := func(name string) jetpull.Middleware {
		return func(next jetpull.Handler) jetpull.Handler {
			return func(ctx context.Context, m *jetpull.Msg) error {
				mu.Lock()
				calls = append(calls, name)
				mu.Unlock()
				return next(ctx, m)
			}
		}
	}
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		handle := func(ctx, *jetpull.Msg) error { calls = append(calls, "handler"); return nil }
		w.Publish(1)
		require.NoError(t, w.sub.Consume(t.Context(), handle, jetpull.Use(named("a"), named("b")), jetpull.StopAfter(1), jetpull.Use(named("c"))))
		require.Equal(t, []string{"a", "b", "c", "handler"}, calls)
		calls = nil
		w.Publish(1)
		require.NoError(t, w.sub.Consume(t.Context(), handle, jetpull.StopAfter(1)))
		require.Equal(t, []string{"default", "handler"}, calls, "that of Subscribe")
		for _, wrong := range []jetpull.ConsumeOption{jetpull.Use(nil), jetpull.Use(func(jetpull.Handler) jetpull.Handler { return nil })} {
			err := w.sub.Consume(t.Context(), handle, wrong)
			require.ErrorIs(t, err, jetpull.ErrInvalidOption)
			var named *jetpull.OptionError
			require.ErrorAs(t, err, &named)
			require.Equal(t, "Use", named.Option)
		}
	}, jetpull.Use(named("default")))
}

// Middleware sees what a handler asks for.
func TestMiddlewareSeesResults(t *testing.T) {
	var retry *jetpull.RetryError
	var term *jetpull.TerminateError
	results := []error{jetpull.Retry(time.Second, errBroken), fmt.Errorf("wrapped: %w", jetpull.Terminate("no good", errBroken))}
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(2)
		handler := func(_ ctx, m *jetpull.Msg) error { return results[m.Sequence()-1] }
		require.NoError(t, w.sub.Consume(t.Context(), handler, jetpull.StopAfter(2), jetpull.Use(func(h jetpull.Handler) jetpull.Handler {
			return func(c ctx, m *jetpull.Msg) error {
				err := h(c, m)
				require.True(t, errors.As(err, &retry) || errors.As(err, &term))
				return err
			}
		})))
		require.Equal(t, &jetpull.RetryError{After: time.Second, Err: errBroken}, retry)
		require.Equal(t, &jetpull.TerminateError{Reason: "no good", Err: errBroken}, term)
	})
}

// OnStart is called once, after the options were accepted and before a message is handled.
func TestOnStart(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		var said []string
		start := jetpull.OnStart(func() { said = append(said, "start") })
		require.ErrorIs(t, w.sub.Consume(t.Context(), nothing, start, jetpull.Concurrency(0)), jetpull.ErrInvalidOption)
		require.ErrorIs(t, w.sub.Consume(t.Context(), nothing, start, jetpull.MaxAttempts(1), jetpull.DeadLetter("nowhere")), jetpull.ErrInvalidOption)
		require.Empty(t, said)
		r := w.consume(func(ctx, *jetpull.Msg) error {
			said = append(said, "handled")
			return nil
		}, start)
		w.Publish(2)
		stage.Pass(time.Second)
		require.NoError(t, r.stop())
		require.Equal(t, []string{"start", "handled", "handled"}, said)
		require.ErrorIs(t, w.sub.Consume(t.Context(), nothing, jetpull.OnStart(nil)), jetpull.ErrInvalidOption)
		w.Publish(1)
		require.Panics(t, func() { _ = w.sub.Consume(t.Context(), nothing, jetpull.OnStart(func() { panic("no") })) })
		stage.Pass(time.Second)
		require.Zero(t, w.sub.Stats().Window, "nothing goes on pulling")
	})
}

func TestOnEvent(t *testing.T) {
	cfg := jetstream.ConsumerConfig{AckWait: time.Hour}
	on(t, cfg, func(t *testing.T, w *world) {
		w.Model.AddStream("D", "dead.>")
		var mu sync.Mutex
		var got []string
		note := jetpull.OnEvent(func(e jetpull.Event) {
			mu.Lock()
			defer mu.Unlock()
			require.Error(t, e.Err)
			got = append(got, fmt.Sprintf("#%d attempt %d %s after %v to %q, timed out %t", e.Msg.Sequence(), e.Attempt, e.Outcome, e.After, e.DeadLetter,
				e.TimedOut))
		})
		r := w.consume(func(ctx context.Context, m *jetpull.Msg) error {
			switch m.Sequence() {
			case 1:
				return errors.New("always")
			case 2:
				return jetpull.Terminate("of no use", nil)
			case 3:
				if m.Delivered() == 1 {
					<-ctx.Done()
					return ctx.Err()
				}
			}
			return nil
		}, note, jetpull.MaxAttempts(2), jetpull.DeadLetter("dead.letters"), jetpull.RetryDelays(3*time.Second), jetpull.HandlerTimeout(time.Second))
		w.Publish(4)
		stage.Pass(time.Minute)
		require.NoError(t, r.stop())
		require.Equal(t, []string{
			`#1 attempt 1 retried after 3s to "", timed out false`,
			`#2 attempt 1 terminated after 0s to "", timed out false`,
			`#3 attempt 1 retried after 3s to "", timed out true`,
			`#1 attempt 2 dead_lettered after 0s to "dead.letters", timed out false`,
		}, got)
		st := w.sub.Stats()
		require.Equal(t, []uint64{4, 1, 2, 1, 1}, []uint64{st.Failed, st.TimedOut, st.Retried, st.DeadLettered, st.Terminated})
		require.Empty(t, r.errs.all(), "an attempt that makes an event is no problem too")
		dead := w.Logs.With("became a dead letter", "sequence=1", "subject=s.a", "dead_letter=dead.letters", "attempts=2", "reason=always")
		require.Len(t, dead, 1, "%v", w.Logs.With("dead letter"))
		require.ErrorIs(t, w.sub.Consume(t.Context(), nothing, jetpull.OnEvent(nil)), jetpull.ErrInvalidOption)
	})
}

// Each failure goes to either OnEvent or OnError: OnEvent gets the attempts that make an event, and OnError all others.
func TestAFailureIsReportedOnce(t *testing.T) {
	failing := func(ctx, *jetpull.Msg) error { return errBroken }
	waiting := func(c ctx, _ *jetpull.Msg) error { <-c.Done(); return c.Err() }
	for name, tt := range map[string]struct {
		cfg   jetstream.ConsumerConfig
		h     jetpull.Handler // of the first attempt
		opts  []jetpull.ConsumeOption
		event jetpull.EventOutcome
		errs  []string // with OnEvent
		alone []string // without it
	}{
		"an error": {h: failing, event: jetpull.Retried, alone: []string{"broken"}},
		"one of a message that the handler has settled": {
			h: func(_ ctx, m *jetpull.Msg) error { return errors.Join(m.Ack(), errBroken) }, errs: []string{"broken"}, alone: []string{"broken"},
		},
		"ack policy none": {
			cfg: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, h: failing, errs: []string{"broken"}, alone: []string{"broken"},
		},
		"a time limit": {
			h: waiting, opts: opts(jetpull.HandlerTimeout(time.Second)), event: jetpull.Retried, alone: []string{"HandlerTimeout"},
		},
		"a time limit of an ordered message": {
			h: waiting, opts: opts(jetpull.HandlerTimeout(time.Second), jetpull.OrderedBy((*jetpull.Msg).Subject)), event: jetpull.Retried,
			alone: []string{"HandlerTimeout"},
		},
		"the last delivery": {
			cfg: jetstream.ConsumerConfig{MaxDeliver: 1}, h: failing, event: jetpull.HandedBack, alone: []string{"broken", "its last delivery"},
		},
		"a dead letter that is not stored": {
			h: failing, opts: opts(jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.s")),
			event: jetpull.Retried, errs: []string{"to dead.s"}, alone: []string{"to dead.s", "broken"},
		},
	} {
		for _, both := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, with OnEvent %t", name, both), at(tt.cfg, func(t *testing.T, w *world) {
				w.Model.AddStream("D", "dead.>")
				w.Model.LosePublishes("D", 1)
				var attempts atomic.Int32
				events := make(chan jetpull.EventOutcome, 9)
				want, o := tt.alone, append(opts(jetpull.RetryDelays(time.Second)), tt.opts...)
				if tt.cfg.AckPolicy == jetstream.AckNonePolicy {
					o = tt.opts
				}
				if both {
					want, o = tt.errs, append(o, jetpull.OnEvent(func(e jetpull.Event) { events <- e.Outcome }))
				}
				r := w.consume(func(c ctx, m *jetpull.Msg) error {
					if attempts.Add(1) == 1 {
						return tt.h(c, m)
					}
					return nil
				}, o...)
				w.Publish(1)
				stage.Pass(10 * time.Second)
				require.NoError(t, r.stop())
				require.Equal(t, both && tt.event != "", len(events) == 1)
				require.True(t, len(events) == 0 || <-events == tt.event)
				errs := r.errs.all()
				require.Len(t, errs, len(want), "%v", errs)
				for i, text := range want {
					require.ErrorContains(t, errs[i], text)
				}
			}))
		}
	}
}

// A handler that hands its message back itself has not failed, however often it does.
func TestHandlersThatHandBackAreNotLimited(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		r := w.consume(func(_ ctx, m *jetpull.Msg) error {
			if w.j.Note(m.Sequence()) < 9 {
				return m.NakWithDelay(time.Second)
			}
			return nil
		}, jetpull.MaxAttempts(2))
		w.Publish(1)
		stage.Pass(time.Minute)
		require.NoError(t, r.stop())
		require.Equal(t, 9, w.j.Len())
		require.Empty(t, w.C().Unsettled())
		require.Zero(t, w.sub.Stats().Failed+w.sub.Stats().Terms)
	})
}

// With ack policy none, a failure is logged as one that is not redelivered.
func TestAFailureWithAckPolicyNone(t *testing.T) {
	on(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, func(t *testing.T, w *world) {
		r := w.consume(func(ctx, *jetpull.Msg) error { return errBroken })
		w.Publish(1)
		stage.Pass(time.Second)
		require.NoError(t, r.stop())
		require.Len(t, w.Logs.With("handler failed", "ack policy none"), 1)
	})
}

// The server adds the entries of BackOff to the delay of a NAK. A retry is nevertheless on time, as its event says.
func TestDelaysOnAConsumerWithBackOff(t *testing.T) {
	cfg := jetstream.ConsumerConfig{BackOff: []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 3 * time.Second}}
	after := func(ds ...time.Duration) []time.Duration { return ds }
	for name, tt := range map[string]struct {
		h    jetpull.Handler
		opts []jetpull.ConsumeOption
		want []time.Duration
	}{
		"BackOff": {nil, nil, after(500*time.Millisecond, 1500*time.Millisecond, 3*time.Second, 3*time.Second)},
		"shorter": {
			nil, opts(jetpull.RetryDelays(300 * time.Millisecond)),
			after(300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond),
		},
		"longer": {nil, opts(jetpull.RetryDelays(0, time.Second, 20*time.Second)), after(0, time.Second, 20*time.Second, 20*time.Second)},
		"in place": {
			nil, opts(bySubject, jetpull.RetryDelays(300*time.Millisecond, time.Second)),
			after(300*time.Millisecond, time.Second, time.Second),
		},
		"by Retry":        {func(ctx, *jetpull.Msg) error { return jetpull.Retry(time.Second, nil) }, nil, after(time.Second, time.Second, time.Second)},
		"by NakWithDelay": {func(_ ctx, m *jetpull.Msg) error { return m.NakWithDelay(time.Second) }, nil, after(time.Second, time.Second, time.Second)},
		"by Nak":          {func(_ ctx, m *jetpull.Msg) error { return m.Nak() }, nil, after(0, 0, 0)},
	} {
		t.Run(name, at(cfg, func(t *testing.T, w *world) {
			var began time.Time
			var got, said []time.Duration
			r := w.consume(func(c ctx, m *jetpull.Msg) error {
				if !began.IsZero() {
					got = append(got, time.Since(began))
				}
				switch began = time.Now(); {
				case len(got) == len(tt.want):
					return nil
				case tt.h != nil:
					return tt.h(c, m)
				}
				return errBroken
			}, append(tt.opts, jetpull.OnEvent(func(e jetpull.Event) { said = append(said, e.After) }))...)
			w.Publish(1)
			stage.Pass(2 * time.Minute)
			require.NoError(t, r.stop())
			require.Len(t, got, len(tt.want))
			for i, d := range tt.want {
				near(t, d, got[i], 20*time.Millisecond, "attempt %d", i+2)
			}
			if len(said) > 0 {
				require.Equal(t, tt.want, said)
			}
		}))
	}
}

func TestDrainBuffered(t *testing.T) {
	for name, tt := range map[string]struct {
		drain   time.Duration
		handled int
		is      error
	}{
		"in time":  {time.Minute, 10, nil},
		"too long": {4 * time.Second, 5, jetpull.ErrDrainTimeout},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{AckWait: time.Hour}, func(t *testing.T, w *world) {
			r := w.consume(taking(&w.j, time.Second), jetpull.DrainBuffered(), jetpull.DrainTimeout(tt.drain), jetpull.Prefetch(20))
			w.Publish(10)
			stage.Pass(500 * time.Millisecond)
			require.ErrorIs(t, r.stop(), tt.is)
			require.Equal(t, stage.UpTo(tt.handled), w.j.All())
			require.Len(t, w.Acked("-NAK"), 10-tt.handled, "the rest goes back")
		}))
	}
	on(t, jetstream.ConsumerConfig{AckWait: time.Hour}, func(t *testing.T, w *world) {
		r := w.consume(taking(&w.j, time.Second), jetpull.DrainBuffered(), jetpull.Prefetch(20))
		w.Publish(10)
		stage.Pass(500 * time.Millisecond)
		w.NC.Close()
		require.ErrorIs(t, r.result(), jetpull.ErrClosed)
		require.Equal(t, stage.UpTo(1), w.j.All(), "no acknowledgement could be sent of another")
	})
}

func TestSubscribeConsumer(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		c, err := w.JS.Consumer(t.Context(), "S", "C")
		require.NoError(t, err)
		once, cancel := context.WithCancel(t.Context())
		sub, err := jetpull.SubscribeConsumer(once, w.JS, c, jetpull.MaxWait(time.Second))
		require.NoError(t, err)
		cancel() // it counts for the call alone
		w.Publish(1)
		m, err := sub.Next(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Ack())
		require.NoError(t, sub.Close(t.Context()))
		_, err = jetpull.SubscribeConsumer(t.Context(), w.JS, nil)
		require.ErrorIs(t, err, jetpull.ErrInvalidOption)
	})
}

// A message whose time has passed when its handler would begin is given up as by MaxAttempts, even if it waited for a worker.
func TestExpiresAt(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Model.AddStream("D", "dead.>")
		start := time.Now()
		var events []jetpull.Event
		r := w.consume(taking(&w.j, 3*second), jetpull.DeadLetter("dead.s"), jetpull.OnEvent(func(e jetpull.Event) { events = append(events, e) }),
			jetpull.ExpiresAt(func(m *jetpull.Msg) time.Time {
				switch m.Sequence() {
				case 2:
					return start.Add(2 * second)
				case 3:
					return start.Add(time.Minute)
				}
				return time.Time{}
			}))
		w.Publish(4)
		stage.Pass(20 * second)
		require.NoError(t, r.stop())
		require.Equal(t, []int{1, 3, 4}, w.j.All())
		require.Equal(t, "2", w.Model.Header("D", 1, jetpull.HeaderDeadSequence))
		require.Equal(t, "expired", w.Model.Header("D", 1, jetpull.HeaderDeadReason))
		require.Len(t, events, 1)
		require.Equal(t, jetpull.DeadLettered, events[0].Outcome)
		require.Equal(t, []uint64{1, 1, 1}, []uint64{w.sub.Stats().Failed, w.sub.Stats().Expired, w.sub.Stats().DeadLettered})
		require.Empty(t, w.C().Unsettled())
	})
}

// A panic of the function of ExpiresAt is an error of its message. Other messages continue.
func TestExpiresAtThatPanics(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		r := w.consume(taking(&w.j, 0), jetpull.MaxAttempts(1), jetpull.ExpiresAt(func(m *jetpull.Msg) time.Time {
			if m.Sequence() == 1 {
				panic("broken")
			}
			return time.Time{}
		}))
		w.Publish(2)
		stage.Pass(second)
		require.NoError(t, r.stop())
		require.Equal(t, []int{2}, w.j.All())
		require.Equal(t, []int{1}, w.Acked("+TERM"))
	})
}
