package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// handed notes which messages were handed over, each once.
type handed struct {
	*testing.T
	seen tally
}

func (h *handed) note(m *jetpull.Msg) {
	if n := h.seen.add(fmt.Sprint(m.Sequence())); n > 1 {
		h.Errorf("message %d was handed over %d times; this delivery is number %d", m.Sequence(), n, m.Delivered())
	}
}

// AckWait is an hour, so what is with another puller in the end was handed back to the server and not forgotten.
func TestNothingIsStrandedWhenCallersGo(t *testing.T) {
	t.Parallel()
	const callers, total = 24, 6000
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := newRig(t)
	r.consumer(t, jetstream.ConsumerConfig{AckWait: forever, MaxAckPending: -1})
	nc := r.server.Connect(t)
	sub, err := jetpull.Subscribe(t.Context(), natstest.JetStream(t, nc), "S", "C")
	require.NoError(t, err)
	h := &handed{T: t}
	var calling sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i := range callers {
		calling.Go(func() { goAtRandom(ctx, sub, h, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	for i := range total / 100 { // in bursts, so that callers wait in between
		natstest.Publish(t, r.js, fmt.Sprintf("s.%d", i), 100)
	}
	require.NoError(t, sub.Close(t.Context())) // one more way to go away while messages arrive
	stop()
	calling.Wait()
	require.Positive(t, h.seen.len())
	other := consume(t, subscribe(t, r.js, "S", "C"), func(_ context.Context, m *jetpull.Msg) error { h.note(m); return nil })
	reaches(t, total, "everything is handed over", h.seen.len)
	r.ackPending(t, 0)
	other.end(t)
	require.Zero(t, libSubscriptions(nc), "no inbox is left")
}

// goAtRandom calls Fetch and AckNext with contexts that end soon.
func goAtRandom(ctx context.Context, sub *jetpull.Subscription, h *handed, rng *rand.Rand) {
	terms := [][]jetpull.FetchOption{
		nil, nil,
		{jetpull.NoWait()},
		{jetpull.FillBatch()},
		{jetpull.Heartbeat(50 * time.Millisecond)},
		{jetpull.MaxBytes(60 + rng.IntN(500))},
		{jetpull.MaxWait(time.Millisecond + time.Duration(rng.IntN(int(10*time.Millisecond))))},
	}
	for ctx.Err() == nil {
		callCtx, cancel := context.WithTimeout(ctx, time.Duration(rng.IntN(int(3*time.Millisecond))))
		msgs, err := sub.Fetch(callCtx, 1+rng.IntN(20), terms[rng.IntN(len(terms))]...)
		if len(msgs) > 0 && err != nil {
			h.Errorf("%d messages and an error: %v", len(msgs), err)
		}
		if len(msgs) > 0 && rng.IntN(4) == 0 {
			h.note(msgs[0])
			next, _ := msgs[0].AckNext(callCtx)
			if msgs = msgs[1:]; next != nil {
				msgs = append(msgs, next)
			}
		}
		for _, m := range msgs {
			h.note(m)
			if err := m.Ack(); err != nil {
				h.Errorf("ack of message %d: %v", m.Sequence(), err)
			}
		}
		cancel()
	}
}
