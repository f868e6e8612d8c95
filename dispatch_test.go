package jetpull

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// keyed is the message with the given sequence; its subject is its key.
func keyed(seq uint64, key string) *Msg {
	return &Msg{raw: &nats.Msg{Subject: key, Reply: fmt.Sprintf("$JS.ACK.S.C.1.%d.%d.0.0", seq, seq)}, sub: &Subscription{}}
}

func byKey() *dispatch { return newDispatch(1, true, (*Msg).Subject) }

// takeNow pops what is ready without waiting.
func takeNow(t *testing.T, d *dispatch) held {
	t.Helper()
	require.False(t, d.empty(), "nothing is ready")
	h, waited, starved, ok := d.pop(&slot{}, nil)
	require.True(t, ok)
	require.False(t, waited)
	require.False(t, starved)
	return h
}

// waiting is how many messages wait in d.
func waiting(d *dispatch) int {
	n, _ := d.size()
	return n
}

func sequences(hs []held) (seqs []uint64) {
	for _, h := range hs {
		seqs = append(seqs, h.m.Sequence())
	}
	return seqs
}

// What goes back for want of space comes again after the housekeeper's next round
// at the earliest, also where its line is due by now, and a copy that takes the
// place of what failed is out of what waits.
func TestDispatchSendsNothingToAndFro(t *testing.T) {
	d := byKey()
	d.push(0, []*Msg{keyed(1, "a")})
	d.failed(takeNow(t, d), 0)
	for seq := range uint64(maxBack) {
		d.push(0, []*Msg{keyed(seq+2, "a")})
	}
	rejected, _, _ := d.push(0, []*Msg{keyed(maxBack+2, "a")})
	require.Len(t, rejected, 1)
	require.GreaterOrEqual(t, rejected[0].after, awayLeast)
}

func TestDispatchForgetsACopyThatTakesItsPlace(t *testing.T) {
	d := byKey()
	d.push(0, []*Msg{keyed(1, "a")})
	d.failed(takeNow(t, d), time.Minute)
	d.push(0, []*Msg{keyed(2, "a"), keyed(2, "a"), keyed(1, "a")})
	d.settled(takeNow(t, d))
	second := takeNow(t, d)
	require.Equal(t, uint64(2), second.m.Sequence())
	d.failed(second, time.Minute)
	d.settled(takeNow(t, d))
	require.Zero(t, d.back)
}

// What a worker has handled is told of in lots, when it comes for more.
func TestDispatchTellsOfWhatIsFreedInLots(t *testing.T) {
	d := newDispatch(2, false, nil)
	var told [][2]int
	d.tell = func(n, bytes int) {
		require.True(t, d.mu.TryLock(), "the lock is held")
		d.mu.Unlock()
		told = append(told, [2]int{n, bytes})
	}
	d.setLot(2)
	d.push(0, []*Msg{keyed(1, "a"), keyed(2, "a"), keyed(3, "a"), keyed(4, "a"), keyed(5, "a")})
	size := keyed(1, "a").size()
	a, b := &d.slots[0], &d.slots[1]
	d.pop(a, nil)
	d.pop(b, nil)
	require.Equal(t, 2, d.running())
	require.Len(t, d.overdue(0, 1), 5, "three that wait and two in work")
	require.Empty(t, d.overdue(0, 1), "they are looked after")
	d.pop(a, nil)
	require.Empty(t, told)
	d.pop(b, nil)
	require.Equal(t, [][2]int{{2, 2 * size}}, told)
	d.stop()
	d.pop(a, nil)
	require.Equal(t, 1, d.running(), "a worker that ends leaves its slot")
}

func TestDispatchWithoutKeysKeepsOrder(t *testing.T) {
	d := newDispatch(1, false, nil)
	for seq := uint64(1); seq <= 100; seq += 2 {
		rejected, freed, _ := d.push(0, []*Msg{keyed(seq, "a"), keyed(seq+1, "b")})
		require.Empty(t, rejected)
		require.Zero(t, freed)
	}
	require.Equal(t, 100, waiting(d))
	for seq := uint64(1); seq <= 100; seq++ {
		require.Equal(t, seq, takeNow(t, d).m.Sequence())
	}
	require.True(t, d.empty())
}

func TestDispatchLinesByKey(t *testing.T) {
	d := byKey()
	d.push(0, []*Msg{keyed(1, "a"), keyed(2, "a"), keyed(3, "b"), keyed(4, "a")})
	first, other := takeNow(t, d), takeNow(t, d)
	require.Equal(t, []uint64{1, 3}, sequences([]held{first, other}), "one of each key is ready")
	require.True(t, d.empty(), "the others of a wait for the first")

	d.settled(first)
	second := takeNow(t, d)
	require.EqualValues(t, 2, second.m.Sequence())
	require.True(t, d.empty())
	d.settled(second)
	d.settled(other)
	d.settled(takeNow(t, d))
	require.Zero(t, waiting(d))
	require.Empty(t, d.lines, "no line is kept for a key that has nothing")
}

func TestDispatchFailedMessageHoldsBackItsKey(t *testing.T) {
	d := byKey()
	d.push(0, []*Msg{keyed(1, "a"), keyed(2, "a"), keyed(3, "b")})
	failed, other := takeNow(t, d), takeNow(t, d)
	messages, bytes := d.failed(failed, time.Second)
	require.Equal(t, 1, messages, "message 2 waits and does not count against the window")
	require.Equal(t, keyed(2, "a").raw.Size(), bytes)
	require.True(t, d.empty())

	rejected, freed, _ := d.push(0, []*Msg{keyed(4, "a"), keyed(5, "b")})
	require.Empty(t, rejected)
	require.Equal(t, 1, freed, "message 4 waits behind the failed one")
	d.settled(other)
	require.EqualValues(t, 5, takeNow(t, d).m.Sequence(), "the other key goes on")

	_, freed, _ = d.push(0, []*Msg{keyed(1, "a")})
	require.Zero(t, freed)
	again := takeNow(t, d)
	require.EqualValues(t, 1, again.m.Sequence(), "it came back")
	require.True(t, d.empty())
	require.False(t, again.released)
	for _, want := range []uint64{2, 4} {
		d.settled(again)
		again = takeNow(t, d)
		require.Equal(t, want, again.m.Sequence())
		require.True(t, again.released)
	}
	require.Zero(t, d.back)
}

func TestDispatchFailedMessageThatIsBackAlready(t *testing.T) {
	d := byKey()
	d.push(0, []*Msg{keyed(1, "a"), keyed(2, "a")})
	failed := takeNow(t, d)
	d.push(0, []*Msg{keyed(1, "a"), keyed(3, "a")})
	messages, _ := d.failed(failed, time.Hour)
	require.Zero(t, messages)
	for _, want := range []uint64{1, 2, 3} {
		h := takeNow(t, d)
		require.Equal(t, want, h.m.Sequence())
		require.True(t, d.empty())
		d.settled(h)
	}
	require.Empty(t, d.lines)
}

func TestDispatchLiftsAfterItsTime(t *testing.T) {
	d := byKey()
	d.push(0, []*Msg{keyed(1, "a"), keyed(2, "a")})
	d.failed(takeNow(t, d), 3*time.Second)
	d.lift(3*time.Second-1, news{})
	require.True(t, d.empty(), "lifted too early")
	d.lift(3*time.Second, news{})
	require.EqualValues(t, 2, takeNow(t, d).m.Sequence())
	d.push(0, []*Msg{keyed(1, "a")})
	require.True(t, d.empty(), "the failed one comes late and waits its turn")
}

func TestDispatchLiftForgetsAnEmptyLine(t *testing.T) {
	d := byKey()
	d.push(0, []*Msg{keyed(1, "a")})
	d.failed(takeNow(t, d), time.Second)
	d.lift(time.Second, news{})
	require.Empty(t, d.lines)
}

func TestDispatchBoundsWhatWaitsBehindFailures(t *testing.T) {
	d := byKey()
	d.push(0, []*Msg{keyed(1, "a")})
	failed := takeNow(t, d)
	d.failed(failed, time.Hour)
	batch := make([]*Msg, maxBack+10)
	for i := range batch {
		batch[i] = keyed(uint64(i)+2, "a")
	}
	rejected, freed, _ := d.push(0, batch)
	require.Equal(t, maxBack+10, freed, "none counts against the window")
	require.Len(t, rejected, 10)
	require.Equal(t, returned{batch[maxBack], time.Hour}, rejected[0], "to come again when the line is open")
	rejected, _, _ = d.push(0, []*Msg{keyed(1, "a"), keyed(9999, "b")})
	require.Empty(t, rejected, "the failed message itself and other keys are taken")
}

func TestDispatchOverdue(t *testing.T) {
	d := byKey()
	d.push(1, []*Msg{keyed(1, "a"), keyed(2, "a")})
	d.push(5, []*Msg{keyed(3, "b")})
	require.Len(t, d.overdue(0, 9), 0)
	due := d.overdue(1, 9)
	require.Len(t, due, 2, "ready or waiting in a line")
	require.Empty(t, d.overdue(4, 9), "they were just looked after")
	require.Len(t, d.overdue(5, 10), 1)
	require.EqualValues(t, 9, takeNow(t, d).since, "a worker starts from when it was last looked after")
}

func TestDispatchStop(t *testing.T) {
	d := byKey()
	d.push(0, []*Msg{keyed(1, "a"), keyed(2, "a"), keyed(3, "b"), keyed(4, "c")})
	running, failed := takeNow(t, d), takeNow(t, d)
	d.failed(failed, time.Hour)
	require.ElementsMatch(t, []uint64{2, 4}, sequences(d.stop()), "what was not started")
	rejected, _, _ := d.push(0, []*Msg{keyed(5, "e")})
	require.Len(t, rejected, 1, "nothing is taken after the end")
	messages, _ := d.failed(running, 1)
	require.Zero(t, messages)
	d.settled(running)
	_, _, _, ok := d.pop(&slot{}, nil)
	require.False(t, ok)
	require.Zero(t, waiting(d))
	require.Empty(t, d.stop(), "stopped twice")
}

func TestDispatchWakesWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := byKey()
		type got struct {
			held            held
			waited, starved bool
			ok              bool
		}
		results := make(chan got, 3)
		pop := func() {
			go func() {
				h, waited, starved, ok := d.pop(&slot{}, nil)
				results <- got{h, waited, starved, ok}
			}()
			synctest.Wait()
		}
		pop()
		require.Empty(t, results, "a worker waits")
		d.push(0, []*Msg{keyed(1, "a"), keyed(2, "a")})
		first := <-results
		require.True(t, first.ok && first.waited)
		require.False(t, first.starved, "before the first message nothing starves")
		pop()
		require.Empty(t, results, "the second waits for the first, which is being handled")
		d.settled(first.held)
		second := <-results
		require.EqualValues(t, 2, second.held.m.Sequence())
		require.True(t, second.starved, "it waited although messages came")
		pop()
		pop()
		d.stop()
		require.False(t, (<-results).ok)
		require.False(t, (<-results).ok)
	})
}

// TestDispatchDrawn plays drawn runs of workers over lines: each message is
// handled, and those of a key in order, failures included.
func TestDispatchDrawn(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := byKey()
		const messages, keys = 300, 5
		var back []*Msg // NAKed, to come again
		last := map[string]uint64{}
		var running []held
		next, done := uint64(1), 0
		for done < messages {
			switch {
			case len(back) > 0 && r.IntN(3) == 0:
				d.push(0, back[:1])
				back = back[1:]
			case next <= messages && r.IntN(2) == 0:
				d.push(0, []*Msg{keyed(next, fmt.Sprint(next%keys))})
				next++
			case !d.empty() && len(running) < 3:
				running = append(running, takeNow(t, d))
			case len(running) > 0:
				i := r.IntN(len(running))
				h := running[i]
				running = slices.Delete(running, i, i+1)
				if r.IntN(4) == 0 {
					d.failed(h, time.Hour)
					back = append(back, h.m)
					continue
				}
				require.Greater(t, h.m.Sequence(), last[h.key], "seed %d: order of key %s", seed, h.key)
				last[h.key] = h.m.Sequence()
				done++
				d.settled(h)
			}
		}
		require.Zero(t, waiting(d), "seed %d", seed)
		require.Zero(t, d.back, "seed %d", seed)
		require.Empty(t, d.lines, "seed %d", seed)
	}
}

func TestRingKeepsOrderAndForgets(t *testing.T) {
	var r ring[held]
	next, want := uint64(1), uint64(1)
	for range 2000 {
		for range 7 {
			r.push(held{m: keyed(next, "")})
			next++
		}
		for range min(r.len(), 7) {
			require.Equal(t, want, r.pop().m.Sequence())
			want++
		}
	}
	require.Zero(t, r.len())
	require.LessOrEqual(t, cap(r.items), 64, "memory is used again")
	for range 5 {
		r.push(held{m: keyed(1, "")})
	}
	r.pop()
	require.Nil(t, r.items[0].m, "a message that was taken is not kept alive")
	require.Len(t, r.all(), 4)
}
