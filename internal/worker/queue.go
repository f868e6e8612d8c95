package worker

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/jetpull/jetpull/internal/pull"
)

// ID identifies a message, even if the stream was recreated.
type ID struct {
	Seq    uint64 // in the stream
	Stored int64  // nanoseconds since 1970
}

// entry is a held message. There is one entry for each ID: a redelivery of a held message replaces its
// delivery.
type entry[M any] struct {
	msg       M // the delivery that is handled; not changed while a worker has it
	latest    M // the newest delivery
	id        ID
	delivered uint64 // delivery count of the newest delivery
	first     uint64 // delivery count of the first delivery here
	size      int
	key       string

	arrived pull.At
	since   pull.At  // when it arrived, or was last reported in progress
	retries int      // retries in place
	waits   *Wait    // the wait for its retry, or to begin; nil: it is ready, or was not tried
	worker  *slot[M] // the worker that has it, or had it when it was parked; nil: it waits
	parked  bool     // its handler has returned without settling it
	failed  bool     // its handler has failed, so it is retried, handed back or given up here
	gone    bool     // it is not held any more, and only its worker has it

	// Owned by its worker.
	end  func() // called when the handler has returned; nil: nothing
	back bool   // it could not begin before the end of the call, and was handed back
	err  error  // why it may not begin, or why its handler failed
	how  Settlement

	prev, next *entry[M] // in the list of all held messages
	behind     *entry[M] // the next in the ready queue, or in the line of its key
}

// line is the queue of one key. Its head is ready, has a worker, or waits for its retry. The others wait behind it.
type line[M any] struct {
	head    *entry[M]
	waiting fifo[M]
}

// slot is the state of a worker.
type slot[M any] struct {
	es    []*entry[M] // entries that are handled together; nil in the place of an entry that has left the worker
	ms    []M         // messages of those whose handler begins
	acked []M         // messages whose acknowledgement must be confirmed
	n     int         // messages handled in this sample
	since pull.At     // when the sample began; 0: there was none
}

// queue is the queue between the reader and the workers.
type queue[M any] struct {
	ops      *Ops[M]
	consumer Consumer

	mu   sync.Mutex
	some sync.Cond // a message is ready, or the queue is stopped

	// The messages that are held, under mu.
	held   entry[M] // root of the list of all held messages
	n      int      // their number
	ready  fifo[M]
	lines  map[string]*line[M]
	free   []*entry[M]
	parked int // messages whose handlers have left them unsettled
	waits  int // messages that wait for their retry, or to begin

	// The workers, under mu.
	slots   []slot[M]
	begin   func(*slot[M]) // starts a worker
	started int            // workers that were started by Run: one, and others when there are messages for them. Before Run, and for Messages: all
	waiting int            // workers that wait for a message
	batch   int            // messages that a worker takes at a time
	filling *slot[M]       // the worker that takes the next messages, until its batch is full; nil: any
	running int            // messages that workers have
	quota   int            // messages to be handled yet, including those that run or are parked; math.MaxInt without StopAfter
	stopped bool

	// The state that is reported to the pull engine, under mu.
	window   window
	credit   pull.Credit // of messages that are no longer held; not returned yet
	starving bool        // the engine knows that a worker waits
	serial   uint64      // of the last pull.Credit

	history history // under mu
}

// startWorker starts a worker if more messages are ready than workers wait. When that worker takes its message, it starts the next one.
func (q *queue[M]) startWorker() {
	if q.started < len(q.slots) && q.available() > q.waiting {
		q.started++
		q.begin(&q.slots[q.started-1])
	}
}

// add returns a new entry. The caller fills it and calls enqueue.
func (q *queue[M]) add() *entry[M] {
	var e *entry[M]
	if n := len(q.free); n > 0 {
		e, q.free = q.free[n-1], q.free[:n-1]
		e.gone = false
	} else {
		e = new(entry[M])
	}
	e.prev, e.next = q.held.prev, &q.held
	e.prev.next, q.held.prev = e, e
	q.n++
	return e
}

// enqueue makes e ready, or puts it into the line of its key.
func (q *queue[M]) enqueue(e *entry[M]) {
	if q.ops.Key != nil {
		l := q.lines[e.key]
		if l != nil {
			l.waiting.push(e)
			return
		}
		q.lines[e.key] = &line[M]{head: e}
	}
	q.ready.push(e)
}

// remove removes e from the held messages, and counts its credit.
func (q *queue[M]) remove(e *entry[M]) {
	if e.gone {
		return
	}
	e.gone = true
	e.prev.next, e.next.prev = e.next, e.prev
	q.n--
	q.countCredit(e.size)
}

// countCredit adds the credit of a message that is not held.
func (q *queue[M]) countCredit(bytes int) {
	q.credit.N++
	q.credit.Bytes += bytes
}

// advance makes the next message of e's key ready.
func (q *queue[M]) advance(e *entry[M]) {
	l := q.lines[e.key]
	if l == nil || l.head != e {
		return
	}
	if l.waiting.n == 0 {
		delete(q.lines, e.key)
		return
	}
	l.head = l.waiting.pop()
	q.wake(l.head)
}

// wake makes e ready and wakes or starts a worker.
func (q *queue[M]) wake(e *entry[M]) {
	q.ready.push(e)
	q.signal(1)
	q.startWorker()
}

// find returns the entry of a message that is held.
func (q *queue[M]) find(id ID) *entry[M] {
	for e := q.held.next; e != &q.held; e = e.next {
		if e.id == id {
			return e
		}
	}
	return nil
}

// all returns the held entries for which keep reports true, in the order of their arrival.
func (q *queue[M]) all(keep func(*entry[M]) bool) (es []*entry[M]) {
	for e := q.held.next; e != &q.held; e = e.next {
		if keep(e) {
			es = append(es, e)
		}
	}
	return es
}

// prefetch returns how many messages may be held or on order. StopAfter limits it.
func (q *queue[M]) prefetch() int { return min(q.window.size, q.quota) }

// paused reports whether ready messages must wait.
func (q *queue[M]) paused() bool { return q.ops.Paused != nil && q.ready.n > 0 && q.ops.Paused() }

// available returns how many messages workers may take.
func (q *queue[M]) available() int {
	if q.paused() {
		return 0
	}
	return min(q.ready.n, q.quota-q.running-q.parked)
}

// over reports whether workers get no messages beyond the available ones.
func (q *queue[M]) over() bool {
	return q.stopped && q.parked+q.waits == 0 && !q.paused() || q.quota == 0
}

// next returns the next message of a worker that has handled its last ones, or nil when the queue is stopped or
// StopAfter is reached. Unless until is 0, the message joins those that the worker has: then next waits until that time at most, and not at
// all when the queue is stopped or workers have all messages of StopAfter. A worker that must wait first returns credit, without the lock.
func (q *queue[M]) next(s *slot[M], until pull.At) *entry[M] {
	q.mu.Lock()
	if until == 0 {
		q.finish(s)
	}
	if s.since == 0 || s.n >= q.window.sample || q.available() == 0 {
		now := q.ops.Now()
		if s.n > 0 {
			q.window.measured(s.n, now-s.since)
		}
		s.n, s.since = 0, now
	}
	if until > 0 && q.available() == 0 {
		defer time.AfterFunc(until-q.ops.Now(), q.wakeAll).Stop()
	}
	waits := func() bool {
		return (q.available() == 0 || q.filling != nil && q.filling != s) && !q.over() &&
			(until == 0 || !q.stopped && q.running+q.parked < q.quota && q.ops.Now() < until)
	}
	for waits() {
		if news := q.credit.N > 0 || !q.starving; q.available() == 0 {
			q.window.starved()
			q.starving = true
			if c := q.creditDue(); news {
				q.mu.Unlock()
				q.ops.Credit(c)
				q.mu.Lock()
			}
		}
		if waits() {
			q.waiting++
			q.some.Wait()
			q.waiting--
		}
		if s.n == 0 {
			s.since = q.ops.Now()
		}
	}
	var e *entry[M]
	if q.available() > 0 {
		e = q.ready.pop()
		e.worker, q.window.taken = s, true
		s.es = append(s.es, e)
		q.running++
	}
	if q.filling = nil; e != nil && len(s.es) < q.batch {
		q.filling = s
	} else if q.batch > 1 {
		q.some.Broadcast()
	}
	q.startWorker()
	c := q.creditDue()
	q.mu.Unlock()
	if c.N > 0 {
		q.ops.Credit(c)
	}
	return e
}

// signal wakes as many waiting workers as there are new messages, or all of them while a batch fills.
func (q *queue[M]) signal(news int) {
	if q.filling != nil {
		news = q.waiting
	}
	for range min(news, q.waiting) {
		q.some.Signal()
	}
}

// wakeAll makes all workers look again.
func (q *queue[M]) wakeAll() {
	q.mu.Lock()
	q.some.Broadcast()
	q.startWorker()
	q.mu.Unlock()
}

// empty reports whether a worker would wait for a message.
func (q *queue[M]) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.available() == 0 && !q.over() && !q.stopped
}

// finish removes the messages that a worker has handled.
func (q *queue[M]) finish(s *slot[M]) {
	for _, e := range s.es {
		if e != nil {
			q.done(e, q.ops.Now())
			s.n++
		}
	}
	clear(s.ms)
	s.es, s.ms = s.es[:0], s.ms[:0]
}

// leave takes e from its worker.
func (q *queue[M]) leave(e *entry[M]) {
	es := e.worker.es
	es[slices.Index(es, e)] = nil
	q.running--
}

// done removes e, which was handled.
func (q *queue[M]) done(e *entry[M], now pull.At) {
	q.history.add(now, e.id, e.how, q.consumer.Remembers)
	q.remove(e)
	q.advance(e)
	if e.parked {
		q.parked--
	} else {
		q.running--
	}
	*e = entry[M]{gone: true}
	q.free = append(q.free, e)
	if q.quota--; q.over() {
		q.some.Broadcast()
	}
}

// creditDue returns all credit if it is half of the window or a worker waits, and otherwise none.
func (q *queue[M]) creditDue() (c pull.Credit) {
	if !q.starving && 2*q.credit.N < q.window.size && (q.window.bytes == 0 || 2*q.credit.Bytes < q.window.bytes) {
		return c
	}
	q.serial++
	c, q.credit = q.credit, pull.Credit{}
	c.Window, c.Starving, c.Serial = q.prefetch(), q.starving, q.serial
	return c
}

// unstarted removes and returns the messages that no worker has begun, in stream order, except those for which keep returns true.
func (q *queue[M]) unstarted(keep func(*entry[M]) bool) (out []*entry[M]) {
	waiting := q.all(func(e *entry[M]) bool { return e.worker == nil })
	slices.SortStableFunc(waiting, func(a, b *entry[M]) int { return cmp.Compare(a.id.Seq, b.id.Seq) })
	for _, e := range waiting {
		e.behind = nil
	}
	q.ready = fifo[M]{}
	for key, l := range q.lines {
		if l.waiting = (fifo[M]{}); l.head.worker == nil {
			delete(q.lines, key)
		}
	}
	q.waits = 0
	for _, e := range waiting {
		if e.waits = nil; keep(e) {
			q.enqueue(e)
		} else {
			q.remove(e)
			out = append(out, e)
		}
	}
	q.some.Broadcast()
	return out
}

// fifo is a queue of entries. An entry is in one fifo at a time.
type fifo[M any] struct {
	first, last *entry[M]
	n           int
}

func (f *fifo[M]) push(e *entry[M]) {
	if f.n++; f.n == 1 {
		f.first = e
	} else {
		f.last.behind = e
	}
	f.last = e
}

func (f *fifo[M]) pop() *entry[M] {
	e := f.first
	f.first, e.behind = e.behind, nil
	f.n--
	return e
}
