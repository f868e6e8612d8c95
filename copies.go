package jetpull

import (
	"cmp"
	"slices"
	"time"

	"github.com/jetpull/jetpull/internal/wire"
)

// A server delivers again what a client holds or has handled already: after a
// restart or a change of leader, when an acknowledgement or an in-progress got
// lost, or where nothing is kept alive. The newest copy waits while a handler runs
// for the same message. If that fails it is the next try. If the message is done its
// copies are settled likewise, without a handler.

// identity tells messages apart, those of a stream that was made anew too.
type identity struct {
	seq    uint64
	stored int64 // nanoseconds since 1970
}

func (m *Msg) identity() identity { return identityOf(m.raw.Reply) }

func identityOf(reply string) identity {
	a, _ := wire.ParseAck(reply)
	return identity{a.StreamSeq, a.Timestamp}
}

// fate is what a worker has made of a message.
type fate uint8

const (
	undecided fate = iota // it may come again
	acknowledged
	terminated
)

// fate is what has become of a message that a handler is done with; undecided too
// where another goroutine is just settling it. due tells that it is acknowledged,
// sooner or later.
func (m *Msg) fate(due bool) fate {
	switch how := m.how.Load(); {
	case how == byTerm:
		return terminated
	case how == byAck || due:
		return acknowledged
	}
	return undecided
}

// memory is of the messages that were settled last. One whose acknowledgement got
// lost comes again after AckWait, and however few may be pending beside it, many are
// handled meanwhile.
type memory struct {
	last []settledMessage
	next int // the oldest, once there are most
	most int
}

// settledMessage is one of them. Few messages come again, so its identity is not
// read before one has: until then reply has it.
type settledMessage struct {
	identity identity
	reply    string
	fate     fate
}

// memoryMost is how many of them are kept.
const memoryMost = 4096

func (m *memory) add(s settledMessage) {
	switch {
	case s.reply == "": // no handler has had it
		return
	case s.fate == undecided:
		m.forget(identityOf(s.reply))
		return
	}
	if len(m.last) < m.most {
		m.last = append(m.last, s)
		return
	}
	m.last[m.next] = s
	m.next = (m.next + 1) % m.most
}

// forget takes a message out that has come again all the same, as from a consumer
// that was made anew, and is not done with this time.
func (m *memory) forget(id identity) {
	for i := range m.last {
		if m.last[i].is(id) {
			m.last[i] = settledMessage{}
		}
	}
}

// fate is what has become of a message, undecided if it is not known.
func (m *memory) fate(id identity) fate {
	for i := range m.last {
		if m.last[i].is(id) {
			return m.last[i].fate
		}
	}
	return undecided
}

func (s *settledMessage) is(id identity) bool {
	if s.reply != "" {
		s.identity, s.reply = identityOf(s.reply), ""
	}
	return s.identity == id
}

// remember notes what has become of the message of s.
func (st *stream) remember(s *slot, m *Msg, due bool) {
	if st.sub.ackNone.Load() {
		return
	}
	s.settled = settledMessage{reply: m.raw.Reply, fate: m.fate(due)}
}

// start makes h what the worker of s handles, with the fate that it has already,
// if any. A copy of what another worker is handling is put aside instead, and
// start returns false. The lock is held.
func (d *dispatch) start(s *slot, h held) bool {
	if h.again {
		id := h.m.identity()
		if d.inWork(id) {
			d.putBeside(id, h)
			return false
		}
		h.fate = d.memory.fate(id)
	}
	*s = slot{held: h, busy: true}
	return true
}

// putBeside lets h wait for the handler of its message, in the place of an older
// copy. It does not count against the window: where nothing is kept alive a handler
// that hangs has a copy each AckWait. The lock is held.
func (d *dispatch) putBeside(id identity, h held) {
	d.beside = slices.DeleteFunc(d.beside, func(w held) bool {
		same := w.m.identity() == id
		if same {
			d.copies--
		}
		return same
	})
	if !h.released {
		h.released = true
		d.loose++
		d.looseBytes += h.size
	}
	d.beside = append(d.beside, h)
}

// supersedes lets h take the place of an older copy of its message in l, and
// reports whether there was one. The lock is held.
func (d *dispatch) supersedes(l *line, h held) bool {
	id := h.m.identity()
	waiting := l.queue.all()
	for i := range waiting {
		if w := &waiting[i]; w.again && w.m.identity() == id {
			h.released = w.released
			*w = h
			d.copies--
			return true
		}
	}
	return false
}

// inWork reports whether a worker is handling a message. The lock is held.
func (d *dispatch) inWork(id identity) bool {
	for i := range d.slots {
		if s := &d.slots[i]; s.busy && s.held.m.identity() == id {
			return true
		}
	}
	return false
}

// letGo lets the copies of what the worker of s has handled go on. The lock is
// held.
func (d *dispatch) letGo(s *slot) {
	if len(d.beside) == 0 {
		return
	}
	id := s.held.m.identity()
	d.beside = slices.DeleteFunc(d.beside, func(h held) bool {
		if h.m.identity() != id {
			return false
		}
		d.ready.push(h)
		if d.waiting > 0 {
			d.some.Signal()
		}
		return true
	})
}

// nextTry looks for copies of h, whose handler failed. One that waits is the next
// try if that is due at once, or if it is the last that the server delivers. Or
// else all are taken out, freed and bytes of them, and the newest, back, is to go
// back until the time has come.
func (d *dispatch) nextTry(h held, after time.Duration) (waits bool, back *Msg, freed, bytes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.copies == 0 || d.copies == 1 && h.again {
		return false, nil, 0, 0
	}
	id := h.m.identity()
	same := func(w held) bool { return w.m.identity() == id }
	beside := ring[held]{items: d.beside}
	queues := []*ring[held]{&beside, &d.ready}
	if l := d.lines[h.key]; l != nil {
		queues = append(queues, &l.queue)
	}
	var out []held
	for _, q := range queues {
		for _, w := range q.all() {
			if same(w) {
				out = append(out, w)
			}
		}
	}
	if len(out) == 0 {
		return false, nil, 0, 0
	}
	back = slices.MaxFunc(out, byDelivery).m
	if after <= 0 || d.isLast(back) {
		return true, nil, 0, 0
	}
	if l := d.lines[h.key]; l != nil {
		for _, w := range l.queue.all() {
			if same(w) {
				d.waited(&w)
			}
		}
	}
	for _, q := range queues {
		q.removeAll(same)
	}
	d.beside = beside.items
	d.copies -= len(out)
	for _, w := range out {
		if !w.released {
			freed++
			bytes += w.size
		}
	}
	return false, back, freed, bytes
}

func byDelivery(a, b held) int { return cmp.Compare(a.m.delivery().cseq, b.m.delivery().cseq) }

// keepBeside keeps, when the queue stops, the copy of a running message that is at
// its last delivery: if the handler fails, it is the only try that is left. The lock
// is held.
func (d *dispatch) keepBeside(h held) {
	if d.finishes && d.isLast(h.m) {
		h.released = true
		d.beside = append(d.beside, h)
	}
}

// newest leaves out of what was not started what need not go back by itself: copies
// of what is still handled, and all but the newest of those of one message, which
// would make the server deliver it more than once. The lock is held.
func (d *dispatch) newest(left []held) []held {
	if d.copies == 0 {
		return left
	}
	last := map[identity]uint64{}
	for _, h := range left {
		id := h.m.identity()
		last[id] = max(last[id], h.m.delivery().cseq)
	}
	return slices.DeleteFunc(left, func(h held) bool {
		id := h.m.identity()
		if h.again && d.inWork(id) {
			d.keepBeside(h)
			return true
		}
		return h.m.delivery().cseq < last[id]
	})
}
