package jetpull

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// TestKeysKeepTheirPlaceBehindAFailure: more messages of a key come than may wait
// behind one that failed, before and after it is back, and those of another key
// are not held up.
func TestKeysKeepTheirPlaceBehindAFailure(t *testing.T) {
	for name, cfg := range map[string]jetstream.ConsumerConfig{
		"default":                  {MaxAckPending: -1},
		"two deliveries at most":   {MaxAckPending: -1, MaxDeliver: 2},
		"three deliveries at most": {MaxAckPending: -1, MaxDeliver: 3},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, cfg, func(t *testing.T, s *stage) {
				const first, more = 2*maxBack + 500, 50
				var one, other journal
				r := s.consume(func(ctx context.Context, m *Msg) error {
					if m.Subject() == "s.other" {
						return other.handler(0)(ctx, m)
					}
					if m.Sequence() == 1 && m.Delivered() == 1 {
						return Retry(3*time.Second, errors.New("not yet"))
					}
					return one.handler(0)(ctx, m)
				}, OrderedBy((*Msg).Subject), Concurrency(4))
				for range first {
					s.publishTo("s.one", nil, "")
				}
				pass(time.Second)
				s.publishTo("s.other", nil, "")
				pass(time.Second)
				require.Equal(t, 1, other.len(), "another key goes on")
				require.Zero(t, one.len(), "the first of the key is away")
				require.Positive(t, s.count("-NAK", 0), "more came than may wait")
				for range 20 { // it comes back in the middle of these
					pass(100 * time.Millisecond)
					for range more {
						s.publishTo("s.one", nil, "")
					}
				}
				pass(time.Minute)
				got := one.all()
				require.True(t, slices.IsSorted(got), "in stream order")
				require.Len(t, got, first+20*more, "each once")
				require.NoError(t, r.stop())
				require.Zero(t, s.unsettled())
			})
		})
	}
}

// TestAwayMessagesThatNeverComeBack: another client got them. The line waits for
// the time in which they should have come, once.
func TestAwayMessagesThatNeverComeBack(t *testing.T) {
	d := byKey()
	now := at(0)
	d.clock, d.grace = func() at { return now }, 5*time.Second
	d.push(now, []*Msg{keyed(1, "a")})
	d.failed(takeNow(t, d), time.Second)
	var batch []*Msg
	for seq := uint64(2); seq < maxBack+12; seq++ {
		batch = append(batch, keyed(seq, "a"))
	}
	rejected, _, _ := d.push(now, batch)
	require.Len(t, rejected, 10)
	d.push(now, []*Msg{keyed(1, "a")})
	for range maxBack + 1 {
		d.settled(takeNow(t, d))
	}
	d.push(now, []*Msg{keyed(9999, "a")})
	require.True(t, d.empty(), "ten are away")
	now = 5 * time.Second
	d.lift(now, news{})
	require.True(t, d.empty(), "they are due at 1 s and have 5 s to come")
	now = 6 * time.Second
	d.lift(now, news{})
	require.EqualValues(t, 9999, takeNow(t, d).m.Sequence())
	d.settled(held{m: keyed(9999, "a"), key: "a"})
	require.Empty(t, d.lines)
	require.Zero(t, d.back)
}

// TestAwayDrawn plays drawn runs in which many more messages come than may wait,
// with a server that delivers again what was handed back, late or early. The
// account of what counts against the window is right in the end.
func TestAwayDrawn(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 7))
		d := byKey()
		now := at(0)
		d.clock, d.grace = func() at { return now }, time.Hour
		held, told := 0, 0
		d.tell = func(n, bytes int) { told += n; require.Positive(t, bytes) }
		const messages, keys = 3 * maxBack, 2
		var back []*Msg
		last := map[string]uint64{}
		deliver := func(ms ...*Msg) {
			held += len(ms)
			rejected, freed, _ := d.push(now, ms)
			held -= freed
			for _, r := range rejected {
				back = append(back, r.m)
			}
		}
		next, done := uint64(1), 0
		for done < messages {
			now += at(rng.Int64N(int64(10 * time.Millisecond)))
			switch {
			case next <= messages && rng.IntN(3) > 0:
				var ms []*Msg
				for range 1 + rng.IntN(200) {
					if next <= messages {
						ms = append(ms, keyed(next, fmt.Sprint(next%keys)))
						next++
					}
				}
				deliver(ms...)
			case len(back) > 0 && rng.IntN(3) == 0:
				n := 1 + rng.IntN(len(back))
				ms := slices.Clone(back[:n])
				rng.Shuffle(n, func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
				back = back[n:]
				deliver(ms...)
			case !d.empty():
				h := takeNow(t, d)
				if rng.IntN(50) == 0 {
					if !h.released {
						held--
					}
					freed, _ := d.failed(h, now+time.Hour)
					held -= freed
					back = append(back, h.m)
					continue
				}
				require.Greater(t, h.m.Sequence(), last[h.key], "seed %d: order of key %s", seed, h.key)
				last[h.key] = h.m.Sequence()
				done++
				if !h.released {
					held--
				}
				d.settled(h)
			}
		}
		require.Zero(t, waiting(d), "seed %d", seed)
		require.Zero(t, d.back+d.backBytes, "seed %d", seed)
		require.Equal(t, held, told, "seed %d: what is held and not told to be free", seed)
		d.lift(now+2*time.Hour, news{})
		require.Empty(t, d.lines, "seed %d", seed)
	}
}
