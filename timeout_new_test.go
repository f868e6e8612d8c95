package jetpull_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// A handler that is over its time has its context ended, with a cause, and its
// message fails as by an error. Its slot stays taken until it returns.
func TestHandlerTimeout(t *testing.T) {
	for name, opts := range map[string][]jetpull.Option{"by default": nil, "by key": {bySubject}} {
		t.Run(name, at(jetstream.ConsumerConfig{AckWait: 5 * time.Second}, func(t *testing.T, w *world) {
			w.Publish(1)
			w.PublishTo("s.b", nil, "")
			var cause error
			var at []time.Duration
			r := w.consume(func(ctx ctx, m *jetpull.Msg) error {
				if at = append(at, w.Elapsed()); w.j.Note(m.Sequence()) == 1 && m.Sequence() == 1 {
					<-ctx.Done()
					cause = context.Cause(ctx)
					<-time.After(10 * time.Second)
				}
				return nil
			}, append(opts, jetpull.HandlerTimeout(20*time.Second), jetpull.RetryDelays(time.Minute), jetpull.DrainTimeout(time.Hour))...)
			stage.Pass(25 * time.Second)
			require.Error(t, cause)
			require.ErrorIs(t, cause, context.DeadlineExceeded)
			require.Len(t, r.errs.all(), 1)
			require.ErrorContains(t, r.errs.all()[0], "stream sequence 1")
			require.Equal(t, []int{1}, w.j.All(), "the slot is taken")
			stage.Pass(2 * time.Minute)
			require.Equal(t, []int{1, 2, 1}, w.j.All())
			require.Equal(t, 30*time.Second, at[1])
			near(t, 80*time.Second, at[2], 10*time.Second)
			require.Equal(t, 2, len(w.Acks("+ACK")))
			require.Empty(t, w.C().Unsettled())
		}))
	}
}

func TestHandlerTimeoutOutOfRange(t *testing.T) {
	onPolicies(t, func(t *testing.T, w *world) {
		for d, want := range map[time.Duration]bool{0: false, -1: false, time.Millisecond: true, time.Hour: true} {
			ok, err := w.accepts("Consume", "C", jetpull.HandlerTimeout(d))
			require.Equal(t, want, ok, "%v: %v", d, err)
		}
		for _, call := range []string{"Next", "Fetch", "Messages"} {
			ok, _ := w.accepts(call, "C", jetpull.HandlerTimeout(time.Second))
			require.False(t, ok, call)
		}
	})
}
