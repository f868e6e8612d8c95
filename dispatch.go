package jetpull

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// held is a message that Messages or Consume holds.
type held struct {
	m     *Msg
	size  int
	since at // when it arrived, or was last said to be in progress
	key   string
	// released is set where the message no longer counts against the window.
	released bool
}

// returned is a message that goes back to the server, to come again after a
// while: not before its line is open, or it would go to and fro until then.
type returned struct {
	m     *Msg
	after time.Duration
}

// dispatch is the queue between the reader and the workers. With keys, a
// message waits in the line of its key until those before it are settled.
type dispatch struct {
	mu      sync.Mutex
	some    sync.Cond // ready is not empty, or stopped
	ready   ring[held]
	lined   bool // messages stand in lines; all in one if key is nil
	key     func(*Msg) string
	lines   map[string]*line
	spare   *line
	back    int // messages that wait in lines that are blocked
	stopped bool
	waiting int // workers that wait
	taken   int // messages taken since a worker last waited
	// parked is set while the only worker reads for everybody and is to be
	// nudged when there is something for it.
	parked bool
	nudge  func()
	slots  []slot
	// freed messages, of freedBytes, are no longer held, and tell has not heard of
	// them: it is called for every lot.
	freed, freedBytes, lot int
	tell                   func(n, bytes int)
	// loose messages no longer count against the window because their line was
	// blocked when their turn came; tell is to hear of them at once.
	loose, looseBytes int

	clock func() at
	// most is how often the consumer delivers a message; 0: without end.
	most uint64
	// grace is how long after it is due a message may take to come back;
	// 0: those that were sent back lose their place.
	grace time.Duration
	fence uint64 // consumer sequence of the message that raised the fence; 0: none
}

// slot is what one worker is handling.
type slot struct {
	held held
	busy bool
}

// line is what is known of one key: one message of it is being handled or
// failed, and the others wait.
type line struct {
	queue   ring[held]
	blocked uint64 // stream sequence of the message that failed; 0: none
	until   at     // when the block is lifted though it has not come back
	kept    bool   // the message that failed is aside, and does not come again
	idle    bool   // the next message is held up by the fence alone
	away    []away // sent back for want of space, in stream order
}

// awayLeast is the least time after which a message comes again that goes back for
// want of space. Its line is opened by the housekeeper, in its next round: sooner
// it would go to and fro.
const awayLeast = time.Second

// maxBack bounds the messages that wait behind failed ones.
const maxBack = 2048

// newDispatch makes a queue without lines, or with one for each key; a nil key
// puts all messages in one.
func newDispatch(workers int, lined bool, key func(*Msg) string) *dispatch {
	d := &dispatch{lined: lined, key: key, lines: map[string]*line{}, slots: make([]slot, workers)}
	d.clock, d.tell = func() at { return 0 }, func(int, int) {}
	d.some.L = &d.mu
	return d
}

// push adds messages that arrived. It returns those that must go back: all
// when stopped, and those of a blocked line when too many wait already. freed
// and bytes are of the messages that do not count against the window: those, and
// the ones that wait in blocked lines.
func (d *dispatch) push(now at, ms []*Msg) (rejected []returned, freed, bytes int) {
	var keys []string
	if d.key != nil {
		keys = make([]string, len(ms))
		for i, m := range ms {
			keys[i] = d.key(m)
		}
	}
	d.mu.Lock()
	defer d.release()
	if d.stopped {
		for _, m := range ms {
			rejected = append(rejected, returned{m: m})
			bytes += m.size()
		}
		return rejected, len(ms), bytes
	}
	before := d.ready.len()
	for i, m := range ms {
		h := held{m: m, size: m.size(), since: now}
		if !d.lined {
			d.ready.push(h)
			continue
		}
		if keys != nil {
			h.key = keys[i]
		}
		out, free := d.queue(h)
		if free {
			freed++
			bytes += h.size
		}
		if out != nil {
			rejected = append(rejected, returned{out, max(awayLeast, d.lines[h.key].until-now)})
		}
	}
	for range min(d.ready.len()-before, d.waiting) {
		d.some.Signal()
	}
	return rejected, freed, bytes
}

// queue puts h where its key allows. out is a message that must go back for
// want of space, free whether h does not count against the window. The lock is
// held.
func (d *dispatch) queue(h held) (out *Msg, free bool) {
	l, seq := d.lines[h.key], h.m.Sequence()
	if d.fence != 0 && (l == nil || l.blocked == 0 || l.blocked != seq) {
		return nil, d.fenceOff(h)
	}
	if l == nil {
		d.addLine(h.key)
		d.ready.push(h)
		return nil, false
	}
	wasAway := l.isBack(seq)
	switch {
	case l.blocked == seq:
		l.blocked = 0
		d.ready.push(h)
		return nil, false
	case l.blocked == 0:
		l.insert(h, wasAway)
		return nil, false
	case d.back >= maxBack && !d.isLast(h.m):
		return d.sendBack(l, h, wasAway), true
	case d.back >= maxBack && l.kept:
		// It must not go back, and what is aside can be so for ever: it counts
		// against the window, and pulling ends when that is full.
		l.insert(h, wasAway)
		return nil, false
	}
	h.released = true
	d.back++
	l.insert(h, wasAway)
	return nil, true
}

// addLine makes the line of a key.
func (d *dispatch) addLine(key string) *line {
	l := d.spare
	if l == nil {
		l = &line{}
	}
	d.spare = nil
	d.lines[key] = l
	return l
}

// dropLine forgets the line of a key, but for its memory.
func (d *dispatch) dropLine(key string, l *line) {
	delete(d.lines, key)
	*l = line{queue: l.queue}
	d.spare = l
}

// pop takes back what the worker of s has handled, and waits for a message that
// can be handled; ok is false when stopped. waited tells that there was none at first, starved that there was none although
// messages have come since the worker last waited. read, if not nil, is a way
// to wait that gets the messages itself; it returns false if somebody else does.
func (d *dispatch) pop(s *slot, read func() bool) (h held, waited, starved, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vacate(s)
	for d.ready.len() == 0 && !d.stopped {
		waited = true
		starved = starved || d.taken > 0
		d.taken = 0
		if read != nil {
			d.mu.Unlock()
			did := read()
			d.mu.Lock()
			if did || d.ready.len() > 0 || d.stopped {
				continue
			}
		}
		d.waiting++
		d.some.Wait()
		d.waiting--
	}
	if d.stopped {
		return held{}, waited, false, false
	}
	d.taken++
	s.held, s.busy = d.ready.pop(), true
	return s.held, waited, starved, true
}

// vacate notes that the message of a slot is no longer held. The lock is held, but
// not while tell is called.
func (d *dispatch) vacate(s *slot) {
	if !s.busy {
		return
	}
	if !s.held.released {
		d.freed++
		d.freedBytes += s.held.size
	}
	*s = slot{}
	if d.freed == 0 || d.freed < d.lot {
		return
	}
	n, bytes := d.freed, d.freedBytes
	d.freed, d.freedBytes = 0, 0
	d.mu.Unlock()
	d.tell(n, bytes)
	d.mu.Lock()
}

// setLot says how many messages are freed before tell is called.
func (d *dispatch) setLot(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lot = n
}

// empty reports whether a worker would have to wait.
func (d *dispatch) empty() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ready.len() == 0
}

// park is called by the only worker before it reads. It returns false if there
// is something to handle instead.
func (d *dispatch) park() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parked = d.ready.len() == 0 && !d.stopped
	return d.parked
}

// release unlocks, and nudges the worker that reads if there is something for
// it.
func (d *dispatch) release() {
	wake := d.parked && (d.ready.len() > 0 || d.stopped)
	if wake {
		d.parked = false
	}
	loose, bytes := d.loose, d.looseBytes
	d.loose, d.looseBytes = 0, 0
	d.mu.Unlock()
	if wake {
		d.nudge()
	}
	if loose > 0 {
		d.tell(loose, bytes)
	}
}

// awaited reports whether a worker waits for somebody else's reading.
func (d *dispatch) awaited() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting > 0
}

// settled lets the next message of h's key go.
func (d *dispatch) settled(h held) {
	if !d.lined {
		return
	}
	d.mu.Lock()
	defer d.release()
	d.advance(h.key)
}

// advance makes the next message of a line ready. The lock is held.
func (d *dispatch) advance(key string) {
	l := d.lines[key]
	if l == nil {
		return
	}
	l.blocked = 0
	if l.idle = d.fence != 0; l.idle {
		return
	}
	if d.waitForAway(l) {
		return
	}
	if l.queue.len() == 0 || d.stopped {
		d.dropLine(key, l)
		return
	}
	next := l.queue.pop()
	if next.released {
		d.back--
	}
	d.ready.push(next)
	if d.waiting > 0 {
		d.some.Signal()
	}
}

// failed blocks the line of h until h comes back, or until the given time. It
// returns how many messages, of how many bytes, no longer count against the
// window.
func (d *dispatch) failed(h held, until at) (freed, bytes int) { return d.hold(h, until, false) }

// hold is failed; kept tells that h is aside and does not come again.
func (d *dispatch) hold(h held, until at, kept bool) (freed, bytes int) {
	if !d.lined {
		return 0, 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lines[h.key]
	if l == nil || d.stopped {
		return 0, 0
	}
	seq := h.m.Sequence()
	waiting := l.queue.all()
	for i := range waiting {
		if waiting[i].m.Sequence() == seq { // it is back already
			d.ready.push(waiting[i])
			if waiting[i].released {
				d.back--
			}
			l.queue.remove(i)
			d.some.Signal()
			return 0, 0
		}
	}
	return d.block(l, seq, until, kept)
}

// block lets l wait for the message seq. Those behind it no longer count against
// the window, or there might be no room for it to come; behind one that is kept
// only so many. The lock is held.
func (d *dispatch) block(l *line, seq uint64, until at, kept bool) (freed, bytes int) {
	l.blocked, l.until, l.kept = seq, until, kept
	waiting := l.queue.all()
	for i := range waiting {
		if w := &waiting[i]; !w.released && (d.back < maxBack || !kept) {
			w.released = true
			d.back++
			freed++
			bytes += w.size
		}
	}
	return freed, bytes
}

// overdueBlock is the failed message of a line that is to be lifted by now; 0:
// there is none.
func (d *dispatch) overdueBlock(now at) (seq uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lines {
		if l.blocked != 0 && l.until <= now {
			return l.blocked
		}
	}
	return 0
}

// postpone lets no line be lifted before until.
func (d *dispatch) postpone(until at) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.lines {
		l.until = max(l.until, until)
	}
}

// lift opens the lines whose failed message has not come back in time: it was
// delivered to another client, or never will be.
func (d *dispatch) lift(now at) {
	if !d.lined {
		return
	}
	d.mu.Lock()
	defer d.release()
	for key, l := range d.lines {
		if l.blocked != 0 && l.until <= now {
			l.giveUpAway(now - d.grace)
			d.advance(key)
		}
	}
}

// overdue returns the messages, waiting or being handled, that have been held
// since before, and takes them as looked after from now on.
func (d *dispatch) overdue(before, now at) (ms []*Msg) {
	d.mu.Lock()
	defer d.mu.Unlock()
	visit := func(hs []held) {
		for i := range hs {
			if hs[i].since <= before {
				hs[i].since = now
				ms = append(ms, hs[i].m)
			}
		}
	}
	visit(d.ready.all())
	for i := range d.slots {
		if h := &d.slots[i].held; d.slots[i].busy && h.since <= before {
			h.since = now
			ms = append(ms, h.m)
		}
	}
	for _, l := range d.lines {
		visit(l.queue.all())
	}
	return ms
}

// stop ends all waiting and returns what has not been started, in stream order:
// so it comes again, or goes to the next call.
func (d *dispatch) stop() []held {
	d.mu.Lock()
	defer d.release()
	d.stopped = true
	left := append([]held(nil), d.ready.all()...)
	for _, l := range d.lines {
		left = append(left, l.queue.all()...)
	}
	slices.SortFunc(left, func(a, b held) int { return cmp.Compare(a.m.Sequence(), b.m.Sequence()) })
	d.ready, d.lines, d.back = ring[held]{}, map[string]*line{}, 0
	d.some.Broadcast()
	return left
}

// size is how many messages wait, and how many are being handled.
func (d *dispatch) size() (waiting, running int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting = d.ready.len()
	for _, l := range d.lines {
		waiting += l.queue.len()
	}
	for i := range d.slots {
		if d.slots[i].busy {
			running++
		}
	}
	return waiting, running
}

// running is how many messages are being handled.
func (d *dispatch) running() int {
	_, n := d.size()
	return n
}
