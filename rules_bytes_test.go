package jetpull

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// sharing is a standing claim whose window adapts.
func sharing(window int) func(*claim) {
	return func(c *claim) {
		standingOf(window)(c)
		c.stand.byteBound = (&streamSettings{}).byteBound()
	}
}

const tooLarge = "Message Size Exceeds MaxBytes"

// bounded fails the test if more is held, on order and on the wire than a window may.
func (w *world) bounded(c *claim) {
	w.t.Helper()
	require.GreaterOrEqual(w.t, c.stand.free(c.onOrder(w.now)), 0)
}

// arriveLarge lets a message of the given size arrive for p.
func (w *world) arriveLarge(p *pull, size int) {
	w.t.Helper()
	w.r.data(w.now, p.inbox, w.message("body"), size, "")
	w.did()
}

// batchDone lets the server say that it has delivered all of p, but for bytes.
func (w *world) batchDone(p *pull, bytes int) {
	w.t.Helper()
	s := ending(409, "Batch Completed", true, 0)
	s.PendingBytes = int64(bytes)
	w.r.status(w.now, p.inbox, p.token, s)
	w.did()
}

func TestPullsThatOverlapShareTheBytes(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(0, 0, sharing(1000))
	p := w.pulled(pullStream)[0]
	require.Equal(t, 1000, p.req.Batch)
	require.Equal(t, windowBytes/2, p.req.MaxBytes)
	w.deliver(p, 500)
	w.settled(c, 500, w.message("body").raw.Size())
	q := w.pulled(pullStream)[0]
	require.Equal(t, 500, q.req.Batch, "small messages never wait for bytes")
	require.InDelta(t, windowBytes/4, q.req.MaxBytes, 1<<15)
	w.bounded(c)

	// Large ones use the bytes up, and nothing goes out until some are free.
	for range 30 {
		w.arriveLarge(p, 1<<20)
	}
	w.pending(p, 409, tooLarge, 470)
	for range 12 {
		w.arriveLarge(q, 1<<20)
	}
	w.quiet()
	w.pending(q, 409, tooLarge, 488)
	r := w.pulled(pullStream)[0]
	require.Less(t, r.req.MaxBytes, windowBytes/4)
	w.bounded(c)
	w.pending(r, 409, tooLarge, int64(r.req.Batch))
	r = w.pulled(pullStream)[0]
	w.bounded(c)
	w.pending(r, 409, tooLarge, int64(r.req.Batch))
	w.pass(time.Minute)
	w.quiet()
	w.settled(c, 40, 1<<20)
	require.GreaterOrEqual(t, w.pulled(pullStream)[0].req.MaxBytes, leastShare)
}

// A message that does not fit is asked for with twice as much each time, and in the
// end without a limit, alone.
func TestAMessageThatDoesNotFitAShare(t *testing.T) {
	w := newWorld(t, limits{batch: 10})
	c := w.post(0, 0, sharing(1000))
	asked := 0
	for refused := 0; ; refused++ {
		require.Less(t, refused, 12, "there is an end to it")
		p := w.pulled(pullStream)[0]
		w.bounded(c)
		if p.req.MaxBytes == 0 {
			require.Equal(t, 1, p.req.Batch)
			w.r.took(w.now, c, 0, 0)
			w.did()
			w.quiet() // it has all bytes for itself
			w.arriveLarge(p, windowBytes+1)
			break
		}
		require.GreaterOrEqual(t, p.req.MaxBytes, min(2*asked, windowBytes-bytesLot))
		asked = p.req.MaxBytes
		w.pending(p, 409, tooLarge, int64(p.req.Batch))
	}
	w.quiet()
	w.settled(c, 1, windowBytes+1)
	require.Equal(t, leastShare, w.pulled(pullStream)[0].req.MaxBytes, "as before")
}

// What the consumer's limit keeps from being asked for comes alone too.
func TestAMessageLargerThanMaxRequestMaxBytes(t *testing.T) {
	w := newWorld(t, limits{bytes: 1000})
	c := w.post(0, 0, sharing(100))
	for range 3 {
		p := w.pulled(pullStream)[0]
		require.Equal(t, 1000, p.req.MaxBytes)
		w.pending(p, 409, tooLarge, int64(p.req.Batch))
		p = w.pulled(pullStream)[0]
		require.Zero(t, p.req.MaxBytes)
		require.Equal(t, 1, p.req.Batch)
		w.arriveLarge(p, 2000)
	}
	require.Equal(t, 3, c.stand.held, "while others are held")
}

// On a slow link messages come long after the status that promises them. Another
// pull asks for others, but not for their bytes, until it is known that they were
// lost.
func TestPromisedBytesAreReserved(t *testing.T) {
	w := newWorld(t, limits{})
	c := w.post(0, 0, sharing(50))
	p := w.pulled(pullStream)[0]
	w.batchDone(p, 2<<20)
	promised := windowBytes/2 - 2<<20
	require.Equal(t, windowBytes-promised, c.stand.free(c.onOrder(w.now)), "what it did not bring is free")
	w.pass(promiseHold)
	q := w.pulled(pullStream)[0]
	require.Equal(t, (windowBytes-promised)/2, q.req.MaxBytes)
	w.beats(q, int((promiseGrace-promiseHold)/shortBeat)+1)
	require.True(t, p.inbox.draining)
	require.Equal(t, promised, c.stand.draining, "it may be on the wire of the inbox")
	w.arriveLarge(p, 1<<20)
	require.Equal(t, promised-1<<20, c.stand.draining)
	w.bounded(c)
	w.drained()
	require.Zero(t, c.stand.draining)
}

// On R3 the status that ends a pull overtakes the message that brings the pin. A pull
// without it would be a stand-by, for as long as it lives.
func TestNoPullGoesOutBeforeThePinThatWasPromised(t *testing.T) {
	for name, lost := range map[string]bool{"it comes": false, "it is lost": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, limits{pinned: true, pinTTL: 6 * time.Second, batch: 1})
			lane := w.r.laneOf(groupTerms{group: "g"}, 0, false)
			w.post(0, 0, sharing(10), in(lane))
			p := w.pulled(pullStream)[0]
			w.batchDone(p, 1000)
			w.quiet()
			if lost {
				w.pass(promiseHold)
				require.Empty(t, w.pulled(pullStream)[0].req.ID)
				return
			}
			w.arrive(p.inbox, "pin")
			require.Equal(t, "pin", w.pulled(pullStream)[0].req.ID)
		})
	}
}

// The rules of an adaptive window hear of large messages before the lot is full.
func TestALotIsBoundedInBytes(t *testing.T) {
	d := newDispatch(1, false, nil)
	d.setLot(100)
	told := 0
	d.tell = func(_, bytes int) { told += bytes }
	w, quarter := newWorld(t, limits{}), string(make([]byte, bytesLot/4))
	size := 0
	for range 5 {
		m := w.message(quarter)
		size = m.size()
		d.push(0, []*Msg{m})
	}
	for range 5 {
		_, _, _, ok := d.pop(&d.slots[0], nil)
		require.True(t, ok)
	}
	require.Equal(t, 4*size, told)
}

func TestTheByteBound(t *testing.T) {
	for name, tt := range map[string]struct {
		opts   []Option
		want   byteBound
		window int
	}{
		"defaults":               {nil, byteBound{byteWindow: windowBytes, shared: true}, windowBytes},
		"Prefetch":               {[]Option{Prefetch(5)}, byteBound{}, windowBytes},
		"PrefetchBytes":          {[]Option{PrefetchBytes(1000)}, byteBound{byteWindow: 1000}, windowBytes},
		"PrefetchBytes, many":    {[]Option{PrefetchBytes(1 << 30)}, byteBound{byteWindow: 1 << 30}, 1 << 30},
		"Prefetch and its bytes": {[]Option{Prefetch(5), PrefetchBytes(1000)}, byteBound{byteWindow: 1000}, windowBytes},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, jetstream.ConsumerConfig{}, func(t *testing.T, s *stage) {
				st := s.sub.openStream(t.Context(), withStreaming(t, s.sub, tt.opts...), 1, true)
				defer st.close()
				require.Equal(t, tt.want, st.claim.stand.byteBound)
				require.Equal(t, tt.window, st.window.bytes)
			})
		})
	}
}
