// Package worker is the runtime of Consume and Messages. It holds messages, assigns them to workers, and settles
// them. It knows deliveries, not NATS.
//
// No callback, channel operation or I/O happens with the queue's lock held; DESIGN.md has the lock order.
package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/jetpull/jetpull/internal/pull"
)

// Ops are the operations of a pool on messages and on its driver. Now, Paused, Identify, Size and Settled are called
// with the queue's lock held, and do no I/O. The others are called without it.
type Ops[M any] struct {
	Now      func() pull.At
	Paused   func() bool // nil: never. While it is true no message is begun; Resume follows its end
	Identify func(M) (id ID, delivered uint64)
	Size     func(M) int
	Key      func(M) string // nil: messages are not ordered by key

	Handle  func(context.Context, M) error // nil: the caller settles what it takes
	Settled func(M) Settlement             // how its handler has settled it
	// The acknowledgements of a message; HandBack is for those that no handler has started.
	Ack        func(M) error
	Nak        func(M, time.Duration) error
	Term       func(M, string) error
	InProgress func(M) error
	HandBack   func(M)

	// DeadLetter stores a dead letter, and logs the result; nil: there are none. Its error matches ErrFinal if nothing can be sent any more.
	DeadLetter func(ctx context.Context, m M, reason string, attempts int) error
	// Failed takes a failed attempt that settled its message, its number from 1, and its outcome.
	Failed func(m M, attempt int, outcome string, after time.Duration, err error)

	Credit func(pull.Credit)
	Halt   func()          // ends pulling
	Over   context.Context // ends when no pool can follow; its cause is the reason
	Report *Reporter
}

// Settings are those of one call.
type Settings struct {
	Workers        int
	Prefetch       int // 0: adaptive
	PrefetchBytes  int // 0: no bound
	KeepAlive      bool
	RetryDelays    []time.Duration // nil: the consumer's BackOff, else the default
	MaxAttempts    int             // 0: no limit
	ManualAck      bool            // messages are held until they are settled, whatever handlers return
	StopAfter      int             // messages; 0: the call goes on
	HandlerTimeout time.Duration   // 0: none
	DrainTimeout   time.Duration
	DrainBuffered  bool // messages that were read ahead are handled, not handed back
}

// Consumer is the part of the consumer's configuration that a pool uses.
type Consumer struct {
	AckNone    bool          // nothing is acknowledged or redelivered
	Shortest   time.Duration // the shortest AckWait; 0: nothing is redelivered
	Longest    time.Duration // the longest
	BackOff    []time.Duration
	MaxDeliver uint64 // 0: no limit
	WindowMost int    // the most messages that may be held or on order
	Remembers  int    // settled messages that are remembered
}

// ErrReconfigured is the reason for which a pool ends when its consumer's configuration has changed. Running handlers finish
// without a time limit, and another pool follows, unless the call's context or Ops.Over ends first.
var ErrReconfigured = errors.New("the consumer's configuration has changed")

// Pool holds the messages of one call, as long as the consumer's configuration stays as it is.
type Pool[M any] struct {
	ops   Ops[M]
	set   Settings
	queue queue[M]

	// Owned by the pool, and stopped by Close.
	acks    *ackBatch[M]   // nil: each message is acknowledged at once
	timer   *time.Timer    // of keepHouse
	lookAt  pull.At        // when it fires; 0: it does not. Under the queue's lock
	workers sync.WaitGroup // and messages that are parked
	closed  bool           // under the queue's lock

	// Its end.
	halt    sync.Once
	ended   chan struct{} // closed when the call is to end, and messages that were not started are handed back
	err     error         // why it ended by itself; read after ended
	endedAt pull.At
}

// New returns a pool that has no messages.
func New[M any](ops Ops[M], set Settings, consumer Consumer) *Pool[M] {
	p := &Pool[M]{ops: ops, set: set, ended: make(chan struct{})}
	q := &p.queue
	q.ops, q.some.L = &p.ops, &q.mu
	q.consumer = consumer
	q.lines, q.slots = map[string]*line[M]{}, make([]slot[M], set.Workers)
	q.held.prev, q.held.next = &q.held, &q.held
	q.quota.left = cmp.Or(set.StopAfter, math.MaxInt)
	q.window = window{
		fixed: set.Prefetch, workers: set.Workers, bytes: set.PrefetchBytes,
		bound: consumer.WindowMost, waitMost: consumer.Shortest / 4,
	}
	q.window.restart()
	if set.Workers > 1 && ops.Handle != nil {
		p.acks = newAckBatch(ops.Ack, ops.Report.Error)
	}
	p.timer = time.AfterFunc(time.Hour, p.keepHouse)
	p.timer.Stop()
	return p
}

// Remember takes over the settled messages of a pool of the same call and consumer that has ended. It is not called for a
// consumer that was recreated.
func (p *Pool[M]) Remember(before *Pool[M]) {
	before.queue.mu.Lock()
	defer before.queue.mu.Unlock()
	p.queue.history = before.queue.history
}

// Size returns how many messages wait, how many are with workers, and how many may be held or on order. Those that are parked
// neither wait nor run.
func (p *Pool[M]) Size() (waiting, running, window int) {
	q := &p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(0, q.n-q.quota.busy), q.quota.busy - q.parked, q.prefetch()
}

// Deliver takes messages that arrived, and returns how many were redeliveries. It must not run twice at the same time.
func (p *Pool[M]) Deliver(ms []M) (redelivered int) {
	var keys []string
	for i := 0; p.ops.Key != nil && i < len(ms); i++ {
		keys = append(keys, p.keyOf(ms[i]))
	}
	q := &p.queue
	var again []func() error
	var back []M
	q.mu.Lock()
	now, before := p.ops.Now(), q.ready.n
	for i, m := range ms {
		id, delivered := p.ops.Identify(m)
		if delivered > 1 {
			redelivered++
		}
		size := p.ops.Size(m)
		e, known := p.known(id)
		switch {
		case e != nil:
			e.replace(m, delivered)
			q.countCredit(size)
		case known == Acked:
			again = append(again, func() error { return p.ops.Ack(m) })
			q.countCredit(size)
		case known == Terminated:
			again = append(again, func() error { return p.ops.Term(m, "") })
			q.countCredit(size)
		case q.stopped:
			back = append(back, m)
			q.countCredit(size)
		default:
			e = q.add()
			e.msg, e.latest, e.id, e.delivered, e.size, e.since = m, m, id, delivered, size, now
			if keys != nil {
				e.key = keys[i]
			}
			q.enqueue(e)
		}
	}
	for range min(q.ready.n-before, q.waiting) {
		q.some.Signal()
	}
	q.startWorker()
	q.starving = q.ready.n == 0 && q.hungry()
	c := q.creditDue()
	p.lookAgain(now)
	q.mu.Unlock()
	for _, a := range again {
		p.ops.Report.Error(a())
	}
	for _, m := range back {
		p.ops.HandBack(m)
	}
	if c.N > 0 || c.Starving {
		p.ops.Credit(c)
	}
	return redelivered
}

// known returns the held entry of a message, or else how it is remembered to be settled. A message that its handler, or
// the loop of Messages, has settled itself is held until the handler returns. A redelivery of one that it handed back is a
// message like any other. The lock is held.
func (p *Pool[M]) known(id ID) (*entry[M], Settlement) {
	q := &p.queue
	if id.Seq > q.history.highest || id.Seq == 0 {
		q.history.highest = max(q.history.highest, id.Seq)
		return nil, Undecided
	}
	e := q.find(id)
	if e == nil {
		return nil, q.history.memory.settlement(id)
	}
	how := p.ops.Settled(e.msg)
	switch {
	case how == Naked && e.parked:
		q.done(e, p.ops.Now())
		p.workers.Done()
	case how == Naked:
		q.remove(e)
	}
	if how != Undecided {
		return nil, how
	}
	return e, Undecided
}

// replace replaces e's delivery by a redelivery. A worker keeps the delivery that it has: an acknowledgement of any
// delivery settles the message.
func (e *entry[M]) replace(m M, delivered uint64) {
	e.latest, e.delivered = m, max(e.delivered, delivered) // a server that crashed counts from 1 again
	if !e.taken {
		e.msg = m
	}
}

// keyOf returns the key of a message. If the key function panics, that is reported, and the message has the empty key. The
// function is the user's, and runs on the goroutine that delivers the messages of all calls.
func (p *Pool[M]) keyOf(m M) (key string) {
	defer func() {
		if v := recover(); v != nil {
			id, _ := p.ops.Identify(m)
			err := recovered("the OrderedBy function", v)
			p.ops.Report.Later(slog.LevelError, "jetpull: OrderedBy panicked, and its message has the empty key", "sequence", id.Seq, "error", err)
			p.ops.Report.Error(err)
		}
	}()
	return p.ops.Key(m)
}

// Resume lets workers begin messages, after Paused.
func (p *Pool[M]) Resume() {
	p.queue.mu.Lock()
	p.queue.some.Broadcast()
	p.queue.startWorker()
	p.queue.mu.Unlock()
}

// Err returns why the call ended by itself; nil: it did not. It may be called when Run or Next has reported the end.
func (p *Pool[M]) Err() error { return p.err }

// End ends the call, by itself unless err is nil, and hands back messages that were not started. Workers go on with
// the messages that they handle, and with messages at their last delivery, which no other client would get.
func (p *Pool[M]) End(err error) {
	p.halt.Do(func() {
		p.err, p.endedAt = err, p.ops.Now()
		p.ops.Halt() // messages that arrive from now on are handed back
		q := &p.queue
		q.mu.Lock()
		q.stopped = true
		back := q.unstarted(func(e *entry[M]) bool {
			return p.ops.Handle != nil && (p.set.DrainBuffered && err == nil || q.consumer.isLast(e.delivered))
		})
		q.mu.Unlock()
		p.handBackAll(back)
		close(p.ended)
	})
	<-p.ended
}

// isLast reports whether the server does not deliver a message again that it has delivered so often.
func (c Consumer) isLast(delivered uint64) bool { return c.MaxDeliver > 0 && delivered >= c.MaxDeliver }

func (p *Pool[M]) handBackAll(back []*entry[M]) {
	var last []uint64
	consumer := p.queue.consumer
	for _, e := range back {
		if consumer.isLast(e.delivered) {
			last = append(last, e.id.Seq)
		}
		p.ops.HandBack(e.latest)
	}
	if len(last) > 0 {
		p.ops.Report.LastDeliveries(false, last...)
	}
}
