package jetpull

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// fence keeps Consume with ack policy all from handling messages while others
// may be pending that it has not seen: those that were delivered into a
// connection that broke, or to a client that died. The acknowledgement of a later
// one would cover them, and they would never come again.
//
// The server numbers its deliveries. A number that does not follow on the last
// one raises the fence; what comes from there on waits in stream order. The fence
// falls when the server has no more messages pending than the client holds. Those
// that were missing have then come again, or been settled.
type fence struct {
	missing atomic.Int64  // redeliveries before it is worth asking again
	wake    chan struct{} // they have come
	// arriving is set while messages that the coalescer knows of are not yet in
	// the queue: were the fence to fall, later ones would go before them.
	arriving atomic.Bool
	gap      atomic.Uint64 // consumer sequence behind the last one
	lapsing  atomic.Bool   // see lapse
}

const (
	// fenceAgain is how often the server is asked while the fence is up.
	fenceAgain = 250 * time.Millisecond
	// fenceStep is by how much the window opens with each question once maxBack
	// messages wait behind the fence.
	fenceStep = 16
)

func newFence() *fence { return &fence{wake: make(chan struct{}, 1)} }

// inspect notes messages that arrived, and raises the fence if deliveries are
// missing before them. Messages that the loop of [Subscription.Messages] has
// gone past may be unacknowledged, so there the server's count tells nothing.
func (st *stream) inspect(ms []*Msg) {
	if st.fence == nil {
		st.acks.hold(ms)
		return
	}
	st.fence.arriving.Store(true)
	gap := st.acks.hold(ms)
	if gap != 0 {
		st.fence.gap.Store(gap)
		if !st.fence.lapsing.Load() && st.queue.raiseFence(gap) {
			st.group.Go(st.watchFence)
		}
	}
	if st.fence.missing.Load() <= 0 {
		return
	}
	n := int64(0)
	for _, m := range ms {
		if m.redelivered() {
			n++
		}
	}
	if n > 0 && st.fence.missing.Add(-n) <= 0 {
		select {
		case st.fence.wake <- struct{}{}:
		default:
		}
	}
}

// watchFence asks the server until the fence can fall.
func (st *stream) watchFence(ctx context.Context) {
	again := time.NewTimer(fenceAgain)
	defer again.Stop()
	late, said := st.e.now()+st.sub.patience()+lineGrace, false
	for {
		if st.tryFence(ctx) {
			return
		}
		switch now := st.e.now(); {
		case st.fence.lapsing.Load(): // which has been said
			late = now + st.sub.patience() + lineGrace
		case !said && now > late:
			said = true
			st.log.Warn("jetpull: handling waits for messages that are pending elsewhere: with ack policy all an acknowledgement would cover them; is another client on this consumer?",
				"missing", st.fence.missing.Load())
		}
		again.Reset(fenceAgain)
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		case <-st.fence.wake:
		}
	}
}

// tryFence asks once and reports whether the fence fell. If it did not, the
// window opens for what is missing: the server delivers that first, but only to
// a pull.
func (st *stream) tryFence(ctx context.Context) bool {
	asking, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	info, err := st.sub.handle.Info(asking)
	if err != nil {
		return false
	}
	if info.AckFloor.Consumer > info.Delivered.Consumer {
		st.lapse(info)
		return false
	}
	if st.fence.lapsing.CompareAndSwap(true, false) {
		st.queue.raiseFence(st.fence.gap.Load())
	}
	missing := st.acks.missing(info, 0)
	if st.fence.arriving.Load() { // looked at after those were counted
		return false
	}
	if missing <= 0 && st.queue.dropFence(info.Delivered.Consumer) {
		st.fence.missing.Store(0)
		st.acks.unbar()
		return true
	}
	st.fence.missing.Store(int64(missing))
	if freed, bytes := st.queue.widen(fenceStep); freed > 0 {
		st.tellFreed(freed, bytes)
	}
	return false
}

// lapse lets messages be handled, and acknowledged later, while the server's ack
// floor is ahead of its deliveries. A server that crashed has forgotten deliveries
// and takes acknowledgements of them afterwards. It numbers deliveries from below
// its floor again; those it neither counts nor lets anybody acknowledge, but delivers
// again after AckWait, under a higher number, until its numbers are above the floor.
// So they are not kept in progress either, and their copies need no handler.
func (st *stream) lapse(info *jetstream.ConsumerInfo) {
	if st.fence.arriving.Load() {
		return
	}
	if st.fence.lapsing.CompareAndSwap(false, true) {
		st.log.Warn("jetpull: acknowledgements wait: the server has forgotten deliveries and takes none until it has delivered as many again",
			"deliveries", info.AckFloor.Consumer-info.Delivered.Consumer)
	}
	st.acks.bar(info.AckFloor.Consumer)
	st.fence.missing.Store(0)
	st.queue.dropFence(math.MaxUint64)
}

// missing is how many messages the server has pending that are not in hand. A
// message that came since the server answered counts for nothing, nor does a
// copy of one that is settled, and one that came twice counts once. If it is none,
// what was handed back and has not come again is settled too. The message but counts
// as not in hand.
func (c *coalescer) missing(info *jetstream.ConsumerInfo, but uint64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	inHand := map[uint64]bool{}
	for _, d := range c.held.all() {
		if d.seq != but && d.pendingIn(info) {
			inHand[d.seq] = true
		}
	}
	for _, h := range c.run {
		if h.pendingIn(info) {
			inHand[h.seq] = true
		}
	}
	n := info.NumAckPending - len(inHand)
	if n <= 0 {
		clear(c.gone)
	}
	return n
}

func (d delivery) pendingIn(info *jetstream.ConsumerInfo) bool {
	return d.seq > info.AckFloor.Stream && d.cseq <= info.Delivered.Consumer
}

// number is the consumer sequence to acknowledge top with. The lock is held.
func (c *coalescer) number(top delivery) uint64 {
	as := max(top.cseq, c.acked+1)
	if c.mixed {
		left := slices.Clone(c.held.all())
		for _, h := range c.run {
			left = append(left, h.delivery)
		}
		slices.SortFunc(left, func(a, b delivery) int { return cmp.Compare(a.seq, b.seq) })
		as = ackNumber(top, left, c.acked)
		c.mixed = len(left) > 0
	}
	c.acked = as
	return as
}

// ackNumber is the consumer sequence to acknowledge top with, so that those of
// left, in stream order, can be acknowledged after it. The server ignores an
// acknowledgement whose consumer sequence is not above the last one's, and a
// message that was delivered again has a higher one than those behind it. So it
// gets one below theirs, with a number left over for each message between.
func ackNumber(top delivery, left []delivery, acked uint64) uint64 {
	as, between := top.cseq, uint64(0)
	for _, d := range left {
		if d.seq <= top.seq {
			continue
		}
		between++
		as = min(as, max(d.cseq, between)-between)
	}
	return max(as, acked+1)
}

// ackAs acknowledges m under another consumer sequence than its own.
func (m *Msg) ackAs(cseq uint64) error {
	if cseq == m.delivery().cseq {
		return m.Ack()
	}
	if !m.settled.CompareAndSwap(false, true) {
		return nil
	}
	if err := m.sub.nc.Publish(withConsumerSeq(m.raw.Reply, cseq), nil); err != nil {
		m.settled.Store(false)
		return closedError(err)
	}
	m.sub.counts.acks.Add(1)
	return nil
}

// withConsumerSeq replaces the consumer sequence in an ack subject. It stands
// two tokens before the end of the short form, which has nine, and two tokens
// further back in the long one.
func withConsumerSeq(reply string, cseq uint64) string {
	tokens := strings.Split(reply, ".")
	i := 6
	if len(tokens) > 9 {
		i = 8
	}
	tokens[i] = strconv.FormatUint(cseq, 10)
	return strings.Join(tokens, ".")
}

// raiseFence holds up all messages from here on, and reports whether they were
// not before. cseq is the consumer sequence behind the gap.
func (d *dispatch) raiseFence(cseq uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return false
	}
	was := d.fence
	d.fence = cseq
	for _, l := range d.lines {
		slices.SortStableFunc(l.queue.all(), inStreamOrder)
	}
	return was == 0
}

// dropFence lets messages go on if no gap came behind the given consumer
// sequence, and reports whether it did.
func (d *dispatch) dropFence(cseq uint64) bool {
	d.mu.Lock()
	defer d.release()
	if d.fence > cseq {
		return false
	}
	d.fence = 0
	for key, l := range d.lines {
		if l.idle {
			d.advance(key)
		}
	}
	return true
}

func inStreamOrder(a, b held) int { return cmp.Compare(a.m.Sequence(), b.m.Sequence()) }

// fenceOff lets h wait in stream order behind the fence. One that was delivered
// before does not count against the window: the window could fill with later ones
// and the rest of what is missing could never come. The lock is held.
func (d *dispatch) fenceOff(h held) (freed bool) {
	l := d.lines[h.key]
	if l == nil {
		l = d.addLine(h.key)
		l.idle = true
	}
	if h.again {
		d.letWait(&h)
	}
	l.insertInOrder(h)
	return h.released
}

// widen takes messages that wait behind the fence out of the window: all, or
// only some where many are out of it already.
func (d *dispatch) widen(most int) (freed, bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fence == 0 {
		return 0, 0
	}
	for _, l := range d.lines {
		waiting := l.queue.all()
		for i := range waiting {
			w := &waiting[i]
			if w.released {
				continue
			}
			if d.back >= maxBack && freed >= most {
				return freed, bytes
			}
			d.letWait(w)
			freed++
			bytes += w.size
		}
	}
	return freed, bytes
}
