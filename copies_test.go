package jetpull_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// recreate deletes the consumer and creates it again a while later, for the
// messages from then on.
func (w *world) recreate(change func(*jetstream.ConsumerConfig)) {
	cfg := w.C().Config()
	w.C().Delete()
	stage.Pass(3 * time.Second)
	cfg.DeliverPolicy = jetstream.DeliverNewPolicy
	change(&cfg)
	w.AddConsumer(cfg)
}

// A consumer that was recreated or updated while the connection was down is
// worked on by its new configuration. Handlers that run go on; what waits goes
// back.
func TestConsumeFollowsAShorterAckWait(t *testing.T) {
	short := func(cfg *jetstream.ConsumerConfig) { cfg.AckWait = time.Second }
	for name, change := range map[string]func(*world){
		"recreated": func(w *world) { w.recreate(short) },
		"updated":   func(w *world) { w.disconnect(); w.C().Update(short); stage.Pass(time.Second); w.reconnect() },
	} {
		t.Run(name, at(jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.consume(taking(&w.j, 5*time.Second), jetpull.AwaitConsumer(), jetpull.Concurrency(4))
			w.Publish(6)
			stage.Pass(time.Second)
			change(w)
			stage.Pass(30 * time.Second)
			require.Len(t, w.Logs.With("configuration"), 1)
			require.Subset(t, w.Acked("+ACK"), stage.UpTo(4), "what ran went on")
			w.Publish(8)
			stage.Pass(time.Minute)
			for seq := uint64(7); seq <= 14; seq++ {
				require.Equal(t, 1, w.deliveries(seq), "message %d is kept in progress", seq)
			}
			require.ElementsMatch(t, stage.UpTo(14)[6:], w.j.All()[w.j.Len()-8:])
		}))
	}
}

// A consumer that was recreated delivers its messages to handlers, also one that was handled while that happened: what
// was settled for the old consumer says nothing of the new one.
func TestConsumeHandlesAgainForARecreatedConsumer(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		slow := true
		r := w.consume(func(_ ctx, m *jetpull.Msg) error {
			w.j.Note(m.Sequence())
			if slow {
				slow = false
				<-time.After(10 * time.Second)
			}
			return nil
		}, jetpull.AwaitConsumer())
		w.Publish(1)
		stage.Pass(500 * time.Millisecond)
		w.recreate(func(cfg *jetstream.ConsumerConfig) { cfg.DeliverPolicy = jetstream.DeliverAllPolicy })
		stage.Pass(time.Minute)
		require.Equal(t, []int{1, 1}, w.j.All())
		require.Empty(t, w.C().Unsettled())
		require.NoError(t, r.stop())
	})
}

// A configuration that a new call would refuse ends the one that runs, before a message of the new
// consumer has come. Other changes it goes on with.
func TestConsumeOfAConsumerThatIsAnother(t *testing.T) {
	for says, tc := range map[string]struct {
		cfg  jetstream.ConsumerConfig
		opts []jetpull.Option
		to   func(*jetstream.ConsumerConfig)
		fine bool
	}{
		"ack policy all": {to: func(cfg *jetstream.ConsumerConfig) { cfg.AckPolicy = jetstream.AckAllPolicy }},
		"MaxAttempts":    {cfg: jetstream.ConsumerConfig{MaxDeliver: 5}, opts: opts(jetpull.MaxAttempts(5)), to: func(cfg *jetstream.ConsumerConfig) { cfg.MaxDeliver = 3 }},
		"Group": {to: func(cfg *jetstream.ConsumerConfig) {
			cfg.PriorityPolicy, cfg.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"g"}
		}},
		"RetryDelays": {opts: []jetpull.Option{jetpull.RetryDelays(time.Second)}, to: func(cfg *jetstream.ConsumerConfig) {
			cfg.AckPolicy, cfg.AckWait, cfg.MaxAckPending = jetstream.AckNonePolicy, 0, 0
		}},
		"ack policy none": {to: func(cfg *jetstream.ConsumerConfig) {
			cfg.AckPolicy, cfg.AckWait, cfg.MaxAckPending = jetstream.AckNonePolicy, 0, 0
		}, fine: true},
		"MaxAckPending": {to: func(cfg *jetstream.ConsumerConfig) { cfg.MaxAckPending = 7 }, fine: true},
	} {
		t.Run(says, at(tc.cfg, func(t *testing.T, w *world) {
			opts := append(opts(jetpull.AwaitConsumer()), tc.opts...)
			r := w.consume(taking(&w.j, 0), opts...)
			w.Publish(20)
			stage.Pass(time.Second)
			w.recreate(tc.to)
			w.Publish(20)
			stage.Pass(5 * time.Second)
			if tc.fine {
				require.Equal(t, stage.UpTo(40), w.j.All())
				require.NoError(t, r.stop())
				return
			}
			require.Equal(t, stage.UpTo(20), w.j.All(), "none of the new consumer")
			for _, err := range []error{r.result(), w.consume(nothing, opts...).result()} {
				require.ErrorIs(t, err, jetpull.ErrInvalidOption)
				require.ErrorContains(t, err, says, "a new call says the same")
				require.True(t, says != "ack policy all" || strings.Contains(err.Error(), "explicit") && strings.Contains(err.Error(), "Messages"), "both ways out: %v", err)
			}
		}))
	}
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		time.AfterFunc(time.Second, func() {
			w.recreate(func(cfg *jetstream.ConsumerConfig) {
				cfg.PriorityPolicy, cfg.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"g"}
			})
		})
		for m, err := range w.sub.Messages(t.Context(), jetpull.AwaitConsumer()) {
			require.Nil(t, m)
			require.ErrorIs(t, err, jetpull.ErrInvalidOption)
		}
	})
}

// Next and Fetch go by a lower limit unless the user asked for more.
func TestCallsGoByLimitsThatAreLowered(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.C().Update(func(cfg *jetstream.ConsumerConfig) { cfg.MaxRequestExpires, cfg.MaxRequestBatch = time.Second, 4 })
		_, err := w.sub.Next(t.Context(), jetpull.MaxWait(3*time.Second))
		require.ErrorIs(t, err, jetpull.ErrLimitExceeded)
		got := w.next(t.Context())
		stage.Pass(2 * time.Second)
		w.Publish(1)
		require.NoError(t, (<-got).err, "5 s is nobody's wish")
		w.Publish(20)
		var calls []<-chan result
		for range 20 {
			calls = append(calls, w.next(t.Context()))
		}
		for i, call := range calls {
			require.NoError(t, (<-call).err, fmt.Sprint(i, ": none of them asked for the batch that they share"))
		}
		_, err = w.sub.Fetch(t.Context(), 5)
		require.ErrorIs(t, err, jetpull.ErrLimitExceeded)
	})
}
