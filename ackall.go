package jetpull

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/jetpull/jetpull/internal/wire"
)

// coalescer acknowledges runs of messages with one acknowledgement, for a
// consumer with ack policy all.
//
// The server does not always redeliver in stream order: what it finds nobody for
// goes behind the rest. So it never acknowledges past a message that the stream
// has seen and not handled, which the acknowledgement would cover.
type coalescer struct {
	length  int        // of a full run
	sending sync.Mutex // held while some are sent, so that close waits for them

	mu            sync.Mutex
	run           []handled            // not acknowledged
	held          ring[delivery]       // in hand and not handled, in stream order
	gone          map[uint64]time.Time // handed back, and when they are asked after
	armed, closed bool
	timer         *time.Timer

	last  uint64 // consumer sequence of the message that came last
	high  uint64 // highest stream sequence that came
	mixed bool   // messages came in another order than that of the stream
	acked uint64 // consumer sequence of the last acknowledgement

	barred bool // nothing may be acknowledged
}

// delivery is what identifies a message that was delivered: its sequences in
// the stream and in the consumer.
type delivery struct{ seq, cseq uint64 }

func (m *Msg) delivery() delivery {
	a, _ := wire.ParseAck(m.raw.Reply)
	return delivery{seq: a.StreamSeq, cseq: a.ConsumerSeq}
}

// handled is a message whose acknowledgement is due.
type handled struct {
	m *Msg
	delivery
	since time.Time // when it was last said to be in progress; zero: never
}

const (
	// coalesceRun and coalesceFor bound how many handled messages, and for how
	// long, wait for their acknowledgement: a crash repeats no more.
	coalesceRun = 128
	coalesceFor = 20 * time.Millisecond
	// coalesceAgain is how often those are looked at that wait for one before
	// them.
	coalesceAgain = 250 * time.Millisecond
)

func newCoalescer(maxAckPending int) *coalescer {
	c := &coalescer{length: runLength(maxAckPending), gone: map[uint64]time.Time{}}
	c.timer = time.AfterFunc(time.Hour, c.flush)
	c.timer.Stop()
	return c
}

// runLength is how many messages a full run has. A server that has
// maxAckPending messages unacknowledged delivers no more, so several runs have to
// fit into them.
func runLength(maxAckPending int) int {
	if maxAckPending <= 0 {
		return coalesceRun
	}
	return max(1, min(coalesceRun, maxAckPending/4))
}

// hold notes messages that the stream has got. One that was handled and comes
// again before its acknowledgement holds nothing up. If deliveries went
// somewhere else since the message before, gap is the consumer sequence of the
// first one behind them.
func (c *coalescer) hold(ms []*Msg) (gap uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range ms {
		d := m.delivery()
		seq := d.seq
		if d.cseq != c.last+1 {
			gap = d.cseq
		}
		if d.cseq <= c.last { // the server has begun again
			c.acked = min(c.acked, d.cseq-1)
		}
		c.last = d.cseq
		c.mixed = c.mixed || seq < c.high
		c.high = max(c.high, seq)
		delete(c.gone, seq)
		if m.redelivered() && slices.ContainsFunc(c.run, func(h handled) bool { return h.seq == seq }) {
			continue
		}
		if n := c.held.len(); n == 0 || c.held.all()[n-1].seq < seq {
			c.held.push(d)
		} else if i, found := c.find(seq); !found {
			c.held.insert(i, d)
		}
	}
	return gap
}

func (c *coalescer) find(seq uint64) (i int, found bool) {
	return slices.BinarySearchFunc(c.held.all(), seq, func(d delivery, seq uint64) int { return cmp.Compare(d.seq, seq) })
}

// settled notes that a message needs no acknowledgement of ours: it was
// terminated, or settled by somebody else.
func (c *coalescer) settled(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(seq)
	delete(c.gone, seq)
	if len(c.run) > 0 {
		c.arm(coalesceFor)
	}
}

// release takes a message out of those in hand. The lock is held.
func (c *coalescer) release(seq uint64) {
	if c.held.len() > 0 && c.held.all()[0].seq == seq {
		c.held.pop()
	} else if i, found := c.find(seq); found {
		c.held.remove(i)
	}
}

// handBack notes a message that goes back to the server, to come again after a
// time. If it has not by then it is to be asked after.
func (c *coalescer) handBack(seq uint64, after time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release(seq)
	c.gone[seq] = time.Now().Add(after + lineGrace)
}

// ack acknowledges m, at the latest after coalesceFor unless one before it is
// not handled.
func (c *coalescer) ack(m *Msg) {
	d := m.delivery()
	c.mu.Lock()
	c.release(d.seq)
	c.run = append(c.run, handled{m: m, delivery: d})
	full := len(c.run)%c.length == 0
	if !full {
		c.arm(coalesceFor)
	}
	c.mu.Unlock()
	if full {
		c.flush()
	}
}

// arm lets flush be called after d. The lock is held.
func (c *coalescer) arm(d time.Duration) {
	if !c.armed && !c.closed {
		c.armed = true
		c.timer.Reset(d)
	}
}

// flush sends the acknowledgement that is due, if any. What has to wait for one
// before it is said to be in progress.
func (c *coalescer) flush() {
	c.sending.Lock()
	defer c.sending.Unlock()
	c.mu.Lock()
	c.armed = false
	m, as := c.cut()
	if len(c.run) > 0 {
		c.arm(coalesceAgain)
	}
	var waiting []*Msg
	if !c.barred {
		waiting = c.refresh(time.Time{})
	}
	c.mu.Unlock()
	if m != nil {
		_ = m.ackAs(as)
	}
	for _, w := range waiting {
		_ = w.InProgress()
	}
}

// cut takes what can be acknowledged out of the run and returns the message
// that acknowledges it, and the consumer sequence to do it with. The lock is
// held.
func (c *coalescer) cut() (m *Msg, as uint64) {
	if c.barred {
		return nil, 0
	}
	floor := c.floor()
	var top handled
	for _, h := range c.run {
		if h.seq < floor && h.seq >= top.seq {
			top = h
		}
	}
	if top.m == nil {
		return nil, 0
	}
	kept := c.run[:0]
	for _, h := range c.run {
		switch {
		case h.seq > top.seq:
			kept = append(kept, h)
		case h.m != top.m:
			h.m.settled.Store(true)
		}
	}
	clear(c.run[len(kept):])
	c.run = kept
	return top.m, c.number(top.delivery)
}

// bar keeps acknowledgements back, until unbar. The first one then has a number
// above those that the server takes for old.
func (c *coalescer) bar(floor uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.barred = true
	c.acked = max(c.acked, floor)
}

// unbar lets what waits be acknowledged.
func (c *coalescer) unbar() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.barred = false
	if len(c.run) > 0 {
		c.arm(coalesceFor)
	}
}

// floor is the first message that may not be covered. The lock is held.
func (c *coalescer) floor() uint64 {
	floor := uint64(1<<64 - 1)
	if c.held.len() > 0 {
		floor = c.held.all()[0].seq
	}
	for seq := range c.gone {
		floor = min(floor, seq)
	}
	return floor
}

// late reports whether a message that was handed back has not come again in
// time.
func (c *coalescer) late(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, until := range c.gone {
		if until.Before(now) {
			return true
		}
	}
	return false
}

// found notes that the server has all up to floor settled. What is still missing
// is waited for until again.
func (c *coalescer) found(floor uint64, again time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for seq, until := range c.gone {
		if seq <= floor {
			delete(c.gone, seq)
		} else if until.Before(again) {
			c.gone[seq] = again
		}
	}
	if len(c.run) > 0 {
		c.arm(coalesceFor)
	}
}

// overdue returns the messages that wait and were last said to be in progress
// before a time, and takes them as looked after from now on.
func (c *coalescer) overdue(before time.Time) []*Msg {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refresh(before)
}

// refresh is overdue; with the zero time it returns those that were never said
// to be. The lock is held.
func (c *coalescer) refresh(before time.Time) (ms []*Msg) {
	for i := range c.run {
		if h := &c.run[i]; h.since.IsZero() == before.IsZero() && !h.since.After(before) {
			h.since = time.Now()
			ms = append(ms, h.m)
		}
	}
	return ms
}

// close sends what is due and stops the timer. What waits for a message that
// was handed back goes back with it: it is handled again, rather than that one
// never.
func (c *coalescer) close() {
	c.flush()
	c.mu.Lock()
	c.closed = true
	c.timer.Stop()
	left := c.run
	c.run = nil
	c.mu.Unlock()
	for _, h := range left {
		_ = h.m.Nak()
	}
}
