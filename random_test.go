package jetpull_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/model"
	"github.com/jetpull/jetpull/internal/natstest/stage"
)

// storm is callers of all kinds on three connections, and weather.
type storm struct {
	*world
	draw    *rand.Rand // of the weather
	end     time.Time
	callers sync.WaitGroup
}

// TestStorm: whatever happens, each message is settled in the end. Where nothing
// that was sent can get lost, each is handed over once, and none is stranded when
// Subscriptions close and callers leave.
func TestStorm(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		for _, faulty := range []bool{false, true} {
			server := model.Config{Seed: seed, Up: model.Delay{Max: 20 * time.Millisecond}, Down: model.Delay{Max: 20 * time.Millisecond}}
			wait := time.Hour
			if faulty {
				server.Replicas, server.Outage.Max, server.Quorum.Max = 3, 2*time.Second, 10*time.Millisecond
				wait = 5 * time.Second
			}
			cfg := stage.Config{Model: server, Consumer: jetstream.ConsumerConfig{AckWait: wait}}
			t.Run(fmt.Sprintf("seed %d, faulty %v", seed, faulty), atStage(cfg, func(t *testing.T, w *world) {
				s := &storm{world: w, draw: rand.New(rand.NewPCG(seed, 99)), end: time.Now().Add(30 * time.Second)}
				for i := range uint64(3) {
					s.callers.Go(func() { s.client(rand.New(rand.NewPCG(seed, i))) })
				}
				for time.Now().Before(s.end) {
					w.Publish(s.draw.IntN(5))
					s.weather(faulty)
					stage.Pass(time.Duration(s.draw.IntN(300)) * time.Millisecond)
				}
				s.callers.Wait()
				stage.Pass(3 * time.Second)
				if !faulty {
					require.Empty(t, w.C().Held(), "neither handed over nor handed back")
				}
				w.consume(taking(&w.j, 0))
				w.soon(time.Minute, "all to be settled", func() bool { return len(w.C().Unsettled()) == 0 })
				handed := w.j.All()
				slices.Sort(handed)
				if faulty {
					handed = slices.Compact(handed)
				}
				require.Equal(t, stage.UpTo(w.Model.Messages("S")), handed)
			}))
		}
	}
}

// weather does something, or nothing.
func (s *storm) weather(faulty bool) {
	switch n := s.draw.IntN(12); {
	case n == 0:
		s.C().EndPulls(409, "Leadership Change")
	case n == 1:
		s.C().EndPulls(408, "Interest Expired")
	case n == 2:
		s.C().DropPulls()
	case n == 3:
		s.Hush(time.Duration(s.draw.IntN(1500)) * time.Millisecond)
	case n == 4 && faulty:
		s.Peer.Cut()
	case n == 5 && faulty:
		s.C().StepDown()
	}
}

// client uses Subscriptions of one connection one after the other, each until it is
// closed under its callers.
func (s *storm) client(draw *rand.Rand) {
	js := natstest.JetStream(s.t, s.Connect())
	for time.Now().Before(s.end) {
		sub, err := jetpull.Subscribe(s.t.Context(), js, "S", "C", jetpull.MaxWait(time.Duration(1+draw.IntN(4000))*time.Millisecond))
		if err != nil {
			continue // there was no leader in time
		}
		var calls sync.WaitGroup
		for range 5 {
			own := rand.New(rand.NewPCG(draw.Uint64(), 0))
			calls.Go(func() {
				for err := error(nil); !errors.Is(err, jetpull.ErrClosed) && time.Now().Before(s.end); {
					err = s.call(sub, own)
				}
			})
		}
		<-time.After(time.Duration(1+draw.IntN(10)) * time.Second)
		require.NoError(s.t, sub.Close(context.Background()))
		calls.Wait()
		require.Zero(s.t, sub.Stats().Outstanding)
	}
}

// call makes one call, which ends by itself or before its time.
func (s *storm) call(sub *jetpull.Subscription, draw *rand.Rand) (err error) {
	c, cancel := context.WithTimeout(s.t.Context(), time.Duration(1+draw.IntN(3000))*time.Millisecond)
	defer cancel()
	var ms []*jetpull.Msg
	n := 1 + draw.IntN(6)
	switch draw.IntN(7) {
	case 0:
		ms, err = sub.Fetch(c, n)
	case 1:
		ms, err = sub.Fetch(c, n, jetpull.FillBatch())
	case 2:
		ms, err = sub.Fetch(c, n, jetpull.NoWait())
	case 3:
		ms, err = sub.Fetch(c, n, jetpull.MaxBytes(1+draw.IntN(300)))
	case 4:
		return sub.Consume(c, taking(&s.j, time.Duration(n-1)*time.Millisecond), jetpull.Concurrency(n), bySubject)
	case 5:
		for m, end := range sub.Messages(c) {
			if err = end; err != nil {
				break
			}
			if s.settle(c, m, false); n == 0 {
				break
			}
			n--
		}
		return err
	default:
		ms, err = one(sub.Next(c))
	}
	require.Equal(s.t, len(ms) == 0, err != nil, "%d messages and error %v", len(ms), err)
	for _, m := range ms {
		s.settle(c, m, draw.IntN(3) == 0)
	}
	known := []error{nil, jetpull.ErrTimeout, jetpull.ErrNoMessages, jetpull.ErrMaxBytes, jetpull.ErrClosed, context.Canceled}
	require.True(s.t, slices.ContainsFunc(known, func(is error) bool { return errors.Is(err, is) }), "%v", err)
	return err
}

// settle acknowledges a message, perhaps with AckNext.
func (s *storm) settle(c context.Context, m *jetpull.Msg, next bool) {
	s.j.Note(m.Sequence())
	if !next {
		require.NoError(s.t, m.Ack())
		return
	}
	if following, _ := m.AckNext(c); following != nil {
		s.settle(c, following, false)
	}
}
