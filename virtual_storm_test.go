package jetpull

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// ledger notes where messages went.
type ledger struct {
	t    *testing.T
	mu   sync.Mutex
	seqs map[uint64]int
}

func (l *ledger) add(ms ...*Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range ms {
		l.seqs[m.Sequence()]++
	}
}

// storm runs callers of all kinds for a minute while weather happens, and
// looks that each message was handed to one of them or given back.
func storm(t *testing.T, seed uint64, weather func(*script, *rand.Rand) (lossless bool)) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		end := time.Now().Add(time.Minute)
		l := &ledger{t: t, seqs: map[uint64]int{}}
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() { s.caller(l, rand.New(rand.NewPCG(seed, uint64(i))), end) })
		}
		draw := rand.New(rand.NewPCG(seed, 99))
		lossless := true
		for time.Now().Before(end) {
			s.publish(draw.IntN(4))
			lossless = weather(s, draw) && lossless
			after(time.Duration(draw.IntN(150)) * time.Millisecond)
		}
		wg.Wait()
		for {
			ms, err := s.sub.Fetch(t.Context(), 100, NoWait())
			if err != nil {
				require.ErrorIs(t, err, ErrNoMessages)
				break
			}
			l.add(ms...)
		}
		require.NoError(t, s.sub.Close(t.Context()))
		l.balance(s, lossless)
	})
}

// caller calls with all kinds of patience until end.
func (s *script) caller(l *ledger, draw *rand.Rand, end time.Time) {
	var last *Msg
	for time.Now().Before(end) {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Duration(1+draw.IntN(3000))*time.Millisecond)
		if draw.IntN(3) == 0 {
			time.AfterFunc(time.Duration(draw.IntN(500))*time.Millisecond, cancel)
		}
		var ms []*Msg
		var err error
		switch n := 1 + draw.IntN(6); draw.IntN(6) {
		case 0:
			ms, err = s.sub.Fetch(ctx, n)
		case 1:
			ms, err = s.sub.Fetch(ctx, n, FillBatch())
		case 2:
			ms, err = s.sub.Fetch(ctx, n, NoWait())
		case 3:
			ms, err = s.sub.Fetch(ctx, n, MaxBytes(1+draw.IntN(300)))
		case 4:
			if last != nil {
				ms, err = one(last.AckNext(ctx))
				break
			}
			fallthrough
		default:
			ms, err = one(s.sub.Next(ctx))
		}
		cancel()
		if (len(ms) > 0) == (err != nil) {
			s.t.Errorf("%d messages and error %v", len(ms), err)
		}
		if err != nil && !expected(err) {
			s.t.Errorf("unexpected error: %v", err)
		}
		l.add(ms...)
		if last = nil; len(ms) > 0 {
			last = ms[0]
		}
		if draw.IntN(4) == 0 {
			<-time.After(time.Duration(draw.IntN(100)) * time.Millisecond)
		}
	}
}

func expected(err error) bool {
	return slices.ContainsFunc([]error{ErrTimeout, ErrNoMessages, ErrMaxBytes, context.Canceled}, func(e error) bool { return errors.Is(err, e) })
}

// balance holds what was handed over and back against what was delivered.
func (l *ledger) balance(s *script, lossless bool) {
	l.t.Helper()
	for _, seq := range s.acked("-NAK") {
		l.seqs[seq]++
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Greater(l.t, s.seq, uint64(100), "the test delivers something")
	lost := 0
	for seq := uint64(1); seq <= s.seq; seq++ {
		switch n := l.seqs[seq]; {
		case n == 0:
			lost++
		case n > 1:
			require.Fail(l.t, "a message went two ways", "%d went %d ways", seq, n)
		}
	}
	if lossless {
		require.Zero(l.t, lost, "messages that arrived were lost")
		require.Zero(l.t, s.stock)
	}
}

func TestStormOfCallers(t *testing.T) {
	seeds := 4
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		for name, weather := range map[string]func(*script, *rand.Rand) bool{
			"calm":     func(*script, *rand.Rand) bool { return true },
			"statuses": badNews,
			"slow":     stillWater,
			"cuts":     cuts,
		} {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) { storm(t, uint64(seed), weather) })
		}
	}
}

// badNews ends pulls now and then as a server does that has a bad day.
func badNews(s *script, draw *rand.Rand) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if draw.IntN(5) > 0 || len(s.waiting) == 0 {
		return true
	}
	w := s.waiting[draw.IntN(len(s.waiting))]
	if !s.peer.HasInterest(w.Reply) {
		s.drop(w)
		return true
	}
	switch draw.IntN(6) {
	case 0:
		s.end(w, 409, "Leadership Change")
	case 1:
		s.end(w, 503, "")
	case 2:
		s.drop(w)
	case 3:
		s.end(w, 423, "Nats-Pin-Id mismatch")
	case 4:
		s.end(w, 408, "Interest Expired")
	case 5:
		// On R3 the status comes before the message it counts.
		s.end(w, 408, "Request Timeout", "Nats-Pending-Messages", fmt.Sprint(w.left-1), "Nats-Pending-Bytes", "0")
		s.message(w.Reply)
	}
	return true
}

// stillWater holds everything up for a while, in both directions.
func stillWater(s *script, draw *rand.Rand) bool {
	if draw.IntN(20) == 0 {
		s.peer.Pause(true)
		<-time.After(time.Duration(draw.IntN(3000)) * time.Millisecond)
		s.peer.Pause(false)
		synctest.Wait()
	}
	return true
}

// cuts loses the connection, and with it what was on its way.
func cuts(s *script, draw *rand.Rand) bool {
	if draw.IntN(20) > 0 {
		return true
	}
	s.peer.Cut()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = nil
	return false
}

func TestSomeSilenceFromTheServer(t *testing.T) {
	virtually(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *script) {
		draw := rand.New(rand.NewPCG(1, 2))
		s.answers(func(natstest.Pull) bool { return draw.IntN(3) == 0 })
		var wg sync.WaitGroup
		l := &ledger{t: t, seqs: map[uint64]int{}}
		for range 8 {
			wg.Go(func() {
				for range 20 {
					ms, err := one(s.sub.Next(t.Context(), MaxWait(20*time.Second), Heartbeat(time.Second)))
					if err != nil && !errors.Is(err, nats.ErrTimeout) {
						t.Error(err)
					}
					l.add(ms...)
				}
			})
		}
		for range 160 {
			s.publish(1)
			after(100 * time.Millisecond)
		}
		wg.Wait()
		require.NoError(t, s.sub.Close(t.Context()))
		l.balance(s, false)
		require.GreaterOrEqual(t, len(l.seqs), 155, "a lost reply costs time, not messages")
		require.Positive(t, s.sub.Stats().Silent)
	})
}
