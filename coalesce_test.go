package jetpull

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

var ackAll = jetstream.ConsumerConfig{AckPolicy: jetstream.AckAllPolicy}

func TestCoalescerAcknowledgesRuns(t *testing.T) {
	onStage(t, ackAll, func(t *testing.T, s *stage) {
		c := newCoalescer(0)
		s.publish(coalesceRun*2 + 10)
		msgs, err := s.sub.Fetch(t.Context(), 1000)
		require.NoError(t, err)
		require.Len(t, msgs, coalesceRun*2+10)
		for _, m := range msgs[:coalesceRun-1] {
			c.ack(m)
		}
		synctest.Wait()
		require.Zero(t, s.count("+ACK", 0), "a run is not acknowledged one by one")
		c.ack(msgs[coalesceRun-1])
		synctest.Wait()
		require.Len(t, s.verbs("+ACK", 0), 1, "a full run is")
		require.Len(t, s.verbs("+ACK", coalesceRun), 1, "by its last message")
		require.Equal(t, coalesceRun+10, s.unsettled())

		for _, m := range msgs[coalesceRun : coalesceRun+5] {
			c.ack(m)
		}
		pass(coalesceFor - time.Millisecond)
		require.Equal(t, 1, s.count("+ACK", 0))
		pass(time.Millisecond)
		require.Equal(t, 1, s.count("+ACK", coalesceRun+5), "the rest when its time is over")
		for _, m := range msgs[:coalesceRun+5] {
			require.ErrorIs(t, m.Ack(), jetstream.ErrMsgAlreadyAckd, "all of a run are settled")
		}
		c.ack(msgs[coalesceRun+5])
		c.close()
		synctest.Wait()
		require.Equal(t, 1, s.count("+ACK", coalesceRun+6), "close leaves nothing due")
		c.close()
		pass(time.Minute)
		require.Equal(t, 3, s.count("+ACK", 0))
	})
}

func TestConsumeAckAllCoalesces(t *testing.T) {
	onStage(t, ackAll, func(t *testing.T, s *stage) {
		s.publish(1000)
		var j journal
		r := s.consume(j.handler(0))
		pass(time.Second)
		require.Equal(t, upTo(1000), j.all())
		require.Zero(t, s.unsettled())
		require.LessOrEqual(t, s.count("+ACK", 0), 1000/coalesceRun+10)
		s.publish(1)
		pass(20 * time.Millisecond)
		require.Zero(t, s.unsettled(), "a single one waits no longer")
		require.NoError(t, r.stop())
	})
}

// TestConsumeAckAllUnderMaxAckPending: a server that delivers no more until some
// are acknowledged is not left to wait for coalesceFor.
func TestConsumeAckAllUnderMaxAckPending(t *testing.T) {
	for _, pending := range []int{1, 3, 64, 128, 300} {
		t.Run(strconv.Itoa(pending), func(t *testing.T) {
			cfg := ackAll
			cfg.MaxAckPending = pending
			onStage(t, cfg, func(t *testing.T, s *stage) {
				var j journal
				r := s.consume(j.handler(0))
				s.publish(1000)
				pass(coalesceFor / 2)
				require.Equal(t, upTo(1000), j.all())
				pass(coalesceFor)
				require.Zero(t, s.unsettled())
				require.LessOrEqual(t, s.count("+ACK", 0), 1000/runLength(pending)+10)
				require.NoError(t, r.stop())
			})
		})
	}
}

// TestConsumeAckAllBoundsWhatACrashRepeats looks at each moment how many
// handled messages are not acknowledged.
func TestConsumeAckAllBoundsWhatACrashRepeats(t *testing.T) {
	onStage(t, ackAll, func(t *testing.T, s *stage) {
		s.publish(3000)
		handled := 0
		var at []time.Time
		r := s.consume(func(context.Context, *Msg) error {
			<-time.After(100 * time.Microsecond)
			s.do(func() {
				floor := 0
				if n := len(s.acks); n > 0 {
					floor = s.acks[n-1].seq
				}
				if open := handled - floor; open > coalesceRun {
					t.Errorf("%d handled messages are not acknowledged, want at most %d", open, coalesceRun)
				}
				if i := floor; i < handled && time.Since(at[i]) > coalesceFor+time.Millisecond {
					t.Errorf("message %d is not acknowledged %v after it was handled", i+1, time.Since(at[i]))
				}
				handled++
				at = append(at, time.Now())
			})
			return nil
		})
		pass(time.Minute)
		require.NoError(t, r.stop())
		require.Equal(t, 3000, handled)
	})
}

// settlesFailed fails the test if an acknowledgement covers a message that
// failed and was not handled again since.
func settlesFailed(t *testing.T, s *stage, failed *map[int]bool) {
	s.onAck = func(seq int, verb string) {
		if verb != "+ACK" {
			return
		}
		for f := range *failed {
			if f <= seq {
				t.Errorf("the acknowledgement of %d covers %d, which failed", seq, f)
			}
		}
	}
}

func TestConsumeAckAllNeverAcknowledgesAFailedMessage(t *testing.T) {
	for _, delay := range []time.Duration{0, 2 * time.Second, 40 * time.Second} {
		onStage(t, ackAll, func(t *testing.T, s *stage) {
			failed := map[int]bool{}
			settlesFailed(t, s, &failed)
			s.publish(500)
			var j journal
			r := s.consume(func(_ context.Context, m *Msg) error {
				seq := int(m.Sequence())
				var err error
				s.do(func() {
					delete(failed, seq)
					if m.Delivered() == 1 && seq%50 == 7 {
						failed[seq] = true
						err = Retry(delay, errors.New("once"))
					}
				})
				if err == nil {
					j.note(m)
				}
				return err
			})
			pass(20 * time.Minute)
			require.Equal(t, upTo(500), j.all(), "delay %v", delay)
			require.Zero(t, s.unsettled())
			require.NoError(t, r.stop())
		})
	}
}

// TestConsumeAckAllWaitsForAFailedMessage: it is away for longer than lines are
// patient, first because the connection is lost and then because the server
// takes its time.
func TestConsumeAckAllWaitsForAFailedMessage(t *testing.T) {
	for _, cut := range []bool{true, false} {
		onStage(t, ackAll, func(t *testing.T, s *stage) {
			failed := map[int]bool{}
			settlesFailed(t, s, &failed)
			s.publish(10)
			var j journal
			r := s.consume(func(_ context.Context, m *Msg) error {
				if j.note(m) == 1 && m.Sequence() == 3 {
					s.do(func() { failed[3] = true })
					if cut {
						s.peer.Refuse(true)
						s.peer.Cut()
						return errors.New("once")
					}
					return Retry(time.Second, nil)
				}
				s.do(func() { delete(failed, int(m.Sequence())) })
				return nil
			}, Prefetch(10))
			if !cut {
				pass(999 * time.Millisecond)
				s.do(func() { s.pending[3].Reset(3 * time.Minute) })
			}
			pass(time.Minute)
			require.Equal(t, []int{1, 2, 3}, j.all(), "4 to 10 wait")
			s.peer.Refuse(false)
			pass(5 * time.Minute)
			require.Equal(t, []int{1, 2, 3, 3}, j.all()[:4])
			require.Subset(t, j.all(), upTo(10))
			require.NoError(t, r.stop())
			require.Zero(t, s.unsettled())
		})
	}
}

func TestConsumeAckAllGoesOnWhenAnotherClientSettledIt(t *testing.T) {
	onStage(t, ackAll, func(t *testing.T, s *stage) {
		s.publish(3)
		floor := uint64(0)
		asked := 0
		s.peer.OnRequest("$JS.API.CONSUMER.INFO.S.C", func(p *natstest.Peer, r natstest.Request) {
			s.do(func() {
				asked++
				info := jetstream.ConsumerInfo{Stream: "S", Name: "C", Config: s.cfg}
				info.AckFloor.Stream = floor
				info.Delivered.Consumer, info.NumAckPending = 4, 3-int(floor)
				p.ReplyJSON(r.Reply, info)
			})
		})
		var j journal
		r := s.consume(func(_ context.Context, m *Msg) error {
			if j.note(m); m.Sequence() == 1 {
				s.do(func() { s.cfg.MaxDeliver = 1 }) // it goes to somebody else
				return errors.New("once")
			}
			return nil
		})
		pass(time.Minute)
		require.Equal(t, []int{1}, j.all())
		require.LessOrEqual(t, asked, 13, "one question in %v", lineGrace)
		s.do(func() { floor = 1 })
		pass(2 * lineGrace)
		require.Equal(t, []int{1, 2, 3}, j.all())
		require.NoError(t, r.stop())
	})
}

func TestConsumeAckAllWithHandlersThatNakThemselves(t *testing.T) {
	for _, result := range []error{nil, errors.New("failed")} {
		onStage(t, ackAll, func(t *testing.T, s *stage) {
			failed := map[int]bool{}
			settlesFailed(t, s, &failed)
			s.publish(300)
			var j journal
			r := s.consume(func(_ context.Context, m *Msg) error {
				seq := int(m.Sequence())
				if m.Delivered() > 1 || seq%20 != 3 {
					s.do(func() { delete(failed, seq) })
					j.note(m)
					return nil
				}
				s.do(func() { failed[seq] = true })
				if seq%40 == 3 {
					require.NoError(t, m.Nak())
					<-time.After(time.Second) // it is back before the handler returns
				} else {
					require.NoError(t, m.NakWithDelay(20*time.Second))
				}
				return result
			})
			pass(20 * time.Minute)
			require.Equal(t, upTo(300), j.all())
			require.Zero(t, s.unsettled())
			require.NoError(t, r.stop())
		})
	}
}

func TestConsumeAckAllTerminate(t *testing.T) {
	onStage(t, ackAll, func(t *testing.T, s *stage) {
		s.publish(5)
		r := s.consume(func(_ context.Context, m *Msg) error {
			if m.Sequence() == 3 {
				return Terminate("bad", nil)
			}
			return nil
		})
		pass(time.Second)
		require.NoError(t, r.stop())
		require.Equal(t, 1, s.count("+ACK", 2), "what came before is acknowledged first")
		require.Equal(t, 1, s.count("+TERM", 3))
		require.Zero(t, s.unsettled())
	})
}
