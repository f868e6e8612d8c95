package jetpull_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// lose takes the first pull of a kind over and never answers it.
func (w *world) lose(long bool) (lost *bool) {
	lost = new(bool)
	w.TakePulls(func(p stage.Pull) bool {
		if *lost || (p.Req.Expires > 0) != long {
			return false
		}
		*lost = true
		return true
	})
	return lost
}

// A pull or an answer that is lost costs a call at most half of its wait, and 3 s
// at most.
func TestALostPullCostsHalfOfTheWait(t *testing.T) {
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, time.Minute} {
		for _, long := range []bool{false, true} {
			on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
				lost := w.lose(long)
				got := w.fetch(t.Context(), 3, jetpull.MaxWait(wait))
				stage.Pass(20 * time.Millisecond)
				w.Publish(1)
				r := <-got
				require.NoError(t, r.err)
				require.LessOrEqual(t, r.at, min(wait/2, 3*time.Second)+20*time.Millisecond, "wait %v, long %v", wait, long)
				require.True(t, *lost)
				require.EqualValues(t, 1, w.sub.Stats().Silent)
			})
		}
	}
}

func TestALostPullWithAHeartbeatOfTheCallers(t *testing.T) {
	for _, long := range []bool{false, true} {
		on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			lost := w.lose(long)
			got := w.next(t.Context(), jetpull.MaxWait(20*time.Second), jetpull.Heartbeat(2*time.Second))
			w.Publish(1)
			r := <-got
			require.NoError(t, r.err)
			require.LessOrEqual(t, r.at, 4200*time.Millisecond, "two heartbeats")
			require.True(t, *lost || !long)
		})
	}
}

// Each way in which a server ends a pull without a word.
func TestSilentEndings(t *testing.T) {
	t.Run("batch filled", func(t *testing.T) {
		on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.Publish(5)
			ms, err := w.sub.Fetch(t.Context(), 5)
			require.NoError(t, err)
			require.Len(t, ms, 5)
			require.Zero(t, w.Elapsed())
			require.Zero(t, w.sub.Stats().Silent)
		})
	})
	t.Run("max_bytes used up exactly", func(t *testing.T) {
		on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.Publish(4)
			m, err := w.sub.Next(t.Context())
			require.NoError(t, err)
			size := len(m.Subject()) + len(m.Reply()) + len(m.Data())
			ms, err := w.sub.Fetch(t.Context(), 5, jetpull.MaxBytes(2*size), jetpull.FillBatch())
			require.NoError(t, err)
			require.Equal(t, []int{2, 3}, bodies(ms))
			require.Zero(t, w.Elapsed())
		})
	})
	t.Run("no_wait at MaxAckPending", func(t *testing.T) {
		on(t, jetstream.ConsumerConfig{MaxAckPending: 1}, func(t *testing.T, w *world) {
			w.Publish(5)
			ms, err := w.sub.Fetch(t.Context(), 5)
			require.NoError(t, err)
			require.Equal(t, []int{1}, bodies(ms))
			require.LessOrEqual(t, w.Elapsed(), 2500*time.Millisecond, "what came is not held back until the deadline")
			_, err = w.sub.Next(t.Context(), jetpull.NoWait())
			require.ErrorIs(t, err, jetpull.ErrTimeout)
			require.ErrorContains(t, err, "MaxAckPending")
			got := w.next(t.Context())
			stage.Pass(2 * time.Second)
			require.NoError(t, ms[0].Ack())
			r := <-got
			require.NoError(t, r.err, "the long pull waits for the room")
			require.Equal(t, []int{2}, bodies(r.ms))
		})
	})
	t.Run("MaxWaiting full", func(t *testing.T) {
		on(t, jetstream.ConsumerConfig{MaxWaiting: 1}, func(t *testing.T, w *world) {
			other := w.Connect()
			inbox, err := other.SubscribeSync("other")
			require.NoError(t, err)
			require.NoError(t, other.PublishRequest("$JS.API.CONSUMER.MSG.NEXT.S.C", "other", []byte(`{"expires":3600000000000}`)))
			got := w.next(t.Context(), jetpull.MaxWait(time.Minute))
			stage.Pass(10 * time.Second)
			require.Empty(t, got)
			require.NoError(t, inbox.Unsubscribe())
			stage.Pass(0)
			w.Publish(1)
			r := <-got
			require.NoError(t, r.err)
			require.LessOrEqual(t, r.at, 15*time.Second, "as soon as there is room")
		})
	})
	t.Run("nothing at all", func(t *testing.T) {
		on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			w.TakePulls(stage.All)
			_, err := w.sub.Fetch(t.Context(), 5)
			require.ErrorIs(t, err, jetpull.ErrTimeout)
			require.ErrorContains(t, err, "did not answer")
			require.Equal(t, 5*time.Second, w.Elapsed())
		})
	})
}

func TestNoRespondersIsRetried(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.answer(503, "")
		got := w.next(t.Context(), jetpull.MaxWait(20*time.Second))
		stage.Pass(10 * time.Second)
		pulls := w.Pulls()
		require.GreaterOrEqual(t, len(pulls), 10, "it is tried again and again")
		require.LessOrEqual(t, len(pulls), 18, "but not in a hurry")
		gaps := map[time.Duration]bool{}
		for i := range pulls[1:] {
			gaps[pulls[i+1].At.Sub(pulls[i].At)] = true
		}
		require.Greater(t, len(gaps), 5, "the waits are jittered")
		w.TakePulls(nil)
		w.Publish(1)
		r := <-got
		require.NoError(t, r.err)
		require.LessOrEqual(t, r.at, 11*time.Second)

		w.answer(503, "")
		start := time.Now()
		_, err := w.sub.Next(t.Context(), jetpull.MaxWait(2*time.Second))
		require.ErrorIs(t, err, jetpull.ErrTimeout)
		require.ErrorIs(t, err, jetpull.ErrNoResponders)
		require.ErrorIs(t, err, nats.ErrNoResponders)
		require.Equal(t, 2*time.Second, time.Since(start))
	})
}

func TestADeletedConsumer(t *testing.T) {
	for _, during := range []bool{false, true} {
		on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
			var got <-chan result
			if during {
				got = w.next(t.Context(), jetpull.MaxWait(time.Minute))
				stage.Pass(time.Second)
			}
			w.C().Delete()
			if !during {
				got = w.next(t.Context(), jetpull.MaxWait(time.Minute))
			}
			r := <-got
			require.ErrorIs(t, r.err, jetpull.ErrConsumerDeleted)
			require.ErrorIs(t, r.err, jetstream.ErrConsumerDeleted)
			require.Equal(t, w.Elapsed(), r.at, "known as soon as the server has said so")
			if during {
				status, ok := errors.AsType[*jetpull.StatusError](r.err)
				require.True(t, ok)
				require.Equal(t, 409, status.Code)
				require.Equal(t, "$JS.API.CONSUMER.MSG.NEXT.S.C", status.Subject)
			} else {
				require.ErrorContains(t, r.err, `"C"`)
			}
		})
	}
}

func TestReconnectDuringACall(t *testing.T) {
	for _, phase := range []string{"quick", "long"} {
		t.Run(phase, func(t *testing.T) {
			on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
				if phase == "quick" {
					w.TakePulls(stage.All)
				}
				got := w.fetch(t.Context(), 5, jetpull.MaxWait(20*time.Second))
				stage.Pass(200 * time.Millisecond)
				w.disconnect()
				stage.Pass(5 * time.Second)
				before := len(w.Pulls())
				w.TakePulls(nil)
				w.Publish(2) // to pulls that nobody hears any more
				w.reconnect()
				r := <-got
				require.NoError(t, r.err)
				require.Len(t, r.ms, 2)
				require.LessOrEqual(t, r.at, 6*time.Second, "as soon as the connection is back")
				require.LessOrEqual(t, len(w.Pulls())-before, 2)
				require.EqualValues(t, 1, w.sub.Stats().Reconnects)
			})
		})
	}
}

func TestADeadlineWhileDisconnected(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.disconnect()
		start := time.Now()
		_, err := w.sub.Next(t.Context(), jetpull.MaxWait(3*time.Second))
		require.ErrorIs(t, err, jetpull.ErrTimeout)
		require.Equal(t, 3*time.Second, time.Since(start))
		w.reconnect()
		w.Publish(1)
		_, err = w.sub.Next(t.Context())
		require.NoError(t, err)
	})
}

func TestABlackHole(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		w.Peer.Pause(true)
		got := w.next(t.Context(), jetpull.MaxWait(3*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		r := <-w.next(ctx)
		require.ErrorIs(t, r.err, context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, r.at)
		r = <-got
		require.ErrorIs(t, r.err, jetpull.ErrTimeout)
		require.Equal(t, 3*time.Second, r.at)
		w.Publish(1)
		w.Peer.Pause(false)
		stage.Pass(time.Second)
		_, err := w.sub.Next(t.Context())
		require.NoError(t, err)
		require.Len(t, w.C().Held(), 1, "what was held back has gone back")
	})
}

func TestLeaderChangesDuringACall(t *testing.T) {
	for _, outage := range []time.Duration{0, 3 * time.Second} {
		server := model.Config{Replicas: 3, Outage: model.Delay{Min: outage, Max: outage}}
		onStage(t, stage.Config{Model: server}, func(t *testing.T, w *world) {
			got := w.next(t.Context(), jetpull.MaxWait(20*time.Second))
			stage.Pass(time.Second)
			w.C().StepDown()
			w.Publish(1)
			r := <-got
			require.NoError(t, r.err)
			require.LessOrEqual(t, r.at, outage+2*time.Second, "within a second")
		})
	}
}

func TestAServerThatIsShutDownDuringACall(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		got := w.next(t.Context(), jetpull.MaxWait(20*time.Second))
		stage.Pass(time.Second)
		w.Model.Shutdown()
		stage.Pass(5 * time.Second)
		w.Model.Start()
		w.Publish(1)
		r := <-got
		require.NoError(t, r.err)
		require.LessOrEqual(t, r.at, 7*time.Second)
	})
}

func TestAClosedConnection(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		got := w.next(t.Context(), jetpull.MaxWait(time.Minute))
		stage.Pass(time.Second)
		w.NC.Close()
		r := <-got
		_, fetch := w.sub.Fetch(t.Context(), 5)
		_, subscribe := jetpull.Subscribe(t.Context(), w.JS, "S", "C")
		for _, err := range []error{r.err, fetch, subscribe} {
			require.ErrorIs(t, err, jetpull.ErrClosed)
			require.ErrorIs(t, err, nats.ErrConnectionClosed)
		}
		require.Equal(t, time.Second, r.at)
		require.Equal(t, time.Second, w.Elapsed(), "known at once")
	})
}

func TestADrainingConnection(t *testing.T) {
	on(t, jetstream.ConsumerConfig{}, func(t *testing.T, w *world) {
		got := w.next(t.Context(), jetpull.MaxWait(time.Minute))
		require.NoError(t, w.NC.Drain())
		r := <-got
		require.ErrorIs(t, r.err, jetpull.ErrClosed)
		require.Less(t, r.at, time.Second)
		stage.Pass(time.Minute) // nats.go drains on a goroutine of its own
	})
}

// Calls begin in the moment in which the connection breaks, and it keeps nothing
// that was sent meanwhile.
func TestAPullInTheMomentOfACutIsSentAgain(t *testing.T) {
	onStage(t, stage.Config{Conn: []nats.Option{nats.ReconnectBufSize(-1)}}, func(t *testing.T, w *world) {
		w.Peer.Refuse(true)
		w.Peer.Cut()
		next := w.next(t.Context(), jetpull.MaxWait(time.Minute))
		var j stage.Journal
		r := w.consume(taking(&j, 0))
		stage.Pass(10 * time.Second)
		w.reconnect()
		stage.Pass(2 * time.Second)
		w.Publish(2)
		require.NoError(t, (<-next).err)
		stage.Pass(2 * time.Second)
		require.Equal(t, 1, j.Len())
		require.NoError(t, r.stop())
	})
}
