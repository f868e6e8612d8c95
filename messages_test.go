package jetpull_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// Whatever way the loop ends, what it did not get goes back at once, and the
// message that it is at stays its own.
func TestMessagesHandsBack(t *testing.T) {
	for name, tt := range map[string]struct {
		end func(w *world, cancel context.CancelFunc) (stop bool)
		is  error // of the last step, nil for none
	}{
		"break":   {end: func(*world, context.CancelFunc) bool { return true }},
		"panic":   {end: func(*world, context.CancelFunc) bool { panic("loop") }},
		"context": {end: func(_ *world, cancel context.CancelFunc) bool { cancel(); return false }, is: context.Canceled},
		"close": {end: func(w *world, _ context.CancelFunc) bool {
			require.NoError(w.t, w.sub.Close(w.t.Context()))
			return false
		}, is: jetpull.ErrClosed},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{AckWait: time.Hour}, func(t *testing.T, w *world) {
			w.Publish(100)
			var last error
			func() {
				defer func() { require.Equal(t, name == "panic", recover() != nil) }()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for m, err := range w.sub.Messages(ctx, jetpull.Prefetch(30)) {
					require.NoError(t, last, "an error is the last")
					if last = err; err != nil {
						require.Nil(t, m)
						continue
					}
					synctest.Wait()
					if w.j.Note(m.Sequence()); w.j.Len() < 5 {
						require.NoError(t, m.Ack())
					} else if tt.end(w, cancel) {
						break
					}
				}
			}()
			synctest.Wait()
			require.ErrorIs(t, last, tt.is)
			require.Zero(t, w.Elapsed(), "at once")
			require.Equal(t, stage.UpTo(5), w.j.All())
			require.Equal(t, []uint64{5}, w.C().Held(), "the fifth is the caller's; all else went back")
			require.NotEmpty(t, w.Acks("-NAK"))
			require.Empty(t, w.Acks("-NAK", 5))
		}))
	}
}

func TestMessagesYieldsTheErrorOfItsContextOnce(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, what := range []string{"it ends while the loop waits", "it has ended before"} {
			var errs []error
			for m, err := range w.sub.Messages(ctx) {
				require.Nil(t, m, what)
				errs = append(errs, err)
			}
			require.Len(t, errs, 1, what)
			require.ErrorIs(t, errs[0], context.DeadlineExceeded, what)
		}
		require.Equal(t, time.Second, w.Elapsed())
	})
}

// With ack policy none nothing can be handed back: what comes when a call has ended
// waits for the next one.
func TestAckNoneLosesNothingBetweenCalls(t *testing.T) {
	onStage(t, stage.Config{Model: slow, Consumer: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}}, func(t *testing.T, w *world) {
		for i := range 60 {
			c, cancel := context.WithTimeout(t.Context(), time.Duration(20+i*i%170)*milli)
			go func() {
				for range 10 {
					w.Model.Publish("s.a", nil, nil)
					time.Sleep(5 * milli)
				}
			}()
			if i%2 == 0 {
				require.NoError(t, w.sub.Consume(c, taking(&w.j, 0)))
			} else {
				for m, err := range w.sub.Messages(c) {
					if err == nil {
						w.j.Note(m.Sequence())
					}
				}
			}
			cancel()
		}
		w.consume(taking(&w.j, 0))
		stage.Pass(time.Minute)
		require.Equal(t, stage.UpTo(600), w.j.All())
		require.Zero(t, w.sub.Stats().Dropped)
	})
}

// A caller that reads for all, and gets what an ending Messages gives back, returns at once.
func TestWhatIsGivenBackEndsTheCallThatReads(t *testing.T) {
	for range 50 {
		on(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, func(t *testing.T, w *world) {
			var next <-chan result
			var ended time.Duration
			w.Publish(2)
			for _, err := range w.sub.Messages(t.Context()) {
				require.NoError(t, err)
				next = w.next(t.Context(), jetpull.MaxWait(time.Minute))
				stage.Pass(500 * time.Millisecond)
				ended = w.Elapsed()
				break
			}
			r := <-next
			require.NoError(t, r.err)
			require.LessOrEqual(t, r.at-ended, time.Duration(0))
		})
	}
}
