package jetpull

import (
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
	again    bool // it was delivered before
	fate     fate // of the same message, delivered before; see copies
	// flaw is the panic of the key function, if it did; no handler gets the message.
	flaw *panicError
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
	// them: it is called for every lot, and for bytesLot.
	freed, freedBytes, lot int
	tell                   func(n, bytes int)
	// loose messages no longer count against the window because their line was
	// blocked when their turn came; tell is to hear of them at once.
	loose, looseBytes int

	// backBytes is the size of the messages that wait in lines that are blocked, and
	// mostBytes bounds it behind one that is aside; 0: no limit.
	backBytes, mostBytes int

	clock func() at
	// most is how often the consumer delivers a message; 0: without end.
	most uint64
	// finishes tells that the workers go on after stop with what is at its last
	// delivery.
	finishes bool
	// grace is how long after it is due a message may take to come back;
	// 0: those that were sent back lose their place.
	grace  time.Duration
	fence  uint64 // consumer sequence of the message that raised the fence; 0: none
	copies int    // held messages that were delivered before
	beside []held // those whose message is being handled
	// astray is set when one has come, and strange is to hear of it.
	astray  bool
	strange func()
	memory  memory // of what is settled
}

// slot is what one worker is handling.
type slot struct {
	held held
	busy bool
	// settled is set by the worker when it is done with the message.
	settled settledMessage
}

// awayLeast is the least time after which a message comes again that goes back for
// want of space. Its line is opened by the housekeeper, in its next round: sooner
// it would go to and fro.
const awayLeast = time.Second

// newDispatch makes a queue without lines, or with one for each key; a nil key
// puts all messages in one.
func newDispatch(workers int, lined bool, key func(*Msg) string) *dispatch {
	d := &dispatch{lined: lined, key: key, lines: map[string]*line{}, slots: make([]slot, workers)}
	d.clock, d.tell, d.strange = func() at { return 0 }, func(int, int) {}, func() {}
	d.some.L = &d.mu
	return d
}

// push adds messages that arrived. It returns those that must go back: all
// when stopped, and those of a blocked line when too many wait already. freed
// and bytes are of the messages that do not count against the window: those, and
// the ones that wait in blocked lines.
func (d *dispatch) push(now at, ms []*Msg) (rejected []returned, freed, bytes int) {
	keys := d.keysOf(ms)
	d.mu.Lock()
	defer d.release()
	if d.stopped {
		for _, m := range ms {
			if m.redelivered() && d.inWork(m.identity()) {
				d.keepBeside(held{m: m, again: true})
				d.copies = len(d.beside)
			} else {
				rejected = append(rejected, returned{m: m})
			}
			bytes += m.size()
		}
		return rejected, len(ms), bytes
	}
	before := d.ready.len()
	for i, m := range ms {
		h := held{m: m, size: m.size(), since: now, again: m.redelivered()}
		if h.again {
			d.copies++
			d.astray = d.astray || d.inWork(m.identity())
		}
		if !d.lined {
			d.ready.push(h)
			continue
		}
		if keys != nil {
			h.key, h.flaw = keys[i].key, keys[i].flaw
		}
		out, free := d.queue(h)
		if free {
			freed++
			bytes += h.size
		}
		if out != nil {
			if out.redelivered() {
				d.copies--
			}
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
		if h.again && d.supersedes(l, h) {
			return nil, true
		}
		l.insert(h, wasAway)
		return nil, false
	case d.full(h.size, l.kept) && !d.isLast(h.m):
		return d.sendBack(l, h, wasAway), true
	case d.full(h.size, l.kept) && l.kept:
		// It must not go back, and what is aside can be so for ever: it counts
		// against the window, and pulling ends when that is full.
		l.insert(h, wasAway)
		return nil, false
	}
	d.letWait(&h)
	l.insert(h, wasAway)
	return nil, true
}

// pop takes back what the worker of s has handled, and waits for a message that
// can be handled; ok is false when stopped. waited tells that there was none at first, starved that there was none although
// messages have come since the worker last waited. read, if not nil, is a way
// to wait that gets the messages itself; it returns false if somebody else does.
func (d *dispatch) pop(s *slot, read func() bool) (h held, waited, starved, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vacate(s)
	for {
		if d.ready.len() > 0 {
			if d.start(s, d.ready.pop()) {
				d.taken++
				return s.held, waited, starved, true
			}
			continue
		}
		if d.stopped {
			return held{}, waited, false, false
		}
		if n, bytes := d.loose, d.looseBytes; n > 0 {
			d.loose, d.looseBytes = 0, 0
			d.mu.Unlock()
			d.tell(n, bytes)
			d.mu.Lock()
			continue
		}
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
	d.memory.add(s.settled)
	if s.held.again {
		d.copies--
	}
	d.letGo(s)
	*s = slot{}
	if d.freed == 0 || d.freed < d.lot && d.freedBytes < bytesLot {
		return
	}
	n, bytes := d.freed, d.freedBytes
	d.freed, d.freedBytes = 0, 0
	d.mu.Unlock()
	d.tell(n, bytes)
	d.mu.Lock()
}

// setLot says how many messages are freed before tell is called. It returns what is
// over that already.
func (d *dispatch) setLot(lot int) (n, bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lot = lot
	if d.freed < lot {
		return 0, 0
	}
	n, bytes = d.freed, d.freedBytes
	d.freed, d.freedBytes = 0, 0
	return n, bytes
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
	astray := d.astray
	d.astray = false
	d.mu.Unlock()
	if astray {
		d.strange()
	}
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

// stop ends all waiting and returns what has not been started and goes back, in
// stream order: so it comes again, or goes to the next call.
func (d *dispatch) stop() []held {
	d.mu.Lock()
	defer d.release()
	d.stopped = true
	left := append([]held(nil), d.ready.all()...)
	for _, l := range d.lines {
		left = append(left, l.queue.all()...)
	}
	left = d.newest(left)
	slices.SortFunc(left, inStreamOrder)
	busy := d.inHand()
	d.ready, d.lines, d.back, d.backBytes = ring[held]{}, map[string]*line{}, 0, 0
	d.beside = slices.DeleteFunc(d.beside, func(h held) bool { return !d.finishes || !d.isLast(h.m) })
	d.copies = len(d.beside)
	back := d.keepLast(left, busy)
	d.some.Broadcast()
	return back
}

// size is how many messages wait, and how many are being handled.
func (d *dispatch) size() (waiting, running int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting = d.ready.len() + len(d.beside)
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
