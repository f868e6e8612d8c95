package jetpull

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// What Consume has read ahead at its last delivery is handled after the end, for
// the server would not deliver it again; the rest goes back.
func TestConsumeHandlesLastDeliveriesAtTheEnd(t *testing.T) {
	for name, opts := range map[string][]Option{
		"one worker": nil, "workers": {Concurrency(4)}, "by key": {Concurrency(4), OrderedBy((*Msg).Subject)},
		"ack policy all": nil,
	} {
		t.Run(name, func(t *testing.T) {
			cfg := jetstream.ConsumerConfig{MaxDeliver: 2}
			if name == "ack policy all" {
				cfg.AckPolicy = jetstream.AckAllPolicy
			}
			onStage(t, cfg, func(t *testing.T, s *stage) {
				s.do(func() {
					for i := range 20 {
						s.store("s."+fmt.Sprint(i%3), nil, "x")
						if i < 10 {
							s.delivered[i+1] = 1 // so the next one is the last
						}
					}
				})
				var j journal
				r := s.consume(j.handler(100*time.Millisecond), append(opts, Prefetch(20))...)
				pass(50 * time.Millisecond)
				require.NoError(t, r.stop())
				require.Subset(t, j.all(), upTo(10))
				require.Less(t, j.len(), 20)
				lines := map[int][]int{}
				for _, seq := range j.all() {
					key := seq % 3
					if name == "one worker" {
						key = 0
					}
					lines[key] = append(lines[key], seq)
				}
				for _, line := range lines {
					require.True(t, name == "workers" || slices.IsSorted(line), "in order: %v", line)
				}
				for seq := range 10 {
					require.Zero(t, s.count("-NAK", seq+1), "message %d", seq+1)
				}
				require.Equal(t, 20-j.len(), s.count("-NAK", 0))
			})
		})
	}
}

// A handler that fails after the end does not keep the later ones of its key from
// their last chance.
func TestConsumeHandlesLastDeliveriesBehindAFailure(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{MaxDeliver: 2}, func(t *testing.T, s *stage) {
		s.do(func() {
			for range 5 {
				s.store("s.a", nil, "x")
			}
			for seq := 2; seq <= 5; seq++ {
				s.delivered[seq] = 1
			}
		})
		var j journal
		r := s.consume(func(_ context.Context, m *Msg) error {
			j.note(m)
			<-time.After(100 * time.Millisecond)
			if m.Sequence() == 1 {
				return errors.New("not yet")
			}
			return nil
		}, OrderedBy((*Msg).Subject))
		pass(50 * time.Millisecond)
		require.NoError(t, r.stop())
		require.Equal(t, upTo(5), j.all())
		require.Equal(t, 1, s.count("-NAK", 0))
	})
}

// When the drain is over what is at its last delivery and was not handled becomes a
// dead letter; where there is none, OnError and the error say so.
func TestConsumeGivesUpLastDeliveriesWhenTheDrainIsOver(t *testing.T) {
	for _, dead := range []bool{true, false} {
		t.Run(fmt.Sprintf("dead letter %v", dead), func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{MaxDeliver: 1}, func(t *testing.T, s *stage) {
				opts := []Option{DrainTimeout(time.Second), Prefetch(5)}
				var g *graveyard
				if dead {
					g = newGraveyard(t, s)
					opts = append(opts, MaxAttempts(1), DeadLetter("dead.letters"))
				}
				s.publish(5)
				var calls atomic.Int64
				r := s.consume(func(ctx context.Context, _ *Msg) error {
					calls.Add(1)
					<-ctx.Done()
					return nil
				}, opts...)
				pass(10 * time.Millisecond)
				err := r.stop()
				require.ErrorIs(t, err, ErrDrainTimeout)
				require.ErrorContains(t, err, "4 messages at their last delivery")
				require.EqualValues(t, 1, calls.Load())
				if dead {
					require.Len(t, g.dead, 4)
					require.Equal(t, 4, s.count("+TERM", 0))
					require.Contains(t, g.dead[0].header.Get(HeaderDeadReason), "ended before a handler had time")
					return
				}
				pass(time.Second)
				require.Len(t, r.errs.all(), 4)
				require.ErrorContains(t, r.errs.all()[0], "stream sequence 2")
			})
		})
	}
}

// The loop of Messages cannot be made to go on: the log says what is lost.
func TestMessagesTellsOfLastDeliveriesHandedBack(t *testing.T) {
	onStage(t, jetstream.ConsumerConfig{MaxDeliver: 1}, func(t *testing.T, s *stage) {
		s.publish(5)
		for m, err := range s.sub.Messages(t.Context(), Logger(slog.New(slog.NewTextHandler(s.logs, nil))), Prefetch(5)) {
			require.NoError(t, err)
			pass(time.Millisecond)
			require.NoError(t, m.Ack())
			break
		}
		lines := s.logs.with("handed back at their last delivery")
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], "messages=4")
	})
}
