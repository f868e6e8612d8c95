package test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
)

// TestALostPullCostsHalfOfTheWait, and three seconds at most: the server never
// gets one pull of a call, and a message is stored 20 ms after.
func TestALostPullCostsHalfOfTheWait(t *testing.T) {
	for name, lost := range map[string]func(natstest.PullRequest) bool{
		"the no-wait pull": func(r natstest.PullRequest) bool { return r.Expires == 0 },
		"the long pull":    func(r natstest.PullRequest) bool { return r.Expires > 0 },
	} {
		for _, wait := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, time.Minute} {
			for n, opts := range map[int][]jetpull.Option{0: nil, 1: {jetpull.FillBatch()}, 5: nil} {
				t.Run(fmt.Sprintf("%s, wait %s, n %d", name, wait, n), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { lostPull(t, lost, wait, n, opts) })
				})
			}
		}
	}
}

func lostPull(t *testing.T, lost func(natstest.PullRequest) bool, wait time.Duration, n int, opts []jetpull.Option) {
	var gone, stored atomic.Bool
	var open atomic.Pointer[natstest.Pull] // that the server has and waits with
	deliver := func(p *natstest.Peer, pull natstest.Pull) {
		p.Deliver(pull.Reply, firstMessage)
		if pull.Req.NoWait && pull.Req.Batch > 1 {
			p.Status(pull.Reply, 404, "No Messages")
		}
	}
	sub, peer := scripted(t, jetstream.ConsumerConfig{}, func(p *natstest.Peer, pull natstest.Pull) {
		switch {
		case lost(pull.Req) && !gone.Swap(true):
			time.AfterFunc(20*time.Millisecond, func() {
				stored.Store(true)
				if pull := open.Swap(nil); pull != nil {
					deliver(p, *pull)
				}
			})
		case stored.Load():
			deliver(p, pull)
		case pull.Req.Expires == 0:
			p.Status(pull.Reply, 404, "No Messages")
		default:
			open.Store(&pull)
		}
	})
	res := receive(t, call(t.Context(), sub, n, append(opts, jetpull.MaxWait(wait))...), "the message")
	require.NoError(t, res.err, "after %s", res.took)
	require.Len(t, res.msgs, 1)
	require.True(t, gone.Load())
	require.LessOrEqual(t, res.took, min(wait/2, 3*time.Second))
	require.NoError(t, sub.Close(t.Context()))
	peer.Close()
}

// TestConsumeInABlackHole returns by DrainTimeout and a second, whatever it waits
// for: handlers, dead letters, acknowledgements, an inbox, the pin.
func TestConsumeInABlackHole(t *testing.T) {
	const drain = 500 * time.Millisecond
	pinned := pinnedConsumer()
	for _, tc := range []struct {
		name    string
		cfg     jetstream.ConsumerConfig
		opts    []jetpull.Option
		handler jetpull.Handler
		idle    bool
	}{
		{name: "idle", idle: true},
		{name: "the handler returns", handler: func(context.Context, *jetpull.Msg) error { pass(drain / 2); return nil }},
		{name: "the handler fails", handler: func(context.Context, *jetpull.Msg) error { pass(drain / 2); return errNoUse }},
		{name: "the handler heeds its context", handler: func(ctx context.Context, _ *jetpull.Msg) error { <-ctx.Done(); return nil }},
		{name: "the handler goes on", handler: func(context.Context, *jetpull.Msg) error { pass(time.Minute); return nil }},
		{name: "the handler waits for the server", handler: func(ctx context.Context, m *jetpull.Msg) error { return m.DoubleAck(context.WithoutCancel(ctx)) }},
		{name: "ordered by key", opts: []jetpull.Option{byKey}, handler: func(context.Context, *jetpull.Msg) error { pass(drain / 2); return errNoUse }},
		{
			name: "a dead letter", cfg: jetstream.ConsumerConfig{MaxDeliver: 1}, opts: []jetpull.Option{jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.s")},
			handler: func(context.Context, *jetpull.Msg) error { pass(drain / 2); return errNoUse },
		},
		{name: "ack none", cfg: jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, handler: func(context.Context, *jetpull.Msg) error { pass(drain / 2); return nil }},
		{name: "pinned", cfg: pinned, opts: []jetpull.Option{jetpull.Group("A")}, handler: func(context.Context, *jetpull.Msg) error { pass(drain / 2); return nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			virtually(t, tc.cfg, func(t *testing.T, w *world) {
				running := make(chan struct{}, 1000)
				run := consume(t, w.sub, func(ctx context.Context, m *jetpull.Msg) error {
					running <- struct{}{}
					return tc.handler(ctx, m)
				}, append(tc.opts, jetpull.DrainTimeout(drain), jetpull.Concurrency(2))...)
				if !tc.idle {
					w.publish("s.a", 1) // and then some that are read ahead
					<-running
					w.publish("s.a", 100)
				}
				pass(5 * roundTrip)
				w.model.Peer().Pause(true)
				pass(drain / 5)
				stopped := w.now()
				run.stop()
				err := <-run.done
				took := w.now() - stopped
				w.model.Peer().Pause(false)
				pass(2 * time.Minute) // handlers that went on have ended
				if err != nil {
					require.ErrorIs(t, err, jetpull.ErrDrainTimeout)
				}
				require.LessOrEqual(t, took, drain+time.Second)
			}, tc.opts[:len(tc.opts):len(tc.opts)]...)
		})
	}
}
