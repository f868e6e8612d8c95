package jetpull_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

func TestFetchDefaults(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(3)
		ms, err := w.sub.Fetch(t.Context(), 2)
		require.NoError(t, err)
		require.Equal(t, []int{1, 2}, bodies(ms))
		ms, err = w.sub.Fetch(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, []int{3}, bodies(ms), "a batch larger than what is there")
		require.Zero(t, w.Elapsed(), "nothing has waited")
		pulls := w.Pulls()
		require.Len(t, pulls, 2)
		require.JSONEq(t, `{"batch":2,"no_wait":true}`, string(pulls[0].Body))

		_, err = w.sub.Fetch(t.Context(), 10)
		require.ErrorIs(t, err, jetpull.ErrTimeout)
		require.ErrorIs(t, err, nats.ErrTimeout)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "the context has no deadline")
		require.ErrorContains(t, err, `consumer "C" on stream "S"`)
		near(t, 4900*time.Millisecond, w.Elapsed(), instant, "5 s by default, of which the server gets 4.9")
		long := w.Pulls()[3].Req
		require.Equal(t, 10, long.Batch)
		require.Equal(t, 4900*time.Millisecond, long.Expires)
		require.True(t, long.NoWait, "a one-shot: what comes first ends it")
	})
}

func TestTheBusyPathSubscribesNothing(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(300)
		w.Peer.ResetOps()
		for range 100 {
			ms, err := w.sub.Fetch(t.Context(), 3)
			require.NoError(t, err)
			require.Len(t, ms, 3)
		}
		require.Len(t, w.Ops("PUB"), 100)
		require.Empty(t, w.Ops("SUB"))
		require.Empty(t, w.Ops("UNSUB"))
	})
}

func TestTheIdlePathHasAnInboxOfItsOwn(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Peer.ResetOps()
		_, err := w.sub.Fetch(t.Context(), 3, jetpull.MaxWait(time.Second))
		require.ErrorIs(t, err, jetpull.ErrTimeout)
		require.Len(t, w.Ops("PUB"), 2)
		require.Len(t, w.Ops("SUB"), 1)
		require.Equal(t, w.Ops("SUB")[0].Subject, w.Pulls()[1].Reply)
		require.False(t, w.Peer.HasInterest(w.Pulls()[1].Reply), "unsubscribed")
	})
}

func TestTheMessageComesDuringTheLongPull(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		got := w.fetch(t.Context(), 10, jetpull.MaxWait(time.Minute))
		stage.Pass(50 * time.Second)
		w.Publish(1)
		r := <-got
		require.NoError(t, r.err)
		require.Equal(t, []int{1}, bodies(r.ms))
		require.Equal(t, 50*time.Second, r.at)
		require.LessOrEqual(t, len(w.Pulls()), 3, "a pull lives as long as the call")
	})
}

func TestFillBatchWaits(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(1)
		got := w.fetch(t.Context(), 5, jetpull.FillBatch())
		for range 3 {
			stage.Pass(time.Second)
			w.Publish(1)
		}
		require.Empty(t, got)
		w.Publish(1)
		r := <-got
		require.NoError(t, r.err)
		require.Len(t, r.ms, 5)
		require.Equal(t, 3*time.Second, r.at)

		w.Publish(2)
		ms, err := w.sub.Fetch(t.Context(), 5, jetpull.FillBatch(), jetpull.MaxWait(time.Second))
		require.NoError(t, err, "what there is at the deadline is no error")
		require.Len(t, ms, 2)
		near(t, 3900*time.Millisecond, w.Elapsed(), instant)
	})
}

func TestNoWaitReturnsAtOnce(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		_, err := w.sub.Next(t.Context(), jetpull.NoWait())
		require.ErrorIs(t, err, jetpull.ErrNoMessages)
		require.ErrorIs(t, err, jetstream.ErrNoMessages)
		w.Publish(2)
		ms, err := w.sub.Fetch(t.Context(), 10, jetpull.NoWait())
		require.NoError(t, err)
		require.Len(t, ms, 2)
		require.Zero(t, w.Elapsed())
		require.Len(t, w.Pulls(), 2)
	})
}

func TestWhoseDeadline(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		for _, tt := range []struct {
			context, maxWait, want time.Duration
			deadlineExceeded       bool
		}{
			{0, 0, 4900 * time.Millisecond, false},
			{0, time.Second, 900 * time.Millisecond, false},
			{2 * time.Second, 0, 1900 * time.Millisecond, true},
			{2 * time.Second, time.Second, 900 * time.Millisecond, false},
			{time.Second, 2 * time.Second, 900 * time.Millisecond, true},
			{30 * time.Second, 0, 29900 * time.Millisecond, true},
			{0, 50 * time.Millisecond, 45 * time.Millisecond, false},
		} {
			ctx, cancel := t.Context(), context.CancelFunc(func() {})
			if tt.context > 0 {
				ctx, cancel = context.WithTimeout(ctx, tt.context)
			}
			var opts []jetpull.Option
			if tt.maxWait > 0 {
				opts = append(opts, jetpull.MaxWait(tt.maxWait))
			}
			start := time.Now()
			_, err := w.sub.Next(ctx, opts...)
			cancel()
			require.ErrorIs(t, err, jetpull.ErrTimeout)
			near(t, tt.want, time.Since(start), instant, "context %v, MaxWait %v", tt.context, tt.maxWait)
			require.Equal(t, tt.deadlineExceeded, errors.Is(err, context.DeadlineExceeded), "context %v, MaxWait %v: %v", tt.context, tt.maxWait, err)
		}
	})
}

func TestAContextThatEndsInCenturies(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		stage.Pass(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), math.MaxInt64)
		defer cancel()
		next := w.next(ctx)
		stage.Pass(time.Minute)
		require.Less(t, len(w.Pulls()), 10, "pulls of a call that waits")
		w.Publish(1)
		require.NoError(t, (<-next).err)
	})
}

func TestSixtyFourCallersShare(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		var calls []<-chan result
		for range 64 {
			calls = append(calls, w.next(t.Context(), jetpull.MaxWait(10*time.Second)))
		}
		stage.Pass(time.Second)
		long := 0
		for _, p := range w.Pulls() {
			if p.Req.Expires > 0 {
				long += p.Req.Batch
			}
		}
		require.Equal(t, 64, long, "one message on order for each caller")
		w.Publish(64)
		seen := map[int]bool{}
		for _, call := range calls {
			r := <-call
			require.NoError(t, r.err)
			require.Equal(t, time.Second, r.at)
			seen[bodies(r.ms)[0]] = true
		}
		require.Len(t, seen, 64, "each has a message of its own")
		require.Empty(t, w.Acks("-NAK"))
	})
}

// slow is a link of 50 ms each way.
var slow = model.Config{
	Up:   model.Delay{Min: 50 * time.Millisecond, Max: 50 * time.Millisecond},
	Down: model.Delay{Min: 50 * time.Millisecond, Max: 50 * time.Millisecond},
}

func TestCallersThatComeTogetherShareOnePull(t *testing.T) {
	onStage(t, stage.Config{Model: slow}, func(t *testing.T, w *world) {
		w.Publish(64)
		from := w.Elapsed()
		var calls []<-chan result
		for range 64 {
			calls = append(calls, w.next(t.Context()))
		}
		for _, call := range calls {
			require.NoError(t, (<-call).err)
		}
		require.LessOrEqual(t, w.Elapsed()-from, 200*time.Millisecond, "two round trips at most")
		pulls, asked := w.Pulls(), 0
		for _, p := range pulls {
			asked += p.Req.Batch
		}
		require.Equal(t, 64, asked, "demand is covered once")
		require.LessOrEqual(t, len(pulls), 16, "pulls of 64 callers")
	})
}

// Callers that read for others leave one by one; those who stay lose nothing.
func TestCallersThatLeave(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		wait := jetpull.MaxWait(20 * time.Second)
		var calls []<-chan result
		var cancels []context.CancelFunc
		for range 4 {
			ctx, cancel := context.WithCancel(t.Context())
			calls, cancels = append(calls, w.next(ctx, wait)), append(cancels, cancel)
		}
		for _, i := range []int{0, 2, 1} {
			stage.Pass(time.Second)
			cancels[i]()
			r := <-calls[i]
			require.ErrorIs(t, r.err, context.Canceled)
			require.Equal(t, w.Elapsed(), r.at)
		}
		stage.Pass(time.Second)
		w.Publish(1)
		r := <-calls[3]
		require.NoError(t, r.err)
		require.Equal(t, 4*time.Second, r.at)
		cancels[3]()
	})
}

func TestCallersKeepTheirDeadlines(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.TakePulls(stage.All)
		waits := []time.Duration{time.Second, 3 * time.Second, 500 * time.Millisecond}
		var calls []<-chan result
		for _, wait := range waits {
			calls = append(calls, w.next(t.Context(), jetpull.MaxWait(wait)))
		}
		for i, wait := range waits {
			r := <-calls[i]
			require.ErrorIs(t, r.err, jetpull.ErrTimeout)
			require.Equal(t, wait, r.at)
		}
	})
}

func TestAStoredStatusHeaderIsAMessage(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.PublishTo("s.a", nats.Header{"Status": {"404"}, "Description": {"No Messages"}}, "")
		m, err := w.sub.Next(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, m.Sequence())
		require.Equal(t, "404", m.Headers().Get("Status"))
	})
}

func TestMessageAccessors(t *testing.T) {
	for _, tt := range []struct{ name, reply, domain string }{
		{"v1", "$JS.ACK.ORDERS.worker.3.77.81.1700000000123456789.5", ""},
		{"v2", "$JS.ACK.hub.ACCHASH.ORDERS.worker.3.77.81.1700000000123456789.5.token", "hub"},
		{"no domain", "$JS.ACK._.ACCHASH.ORDERS.worker.3.77.81.1700000000123456789.5", ""},
		{"not of JetStream", "somewhere.else", "none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
				w.TakePulls(func(p stage.Pull) bool {
					return w.Peer.Deliver(p.Reply, natstest.Data{Subject: "orders.1", AckReply: tt.reply, Header: nats.Header{"K": {"v"}}, Body: []byte("data")})
				})
				got, err := w.sub.Next(t.Context(), jetpull.NoWait())
				require.NoError(t, err)
				var m jetstream.Msg = got
				require.Equal(t, []any{"orders.1", tt.reply, "data", nats.Header{"K": {"v"}}}, []any{m.Subject(), m.Reply(), string(m.Data()), m.Headers()})
				meta, err := m.Metadata()
				if tt.domain == "none" {
					require.ErrorIs(t, err, jetstream.ErrNotJSMessage)
					require.ErrorContains(t, err, tt.reply)
					require.Zero(t, got.Sequence()+got.Delivered())
					return
				}
				require.NoError(t, err)
				require.Equal(t, &jetstream.MsgMetadata{
					Sequence:     jetstream.SequencePair{Consumer: 81, Stream: 77},
					NumDelivered: 3, NumPending: 5,
					Timestamp: time.Unix(0, 1700000000123456789),
					Stream:    "ORDERS", Consumer: "worker", Domain: tt.domain,
				}, meta)
				require.Zero(t, testing.AllocsPerRun(100, func() {
					if got.Sequence() != 77 || got.Delivered() != 3 {
						t.Fail()
					}
				}))
			})
		})
	}
}

// n is not what memory is taken for, nor what a pull asks for at once.
func TestALargeFetchAllocatesForWhatArrives(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(3)
		ms, err := w.sub.Fetch(t.Context(), 1_000_000)
		require.NoError(t, err)
		require.Len(t, ms, 3)
		require.LessOrEqual(t, cap(ms), 128)
		require.LessOrEqual(t, w.Pulls()[0].Req.Batch, 4096)
	})
}

func TestCancelBeforeACall(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(1)
		_, err := w.sub.Next(ended(t))
		require.ErrorIs(t, err, context.Canceled)
		late, cancel := context.WithTimeout(t.Context(), -1)
		defer cancel()
		_, err = w.sub.Fetch(late, 5)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, jetpull.ErrTimeout)
		cause := errors.New("the reason")
		caused, cancelCause := context.WithCancelCause(t.Context())
		cancelCause(cause)
		_, err = w.sub.Next(caused)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, cause)
		require.NotErrorIs(t, err, jetpull.ErrTimeout)
		require.Empty(t, w.Pulls(), "nothing is sent")
	})
}

func TestCancelDuringACall(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		got := w.next(ctx, jetpull.MaxWait(time.Minute))
		stage.Pass(time.Second)
		inbox := w.Pulls()[1].Reply
		require.True(t, w.Peer.HasInterest(inbox))
		cancel()
		r := <-got
		require.ErrorIs(t, r.err, context.Canceled)
		require.Equal(t, time.Second, r.at)
		stage.Pass(0)
		require.False(t, w.Peer.HasInterest(inbox), "unsubscribed without any time passing")
		w.Publish(1)
		m, err := w.sub.Next(t.Context())
		require.NoError(t, err, "the message was not sent to the one that left")
		require.EqualValues(t, 1, m.Sequence())
		require.EqualValues(t, 1, m.Delivered())
	})
}

// A message that is on the wire for a caller that has left goes to the next
// caller, or back.
func TestCancelWithAMessageOnTheWire(t *testing.T) {
	for _, tt := range []struct {
		name    string
		policy  jetstream.AckPolicy
		another bool
	}{
		{"nobody waits", jetstream.AckExplicitPolicy, false},
		{"another waits", jetstream.AckExplicitPolicy, true},
		{"ack policy none", jetstream.AckNonePolicy, false},
		{"ack policy all", jetstream.AckAllPolicy, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			on(t, jetstream.ConsumerConfig{AckPolicy: tt.policy}, func(t *testing.T, w *world) {
				ctx, cancel := context.WithCancel(t.Context())
				got := w.next(ctx, jetpull.MaxWait(time.Minute))
				stage.Pass(time.Second)
				w.Peer.Pause(true)
				w.Publish(1)
				cancel()
				require.ErrorIs(t, (<-got).err, context.Canceled)
				var other <-chan result
				if tt.another {
					other = w.next(t.Context(), jetpull.MaxWait(time.Minute))
				}
				w.Peer.Pause(false)
				if tt.policy != jetstream.AckNonePolicy && !tt.another {
					require.Equal(t, []int{1}, w.Acked("-NAK"))
					require.EqualValues(t, 1, w.sub.Stats().HandedBack)
				} else if !tt.another {
					other = w.next(t.Context(), jetpull.NoWait())
				}
				if other != nil {
					r := <-other
					require.NoError(t, r.err)
					require.EqualValues(t, 1, r.ms[0].Sequence())
					require.Empty(t, w.Acks("-NAK"))
				}
				require.Zero(t, w.sub.Stats().Dropped)
			})
		})
	}
}

func TestCancelAfterAPartOfABatch(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Publish(2)
		ctx, cancel := context.WithCancel(t.Context())
		got := w.fetch(ctx, 5, jetpull.FillBatch(), jetpull.MaxWait(time.Minute))
		stage.Pass(time.Second)
		cancel()
		r := <-got
		require.NoError(t, r.err, "messages and an error are never returned together")
		require.Len(t, r.ms, 2)
		require.Empty(t, w.Acks("-NAK"))
	})
}
