package jetpull_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
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

// A consumer that was recreated or updated while the connection was down is used
// with its new configuration. Running handlers continue, and waiting messages are
// handed back.
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

// A call without options costs the same after an edit as before.
func TestACallCostsTheSameAfterAnEdit(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		over, cancel := context.WithCancel(t.Context())
		cancel()
		allocs := func() float64 { // the minimum of some runs: the race detector sometimes adds one
			least := testing.AllocsPerRun(100, func() { _, _ = w.sub.Next(over) })
			for range 9 {
				least = min(least, testing.AllocsPerRun(100, func() { _, _ = w.sub.Next(over) }))
			}
			return least
		}
		before := allocs()
		w.disconnect()
		w.C().Update(func(cfg *jetstream.ConsumerConfig) { cfg.AckWait, cfg.MaxRequestBatch = time.Second, 2 })
		w.reconnect()
		stage.Pass(time.Second)
		_, err := w.sub.Fetch(t.Context(), 3, jetpull.NoWait())
		require.ErrorIs(t, err, jetpull.ErrLimitExceeded, "the edit is known")
		require.InDelta(t, before, allocs(), 0)
	})
}

// A recreated consumer delivers its messages to handlers, even one that was handled meanwhile: a settlement for the old
// consumer does not apply to the new one.
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

// A configuration that a new call would refuse ends the running call, before a message of the new
// consumer arrives. After other changes the call continues.
func TestConsumeOfAConsumerThatIsAnother(t *testing.T) {
	for says, tc := range map[string]struct {
		cfg  jetstream.ConsumerConfig
		opts []jetpull.ConsumeOption
		to   func(*jetstream.ConsumerConfig)
		fine bool
	}{
		"ack policy all": {to: func(cfg *jetstream.ConsumerConfig) { cfg.AckPolicy = jetstream.AckAllPolicy }},
		"MaxAttempts": {
			cfg: jetstream.ConsumerConfig{MaxDeliver: 5}, opts: opts(jetpull.MaxAttempts(5)),
			to: func(cfg *jetstream.ConsumerConfig) { cfg.MaxDeliver = 3 },
		},
		"Group": {to: func(cfg *jetstream.ConsumerConfig) {
			cfg.PriorityPolicy, cfg.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"g"}
		}},
		"RetryDelays": {opts: []jetpull.ConsumeOption{jetpull.RetryDelays(time.Second)}, to: func(cfg *jetstream.ConsumerConfig) {
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
				require.True(t, says != "ack policy all" || strings.Contains(err.Error(), "explicit") && strings.Contains(err.Error(), "Messages"),
					"both ways out: %v", err)
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

// Next and Fetch keep within a lowered limit, unless the user asks for more.
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

// An edit restarts nothing: no message is handed back or handled twice, whatever the client knew before. An edit of a field that the client
// does not use has no effect at all.
func TestAnEditRestartsNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		edit func(*jetstream.ConsumerConfig)
		says int
	}{
		"Description":       {func(cfg *jetstream.ConsumerConfig) { cfg.Description = "new" }, 0},
		"Metadata":          {func(cfg *jetstream.ConsumerConfig) { cfg.Metadata = map[string]string{"a": "b"} }, 0},
		"Replicas":          {func(cfg *jetstream.ConsumerConfig) { cfg.Replicas = 1 }, 0},
		"InactiveThreshold": {func(cfg *jetstream.ConsumerConfig) { cfg.InactiveThreshold = time.Hour }, 0},
		"SampleFrequency":   {func(cfg *jetstream.ConsumerConfig) { cfg.SampleFrequency = "100%" }, 0},
		"AckWait":           {func(cfg *jetstream.ConsumerConfig) { cfg.AckWait = 3 * time.Second }, 1},
		"BackOff":           {func(cfg *jetstream.ConsumerConfig) { cfg.BackOff = []time.Duration{2 * time.Second, 4 * time.Second} }, 1},
		"MaxDeliver":        {func(cfg *jetstream.ConsumerConfig) { cfg.MaxDeliver = 2 }, 1},
		"MaxAckPending":     {func(cfg *jetstream.ConsumerConfig) { cfg.MaxAckPending = 7 }, 1},
		"MaxRequestBatch":   {func(cfg *jetstream.ConsumerConfig) { cfg.MaxRequestBatch = 3 }, 1},
	} {
		t.Run(name, at(jetstream.ConsumerConfig{MaxDeliver: 3}, func(t *testing.T, w *world) {
			w.consume(taking(&w.j, 700*milli), jetpull.Concurrency(2))
			w.Publish(20)
			stage.Pass(second)
			w.C().Update(tt.edit)
			w.C().EndPulls(409, "Leadership Change") // after which the consumer is read
			stage.Pass(time.Minute)
			require.Len(t, w.Logs.With("configuration"), tt.says)
			require.Empty(t, w.Acks("-NAK"))
			require.ElementsMatch(t, stage.UpTo(20), w.j.All())
			require.Equal(t, 20, w.deliveries(0))
		}))
	}
}

// The client notices a shorter AckWait before the first message that was delivered after the edit, or shortly before, is redelivered
// to another client.
func TestAShorterAckWaitIsNoticed(t *testing.T) {
	for _, before := range []time.Duration{0, 100 * milli, 10 * second} {
		on(t, jetstream.ConsumerConfig{AckWait: 30 * second}, func(t *testing.T, w *world) {
			for _, sub := range []*jetpull.Subscription{w.sub, w.subscribe(w.JS)} {
				w.consumeOn(sub, taking(&w.j, 5*second), jetpull.Concurrency(3))
			}
			stage.Pass(before)
			w.Publish(6)
			stage.Pass(200 * milli)
			w.C().Update(func(cfg *jetstream.ConsumerConfig) { cfg.AckWait = second })
			w.Publish(6)
			stage.Pass(time.Minute)
			require.ElementsMatch(t, stage.UpTo(12), w.j.All())
		})
	}
}

// MaxDeliver falls below MaxAttempts while messages fail. Each message gets its dead letter at its last delivery. Then the call
// ends, as a new one would.
func TestMaxDeliverBelowMaxAttempts(t *testing.T) {
	for _, delay := range []time.Duration{0, 100 * milli, second} {
		on(t, jetstream.ConsumerConfig{MaxDeliver: 10}, func(t *testing.T, w *world) {
			w.Model.AddStream("D", "dead.>")
			r := w.consume(func(_ ctx, m *jetpull.Msg) error {
				if w.j.Note(m.Sequence()) == 1 {
					<-time.After(300 * milli)
				}
				return errBroken
			}, jetpull.MaxAttempts(5), jetpull.DeadLetter("dead.s"), jetpull.RetryDelays(delay), jetpull.Concurrency(5))
			w.Publish(5)
			stage.Pass(100 * milli)
			w.C().Update(func(cfg *jetstream.ConsumerConfig) { cfg.MaxDeliver = 2 })
			require.ErrorIs(t, r.result(), jetpull.ErrInvalidOption)
			other := w.consume(func(ctx, *jetpull.Msg) error { return errBroken }, jetpull.MaxAttempts(2), jetpull.DeadLetter("dead.s"))
			stage.Pass(10 * second) // the messages that were handed back
			require.NoError(t, other.stop())
			require.Equal(t, 5, w.Model.Messages("D"), "dead letters")
			require.Empty(t, w.C().Unsettled())
		})
	}
}

// MaxDeliver falls while a dead letter is being stored. The delivery has become the last one, so the worker tries until the dead letter is stored.
// While the consumer cannot be read, that may be the case too.
func TestMaxDeliverFallsWhileADeadLetterIsStored(t *testing.T) {
	for _, lost := range []string{"dead.s", ">"} {
		on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.Model.AddStream("D", "dead.>")
			r := w.consume(func(ctx, *jetpull.Msg) error { return errBroken }, jetpull.MaxAttempts(1), jetpull.DeadLetter("dead.s"))
			w.Take(func(op natstest.Op) bool {
				return op.Subject == "dead.s" || lost == ">" && strings.HasPrefix(op.Subject, "$JS.API.CONSUMER.INFO.")
			})
			w.Publish(1)
			stage.Pass(100 * milli)
			w.C().Update(func(cfg *jetstream.ConsumerConfig) { cfg.MaxDeliver = 1 })
			stage.Pass(20 * second)
			w.Take(nil)
			stage.Pass(20 * second)
			require.NoError(t, r.stop())
			require.Equal(t, 1, w.Model.Messages("D"), "dead letters")
			require.Empty(t, w.C().Unsettled())
		})
	}
}

// A filter that is edited to match the dead letter subject in the consumer's own stream would cause a loop. The call ends, as a new one
// would be refused.
func TestAnEditThatDeliversDeadLettersEndsTheCall(t *testing.T) {
	on(t, jetstream.ConsumerConfig{FilterSubject: "s.a", MaxDeliver: 9}, func(t *testing.T, w *world) {
		r := w.consume(func(_ ctx, m *jetpull.Msg) error {
			w.j.Note(m.Sequence())
			return errBroken
		}, jetpull.MaxAttempts(2), jetpull.DeadLetter("s.dead"), jetpull.RetryDelays(0))
		w.PublishTo("s.a", nil, "1")
		stage.Pass(second)
		require.True(t, r.running())
		w.C().Update(func(cfg *jetstream.ConsumerConfig) { cfg.FilterSubject = "s.>" })
		for range 20 {
			w.PublishTo("s.a", nil, "2")
			stage.Pass(second)
		}
		require.False(t, r.running(), "%d attempts", w.j.Len())
		require.ErrorIs(t, r.result(), jetpull.ErrInvalidOption)
	})
}

// After a reset, handlers get messages again, even those that were settled a moment before. A crash of the server repeats deliveries
// too, but these are not handled again.
func TestAResetIsHandledAgain(t *testing.T) {
	for name, cfg := range map[string]stage.Config{
		"one server": {},
		"three":      {Model: model.Config{Replicas: 3, Quorum: model.Delay{Min: milli, Max: 2 * milli}}},
	} {
		t.Run(name, atStage(cfg, func(t *testing.T, w *world) {
			r := w.consume(taking(&w.j, 0), jetpull.Concurrency(4))
			w.Publish(100)
			stage.Pass(second)
			require.Equal(t, 100, w.j.Len())
			w.C().Reset(1)
			stage.Pass(second)
			require.Equal(t, 200, w.j.Len())
			require.ElementsMatch(t, stage.UpTo(100), w.j.All()[100:])
			w.C().Reset(51)
			stage.Pass(second)
			require.ElementsMatch(t, stage.UpTo(100)[50:], w.j.All()[200:])
			w.Peer.Cut()
			w.C().Reset(51)
			stage.Pass(10 * second)
			require.ElementsMatch(t, stage.UpTo(100)[50:], w.j.All()[250:], "also if the pulls are lost")
			w.Publish(1)
			stage.Pass(second)
			w.Crash(second)
			stage.Pass(10 * second)
			require.Equal(t, 301, w.j.Len(), "a crash is no reset")
			require.Empty(t, w.C().Unsettled())
			require.NoError(t, r.stop())
		}))
	}
}

// A server that has just started does not know its consumers yet. This ends no call.
func TestAConsumerThatIsNotFoundForAMoment(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		r := w.consume(taking(&w.j, 0))
		messages := w.later(func() (ms []*jetpull.Msg, end error) {
			for m, err := range w.sub.Messages(t.Context(), jetpull.StopAfter(1)) {
				ms, end = append(ms, m), err
			}
			return ms, end
		})
		unknown := func(op natstest.Op) bool {
			return strings.Contains(op.Subject, ".CONSUMER.INFO.") && w.Peer.ReplyError(op.Reply, 404, jetstream.JSErrCodeConsumerNotFound,
				"consumer not found")
		}
		for range 3 {
			w.disconnect()
			w.Take(unknown)
			w.answer(503, "")
			w.reconnect()
			next := w.next(t.Context(), jetpull.MaxWait(time.Minute))
			stage.Pass(2500 * milli)
			w.Take(nil)
			w.TakePulls(nil)
			stage.Pass(10 * second)
			w.Publish(1)
			require.NoError(t, (<-next).err)
			require.True(t, r.running())
		}
		w.Publish(4)
		require.NoError(t, (<-messages).err)
		require.NoError(t, r.stop())
	})
}
