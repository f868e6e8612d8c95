package test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
)

// TestHandlerTimeout: the handler's context says what ended it, the message
// fails as by an error whatever the handler returns, and the handler's place is
// taken until it returns.
func TestHandlerTimeout(t *testing.T) {
	const (
		timeout = 2 * time.Second
		stays   = 7 * time.Second // of a handler that does not look at its context
	)
	for name, tc := range map[string]struct {
		waits   bool // for its context
		returns error
	}{
		"the handler heeds its context":              {waits: true, returns: errNoUse},
		"the handler heeds its context, without one": {waits: true},
		"the handler goes on":                        {},
	} {
		for ordered, opts := range map[string][]jetpull.Option{"": nil, ", ordered by key": {byKey}} {
			t.Run(name+ordered, func(t *testing.T) {
				virtually(t, jetstream.ConsumerConfig{AckWait: time.Second}, func(t *testing.T, w *world) {
					var began, ended []time.Duration
					var seqs []uint64
					told := make(chan error, 10)
					opts := append(opts, jetpull.HandlerTimeout(timeout), jetpull.RetryDelays(0),
						jetpull.MaxAttempts(2), jetpull.DeadLetter("dead.s"), jetpull.OnError(func(err error) { told <- err }))
					w.publish("s.a", 1)
					w.publish("s.b", 1)
					run := consume(t, w.sub, func(ctx context.Context, m *jetpull.Msg) error { // one at a time
						began, seqs = append(began, w.now()), append(seqs, m.Sequence())
						defer func() { ended = append(ended, w.now()) }()
						if m.Sequence() == 2 {
							return nil
						}
						if !tc.waits {
							pass(stays)
						}
						<-ctx.Done()
						assert.ErrorContains(t, context.Cause(ctx), "HandlerTimeout")
						assert.NotErrorIs(t, context.Cause(ctx), context.Canceled)
						return tc.returns
					}, opts...)
					w.settled()
					run.end(t)
					took := timeout
					if !tc.waits {
						took = stays
					}
					tries := 0
					for i, seq := range seqs {
						if i > 0 {
							require.GreaterOrEqual(t, began[i], ended[i-1], "the place of one handler")
						}
						if seq == 1 {
							tries++
							require.InDelta(t, took, ended[i]-began[i], float64(slack))
						}
					}
					require.Equal(t, 2, tries, "it counts against MaxAttempts")
					require.Equal(t, 1, w.model.Messages("DEAD"))
					require.Contains(t, w.model.Header("DEAD", 1, jetpull.HeaderDeadReason)+(<-told).Error(), "HandlerTimeout")
				})
			})
		}
	}
}

// TestAHandlerInTimeIsLeftAlone: its context ends when it returns, and with its
// Consume, and neither is a timeout.
func TestAHandlerInTimeIsLeftAlone(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		causes := make(chan error, 1)
		w.publish("s.a", 1)
		run := consume(t, w.sub, func(ctx context.Context, _ *jetpull.Msg) error {
			<-ctx.Done() // by the end of the drain
			causes <- context.Cause(ctx)
			return nil
		}, jetpull.HandlerTimeout(time.Minute), jetpull.DrainTimeout(time.Second))
		w.until(func() bool { return w.sub.Stats().Running == 1 }, "the handler runs")
		run.stop()
		require.ErrorIs(t, receive(t, run.done, "end of Consume"), jetpull.ErrDrainTimeout)
		require.NotContains(t, (<-causes).Error(), "HandlerTimeout")
		w.settled()
	})
}
