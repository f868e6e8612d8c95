package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// TestAckNoneLosesNothingInSilence: nobody delivers again what such a consumer has
// delivered. Calls begin and end while messages keep coming; in the end each that the
// server has delivered was handed over once, in order, or is counted as dropped.
func TestAckNoneLosesNothingInSilence(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*testing.T, *jetpull.Subscription, int, func(*jetpull.Msg)){
		"Consume":  consumeSome,
		"Messages": loopOverSome,
		"in turn": func(t *testing.T, sub *jetpull.Subscription, n int, take func(*jetpull.Msg)) {
			if n%2 == 0 {
				consumeSome(t, sub, n, take)
			} else {
				loopOverSome(t, sub, n, take)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const rounds = 300
			r := newRig(t)
			sub := r.subscribe(t, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
			stopFeed := feed(t, natstest.JetStream(t, connect(t, r.server.URL())), 2000)
			handed, last := uint64(0), uint64(0)
			seed := rand.Uint64()
			rng := rand.New(rand.NewPCG(seed, 0))
			for range rounds {
				call(t, sub, 1+rng.IntN(12), func(m *jetpull.Msg) {
					if m.Sequence() <= last {
						t.Errorf("message %d after %d", m.Sequence(), last)
					}
					handed, last = handed+1, m.Sequence()
				})
			}
			total := stopFeed()
			// A message that was on order when the last call ended arrives, and is kept for the next.
			var delivered uint64
			eventually(t, func() error {
				c, err := lookUp(t, r.js, "S", "C")
				if err != nil {
					return err
				}
				if i := c.CachedInfo(); i.NumPending > 0 && i.NumWaiting > 0 {
					return fmt.Errorf("%d pending, %d pulls", i.NumPending, i.NumWaiting)
				}
				return nil
			}, "the server has delivered what it can")
			require.NoError(t, sub.Close(t.Context()))
			delivered = r.delivered(t)
			dropped := sub.Stats().Dropped
			require.Equal(t, delivered, handed+dropped, "seed %d: %d handed over, %d dropped", seed, handed, dropped)
			t.Logf("%d published, %d delivered, %d handed over, %d dropped", total, delivered, handed, dropped)
		})
	}
}

// consumeSome runs a Consume that stops at its n-th message, and takes what it
// handles until it ends.
func consumeSome(t *testing.T, sub *jetpull.Subscription, n int, take func(*jetpull.Msg)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	require.NoError(t, sub.Consume(ctx, func(_ context.Context, m *jetpull.Msg) error {
		take(m)
		if n--; n == 0 {
			stop()
		}
		return nil
	}))
}

// loopOverSome breaks a loop over Messages at the n-th.
func loopOverSome(t *testing.T, sub *jetpull.Subscription, n int, take func(*jetpull.Msg)) {
	t.Helper()
	for m, err := range sub.Messages(t.Context()) {
		require.NoError(t, err)
		take(m)
		if n--; n == 0 {
			return
		}
	}
}
