package jetpull_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

var bySubject = jetpull.OrderedBy((*jetpull.Msg).Subject)

func TestConsumeOrderedBy(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		keys := []string{"s.a", "s.b", "s.c"}
		for i := range 60 {
			w.PublishTo(keys[i%3], nil, "")
		}
		var tries stage.Journal
		w.consume(func(_ ctx, m *jetpull.Msg) error {
			<-time.After(10 * time.Millisecond)
			if tries.Note(m.Sequence()) == 1 && m.Sequence()%7 == 0 {
				return jetpull.Retry(100*time.Millisecond, errBroken)
			}
			w.j.Note(m.Sequence())
			return nil
		}, bySubject, jetpull.Concurrency(4))
		w.soon(2*time.Second, "all of it", func() bool { return len(w.C().Unsettled()) == 0 })
		require.Equal(t, 68, tries.Len())
		for key := range 3 {
			of := slices.DeleteFunc(w.j.All(), func(seq int) bool { return seq%3 != key })
			require.Len(t, of, 20)
			require.True(t, slices.IsSorted(of), "%v", of)
		}
	})
}

// A message that failed stays here, first of its key, and is kept in progress
// until its turn, whatever KeepAlive says. Others of its key wait, and those of
// other keys do not.
func TestOrderedFailuresAreRetriedInPlace(t *testing.T) {
	for name, opts := range map[string][]jetpull.Option{
		"one worker": nil, "workers": {jetpull.Concurrency(4)}, "KeepAlive off": {jetpull.KeepAlive(false)},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{AckWait: 2 * time.Second}, func(t *testing.T, w *world) {
			for _, key := range []string{"s.a", "s.a", "s.b", "s.a", "s.b"} {
				w.PublishTo(key, nil, "")
			}
			var again time.Duration
			r := w.consume(func(_ ctx, m *jetpull.Msg) error {
				if n := w.j.Note(m.Sequence()); m.Sequence() == 1 && n == 1 {
					return jetpull.Retry(20*time.Second, errBroken)
				}
				again = w.Elapsed()
				return nil
			}, append(opts, bySubject)...)
			stage.Pass(10 * time.Second)
			require.ElementsMatch(t, []int{1, 3, 5}, w.j.All())
			require.GreaterOrEqual(t, len(w.Acks("+WPI", 1)), 5)
			stage.Pass(time.Minute)
			require.Equal(t, []int{1, 2, 4}, w.j.All()[3:])
			near(t, 20*time.Second, again, 20*time.Millisecond)
			require.Empty(t, w.Acks("-NAK"))
			require.Len(t, r.errs.all(), 1)
			require.NoError(t, r.stop())
			require.Equal(t, 1, w.deliveries(1), "Delivered does not grow")
		}))
	}
}

// A message that waits for its retry when Consume ends goes back, with what waits behind it.
func TestOrderedFailuresGoBackAtTheEnd(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(5)
		r := w.consume(failing(&w.j, 9, 1), bySubject, jetpull.RetryDelays(time.Hour))
		stage.Pass(time.Minute)
		require.NoError(t, r.stop())
		require.Equal(t, time.Minute, w.Elapsed())
		require.Equal(t, []int{1}, w.j.All())
		synctest.Wait()
		require.Empty(t, w.C().Held())
		require.ElementsMatch(t, stage.UpTo(5), w.Acked("-NAK"))
	})
}

// Attempts are the server's deliveries and, by key, the tries in place.
func TestFailuresCountTheirTries(t *testing.T) {
	for before := range 3 {
		for _, opts := range [][]jetpull.Option{nil, {bySubject}} {
			on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
				w.Publish(1)
				for range before {
					m, err := w.sub.Next(t.Context())
					require.NoError(t, err)
					require.NoError(t, m.Nak())
				}
				var at []time.Duration
				w.consume(func(ctx, *jetpull.Msg) error {
					at = append(at, w.Elapsed())
					return errBroken
				}, append(opts, jetpull.MaxAttempts(4), jetpull.RetryDelays(second, 3*second, 7*second))...)
				stage.Pass(time.Minute)
				want := []time.Duration{0, second, 4 * second, 11 * second}[before:]
				require.Len(t, at, 4-before)
				for i := range at {
					near(t, want[i]-want[0], at[i], 50*time.Millisecond)
				}
				require.Len(t, w.Acks("+TERM"), 1)
				require.Equal(t, "failed 4 times: broken", w.Acks("+TERM", 1)[0].Arg)
			})
		}
	}
}

// A failed message holds back its key until it is handled, whatever happens to
// server and connection meanwhile. A handler's own NAK lets the key go.
func TestAFailedMessageHoldsItsKeyInADisturbance(t *testing.T) {
	for name, tt := range map[string]struct {
		server model.Config
		do     func(w *world)
		own    bool
		want   []int
	}{
		"a cut":              {do: func(w *world) { w.disconnect(); stage.Pass(3 * time.Second); w.reconnect() }},
		"a change of leader": {server: model.Config{Replicas: 3}, do: func(w *world) { w.C().StepDown() }},
		"a crash":            {do: func(w *world) { w.Crash(3 * time.Second) }},
		"a pause":            {do: func(w *world) { w.C().Pause(time.Now().Add(40 * time.Second)) }},
		"silence":            {do: func(w *world) { w.Hush(20 * time.Second) }},
		"its own NAK":        {own: true, do: func(*world) {}, want: []int{1, 2, 3, 4, 5, 1}},
	} {
		t.Run(name, atStage(stage.Config{Model: tt.server}, func(t *testing.T, w *world) {
			r := w.consume(func(_ ctx, m *jetpull.Msg) error {
				switch n := w.j.Note(m.Sequence()); {
				case m.Sequence() > 1 || n > 1:
					return nil
				case tt.own:
					return m.NakWithDelay(8 * time.Second)
				}
				return errBroken
			}, bySubject, jetpull.RetryDelays(8*time.Second))
			w.Publish(5)
			stage.Pass(time.Second)
			tt.do(w)
			stage.Pass(5 * time.Minute)
			require.NoError(t, r.stop())
			if tt.want == nil {
				tt.want = []int{1, 1, 2, 3, 4, 5}
			}
			require.Equal(t, tt.want, w.j.All())
			require.Empty(t, w.C().Unsettled())
		}))
	}
}

// A key that keeps failing fills the window: nothing else is read then, and a
// warning names the message.
func TestAKeyThatKeepsFailingFillsTheWindow(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(20)
		w.PublishTo("s.b", nil, "")
		w.consume(failing(&w.j, 1, 1), bySubject, jetpull.RetryDelays(10*time.Minute), jetpull.Prefetch(8))
		stage.Pass(9 * time.Minute)
		require.Equal(t, []int{1}, w.j.All())
		require.Len(t, w.C().Held(), 8)
		require.NotEmpty(t, w.Logs.With("level=WARN", "handler failed", "sequence=1"))
		stage.Pass(2 * time.Minute)
		require.Contains(t, w.j.All(), 21, "of another key, whose turn depends on the pulls")
		require.Equal(t, append([]int{1}, stage.UpTo(20)...), slices.DeleteFunc(w.j.All(), func(seq int) bool { return seq == 21 }))
	})
}

// A panic of OrderedBy is one for a single message: the others go on, and it is
// given up like one whose handler failed.
func TestAPanicOfOrderedBy(t *testing.T) {
	for name, opts := range map[string][]jetpull.Option{"one worker": nil, "workers": {jetpull.Concurrency(4)}} {
		t.Run(name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.Model.AddStream("D", "dead.>")
			key := jetpull.OrderedBy(func(m *jetpull.Msg) string { return m.Headers()["Key"][0] })
			r := w.consume(taking(&w.j, 0), append(opts, key, jetpull.RetryDelays(0, 5*time.Second), jetpull.MaxAttempts(3), jetpull.DeadLetter("dead.letters"))...)
			for _, header := range []nats.Header{{"Key": {"a"}}, nil, {"Key": {"a"}}, {"Key": {""}}} {
				w.PublishTo("s.a", header, "body")
			}
			stage.Pass(time.Millisecond)
			require.ElementsMatch(t, []int{1, 3, 4}, w.j.All(), "it holds up no other")
			stage.Pass(time.Minute)
			require.Equal(t, 1, w.Model.Messages("D"))
			dead := w.Model.Message("D", 1).Header
			require.Equal(t, "the OrderedBy function panicked: runtime error: index out of range [0] with length 0", dead.Get(jetpull.HeaderDeadReason))
			require.Equal(t, "3", dead.Get(jetpull.HeaderDeadAttempts))
			require.EqualValues(t, 2, w.sub.Stats().Redelivered)
			require.Empty(t, w.C().Unsettled())
			require.Len(t, r.errs.all(), 3)
			for _, err := range r.errs.all() {
				require.ErrorContains(t, err, "stream sequence 2")
				require.ErrorContains(t, err, "failures_test.go", "where it panicked")
			}
		}))
	}
}

// buried is a Consume whose handler fails, with a stream D for dead letters.
type buried struct {
	*run
	j stage.Journal
}

// bury starts it on n messages, which it tries to handle attempts times.
func (w *world) bury(n, attempts int, opts ...jetpull.Option) *buried {
	w.Model.AddStream("D", "dead.>")
	w.Publish(n)
	b := &buried{}
	b.run = w.consume(failing(&b.j, 99, stage.UpTo(n)...), append([]jetpull.Option{
		jetpull.MaxAttempts(attempts), jetpull.DeadLetter("dead.letters"), jetpull.RetryDelays(0),
	}, opts...)...)
	return b
}

// full makes the stream of dead letters refuse them.
func (w *world) full(tries *int) {
	w.Take(func(op natstest.Op) bool {
		if op.Subject != "dead.letters" {
			return false
		}
		*tries++
		return w.Peer.ReplyError(op.Reply, 400, 10054, "message size exceeds maximum allowed")
	})
}

func TestDeadLetter(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Model.AddStream("D", "dead.>")
		w.PublishTo("s.order", nats.Header{"Trace": {"t1"}, "Nats-Msg-Id": {"id-7"}, "Nats-Expected-Stream": {"S"}}, "payload")
		w.consume(func(ctx, *jetpull.Msg) error { panic("does\nnot work") }, jetpull.MaxAttempts(2), jetpull.DeadLetter("dead.letters"), jetpull.RetryDelays(0))
		stage.Pass(time.Minute)
		require.Len(t, w.Acks("+TERM", 1), 1)
		dead := w.Model.Message("D", 1)
		require.Equal(t, "payload", string(dead.Body))
		require.Equal(t, nats.Header{
			"Trace": {"t1"}, "Nats-Msg-Id": {fmt.Sprintf("S:C:1:%d", w.Start.UnixNano())},
			jetpull.HeaderDeadMsgID: {"id-7"}, jetpull.HeaderDeadStream: {"S"}, jetpull.HeaderDeadSequence: {"1"},
			jetpull.HeaderDeadSubject: {"s.order"}, jetpull.HeaderDeadConsumer: {"C"}, jetpull.HeaderDeadAttempts: {"2"},
			jetpull.HeaderDeadReason: {"the handler panicked: does not work"}, // without the stack
		}, dead.Header)
	})
}

// A copy that is not stored keeps the original; one whose confirmation is lost is
// stored once.
func TestDeadLetterThatFailsKeepsTheOriginal(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		var tries int
		w.full(&tries)
		b := w.bury(1, 1)
		stage.Pass(30 * time.Second)
		require.Empty(t, w.Acks("+TERM"), "terminated without a copy")
		require.Equal(t, []uint64{1}, w.C().Unsettled())
		require.NotZero(t, tries)
		require.LessOrEqual(t, tries, 40, "no flood of tries")
		require.True(t, slices.ContainsFunc(b.errs.all(), func(err error) bool { return strings.Contains(err.Error(), "dead letter") }))
		w.Take(nil)
		w.Model.LosePublishes("D", 1)
		w.soon(2*time.Minute, "it is stored, and not confirmed", func() bool { return w.Model.Messages("D") == 1 })
		w.Model.LosePublishes("D", 0)
		stage.Pass(2 * time.Minute)
		require.Equal(t, 1, w.Model.Messages("D"))
		require.Len(t, w.Acks("+TERM", 1), 1)
	})
}

// At the last delivery that MaxDeliver allows the worker tries until the copy is
// stored, and handles nothing else meanwhile.
func TestDeadLetterAtTheLastDelivery(t *testing.T) {
	for _, stop := range []bool{false, true} {
		on(t, jetstream.ConsumerConfig{MaxDeliver: 2, AckWait: 4 * time.Second}, func(t *testing.T, w *world) {
			var tries int
			w.full(&tries)
			b := w.bury(1, 2, jetpull.KeepAlive(stop))
			w.Publish(1)
			stage.Pass(20 * time.Minute)
			require.Equal(t, []int{1, 1}, b.j.All())
			require.GreaterOrEqual(t, len(w.Acks("+WPI", 1)), 20*60/4, "kept alive, or the server would be done with it")
			require.LessOrEqual(t, tries, 300, "no flood of tries")
			if stop {
				b.cancel()
				stage.Pass(8 * time.Second)
				require.True(t, b.running(), "given up although the message would be lost")
			}
			w.Take(nil)
			stage.Pass(2 * time.Minute)
			require.Equal(t, 1, w.Model.Messages("D"))
			require.Equal(t, "1", w.Model.Header("D", 1, jetpull.HeaderDeadSequence))
			require.NoError(t, b.stop())
			require.Equal(t, !stop, b.j.Len() == 3, "the worker goes on")
		})
	}
}

// When the drain is over, what has no dead letter is handed back and reported.
func TestDeadLetterEndsWithTheDrain(t *testing.T) {
	for _, most := range []int{0, 1} {
		on(t, jetstream.ConsumerConfig{AckWait: time.Hour, MaxDeliver: most}, func(t *testing.T, w *world) {
			w.Take(func(op natstest.Op) bool { return op.Subject == "dead.letters" })
			b := w.bury(1, 1, jetpull.DrainTimeout(time.Second))
			stage.Pass(time.Second)
			require.ErrorIs(t, b.stop(), jetpull.ErrDrainTimeout)
			near(t, 2*time.Second, w.Elapsed(), time.Second)
			require.Len(t, w.Acks("-NAK", 1), 1)
			require.Empty(t, w.Acks("+TERM"), "nothing says that it was dealt with")
			require.True(t, slices.ContainsFunc(b.errs.all(), func(err error) bool {
				return strings.Contains(err.Error(), "dead letter") && strings.Contains(err.Error(), "stream sequence 1")
			}), "%v", b.errs.all())
		})
	}
}

func TestDeadLettersThatWouldComeBackAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		subject, says string
		filters       []string
		fine          bool
	}{
		"nobody stores it":         {"gone.letters", "no stream", nil, false},
		"the consumer delivers it": {"s.dead", "loop", nil, false},
		"within the filter":        {"s.dead", "loop", []string{"t.*", "s.>"}, false},
		"a wildcard in its place":  {"s.dead", "loop", []string{"s.*"}, false},
		"outside the filter":       {"s.dead", "", []string{"s.a"}, true},
		"outside a deeper one":     {"s.dead", "", []string{"s.*.x"}, true},
		"in another stream":        {"dead.letters", "", nil, true},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{FilterSubjects: tc.filters}, func(t *testing.T, w *world) {
			w.Model.AddStream("D", "dead.>")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := w.sub.Consume(ctx, nothing, jetpull.MaxAttempts(1), jetpull.DeadLetter(tc.subject))
			if tc.fine {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, jetpull.ErrInvalidOption)
			require.ErrorContains(t, err, tc.says)
			require.ErrorContains(t, err, tc.subject)
			require.Empty(t, w.Pulls())
		}))
	}
}

// A finite MaxDeliver can lose a message or stop a worker.
func TestWarningsOfDeadLetters(t *testing.T) {
	on(t, jetstream.ConsumerConfig{MaxDeliver: 5}, func(t *testing.T, w *world) {
		log := jetpull.Logger(w.Logs.Logger())
		w.subscribe(w.JS, jetpull.DeadLetter("dead.letters"), jetpull.MaxAttempts(3), log)
		require.Len(t, w.Logs.With("level=WARN", "MaxDeliver"), 1)
	})
}

// A message that Consume has read ahead at its last delivery is handled after the end, for
// the server would not deliver it again; the rest goes back.
func TestConsumeHandlesLastDeliveriesAtTheEnd(t *testing.T) {
	for name, opts := range map[string][]jetpull.Option{
		"one worker": nil, "workers": {jetpull.Concurrency(4)}, "by key": {jetpull.Concurrency(4), bySubject},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{MaxDeliver: 2}, func(t *testing.T, w *world) {
			for _, m := range w.take(10) {
				require.NoError(t, m.Nak())
			}
			w.Publish(10)
			r := w.consume(taking(&w.j, 100*time.Millisecond), append(opts, jetpull.Prefetch(20))...)
			stage.Pass(50 * time.Millisecond)
			require.NoError(t, r.stop())
			require.ElementsMatch(t, stage.UpTo(10), w.j.All())
			require.True(t, name == "workers" || slices.IsSorted(w.j.All()))
			require.ElementsMatch(t, stage.UpTo(20)[10:], w.Acked("-NAK")[10:])
		}))
	}
	// A message that DrainTimeout leaves no time for is reported.
	on(t, jetstream.ConsumerConfig{MaxDeliver: 1}, func(t *testing.T, w *world) {
		w.Publish(5)
		r := w.consume(func(ctx ctx, m *jetpull.Msg) error { w.j.Note(m.Sequence()); <-ctx.Done(); return nil }, jetpull.DrainTimeout(time.Second), jetpull.Prefetch(5))
		stage.Pass(10 * time.Millisecond)
		err := r.stop()
		require.ErrorIs(t, err, jetpull.ErrDrainTimeout)
		require.ErrorContains(t, err, "4 messages at their last delivery")
		require.Equal(t, []int{1}, w.j.All())
		stage.Pass(time.Second)
		require.Len(t, r.errs.all(), 4)
		require.ErrorContains(t, r.errs.all()[0], "stream sequence 2")
	})
}

// typedNil is an error that panics when it is asked for its text, as a nil pointer to a type does.
type typedNil struct{ text string }

func (e *typedNil) Error() string { return e.text }

func TestATypedNilIsAnError(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(1)
		w.consume(func(ctx, *jetpull.Msg) error {
			var e *typedNil
			return e
		}, jetpull.MaxAttempts(1))
		stage.Pass(time.Second)
		require.Len(t, w.Acks("+TERM", 1), 1)
	})
}

// A message that its handler is settling when HandlerTimeout passes is not failed as well.
func TestHandlerTimeoutWhileTheHandlerSettles(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Model.AddStream("D", "dead.>")
		w.Publish(1)
		r := w.consume(func(c ctx, m *jetpull.Msg) error {
			_, err := m.AckNext(context.WithoutCancel(c), jetpull.MaxWait(2*time.Second))
			return err
		}, jetpull.HandlerTimeout(time.Second), jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.letters"))
		stage.Pass(5 * time.Second)
		require.NoError(t, r.stop())
		require.Zero(t, w.Model.Messages("D"))
		require.Zero(t, w.sub.Stats().Failed)
		require.Empty(t, w.C().Unsettled())
		require.Len(t, r.errs.all(), 1, "of the timeout")
	})
}

// The results of handlers after Close are reported like all others.
func TestEventsAfterClose(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(1)
		var events atomic.Int32
		r := w.consume(func(ctx, *jetpull.Msg) error {
			<-time.After(time.Second)
			return errBroken
		}, jetpull.OnEvent(func(jetpull.Event) { events.Add(1) }))
		other := w.subscribe(w.JS)
		problems := w.consumeOn(other, func(ctx, *jetpull.Msg) error {
			<-time.After(time.Second)
			return errBroken
		})
		w.Publish(1)
		stage.Pass(time.Millisecond)
		require.NoError(t, w.sub.Close(t.Context()))
		stage.Pass(time.Millisecond) // the other one begins with what the first has handed back
		require.NoError(t, other.Close(t.Context()))
		require.ErrorIs(t, r.result(), jetpull.ErrClosed)
		require.ErrorIs(t, problems.result(), jetpull.ErrClosed)
		require.EqualValues(t, 1, events.Load())
		require.Len(t, problems.errs.all(), 1)
	})
}
