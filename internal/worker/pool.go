package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jetpull/jetpull/internal/pull"
)

// Ops are the operations of a pool on messages and on its driver. Now, Paused, Identify, Size and Settled are called
// with the queue's lock held, and do no I/O. The others are called without it.
type Ops[M any] struct {
	Now      func() pull.At
	Paused   func() bool                               // while it returns true, no message begins; Resume must follow. nil: never
	Identify func(M) (id ID, delivered, number uint64) // number is the consumer sequence
	Size     func(M) int
	Key      func(M) string // nil: messages are not ordered by key

	Redelivered *atomic.Uint64 // counts deliveries that are not the first of their message

	Checks []Check[M]
	// Handle handles one message, or those of a batch, and must not keep the slice. Without it, the caller settles the messages.
	Handle func(context.Context, []M) error
	// For batches: Failure returns the error of one message from that of Handle. Confirm acknowledges messages and waits for the confirmations. Its
	// error matches ErrFinal if nothing can be sent any more.
	Failure func(error, M) error
	Confirm func(context.Context, []M) error

	Verdict func(error) Verdict // what the error of a handler asks for
	Settled func(M) Settlement  // how the handler has settled the message
	// The acknowledgements of a message. AckAgain is for a redelivery of an acknowledged message, and HandBack for a message that no handler
	// has started.
	Ack        func(M) error
	AckAgain   func(M) error
	Nak        func(M, time.Duration) error
	Term       func(M, string) error
	InProgress func(M) error
	HandBack   func(M)

	// DeadLetter stores a dead letter, and logs the result; nil: there are none. Its error matches ErrFinal if nothing can be sent any more.
	DeadLetter func(ctx context.Context, m M, reason string, attempts int) error
	// Fresh reads the consumer's configuration, unless it was read lately, and applies it. It reports whether the configuration is known.
	Fresh func(context.Context) bool
	// Failed reports a failed attempt that settled its message, with its number from 1 and its outcome.
	Failed func(m M, attempt int, outcome string, after time.Duration, err error)

	Credit  func(pull.Credit)
	Halt    func()          // ends pulling
	Refused func() error    // returns why the server refuses acknowledgements, or nil
	Over    context.Context // ends when no pool can follow; its cause is the reason
	Report  *Reporter
}

// Check decides whether a message may begin. All messages of a batch pass one check before the next, so a check that takes a turn comes after checks
// that can take long. A check returns the handler's context, and a function to call when the handler has returned, or nil. Its error is a [Wait], or
// that of a failed attempt. No check after one that derives a context returns an error.
type Check[M any] func(context.Context, M) (begun context.Context, end func(), err error)

// Settings are the settings of one call.
type Settings struct {
	Workers        int
	Prefetch       int // 0: adaptive
	PrefetchBytes  int // 0: no bound
	KeepAlive      bool
	RetryDelays    []time.Duration // nil: the consumer's BackOff, or else the default
	MaxAttempts    int             // 0: no limit
	ManualAck      bool            // messages are held until they are settled, whatever handlers return
	StopAfter      int             // messages; 0: no limit
	HandlerTimeout time.Duration   // 0: none
	Batch          int             // messages that are handled together; 0: each alone
	BatchDelay     time.Duration   // how long the first message of a batch waits for the others
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
	WindowMost int    // maximum number of messages that may be held or on order
	Remembers  int    // number of settled messages that are remembered
	Alone      bool   // no other client gets messages, and deliveries have no limit: ordered messages are retried only here
}

// ErrReconfigured is the reason for the end of a pool whose consumer was replaced. Running handlers finish without a
// time limit, and another pool follows, unless the call's context or Ops.Over ends first.
var ErrReconfigured = errors.New("the consumer is another one")

// Pool holds the messages of one call for as long as the consumer stays the same.
type Pool[M any] struct {
	ops     Ops[M]
	set     Settings
	ackNone bool // nothing is acknowledged or redelivered
	queue   queue[M]
	keyless Notifier // computes the keys of messages that have arrived

	handlers context.Context // the context of Run's handlers

	// Owned by the pool, and stopped by Close.
	acks    *ackBatch[M]   // nil: each message is acknowledged at once
	timer   *time.Timer    // calls check
	checkAt pull.At        // when timer fires; 0: it is stopped. Under the queue's lock
	workers sync.WaitGroup // workers, and parked messages
	closed  bool           // under the queue's lock

	// The end of the pool. End stops the queue: messages that arrive are handed back, and workers get no more when the queue is over. Then it
	// ends open. After Close the pool is closed: nothing is kept in progress or parked. Ops.Over says that no other pool can follow.
	halt    sync.Once
	open    context.Context // ends when the call ends and messages that were not started are handed back
	closing context.CancelFunc
	err     error // why the pool ended by itself; read after open
	endedAt pull.At
}

// Holds reports whether the pool holds a message.
func (p *Pool[M]) Holds() bool {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	return p.queue.n > 0
}

// Size returns how many messages wait, how many workers have, and how many may be held or on order. Parked messages neither wait
// nor run.
func (p *Pool[M]) Size() (waiting, running, window int) {
	q := &p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(0, q.n-q.running-q.parked), q.running, q.prefetch()
}

// Resume lets workers begin messages, after Paused.
func (p *Pool[M]) Resume() { p.queue.wakeAll() }

// Err returns why the call ended by itself, or nil if it did not. It may be called after the end.
func (p *Pool[M]) Err() error {
	if errors.Is(p.err, ErrReconfigured) && p.ops.Over.Err() != nil {
		return context.Cause(p.ops.Over)
	}
	return p.err
}

// End ends the call, and hands back messages that were not started. If err is not nil, the call ended by itself.
// Workers continue with the messages that they handle, and with messages at their last delivery, which no other client would get.
func (p *Pool[M]) End(err error) {
	p.halt.Do(func() {
		p.err, p.endedAt = err, p.ops.Now()
		p.ops.Halt() // messages that arrive from now on are handed back
		p.handBackUnstarted(p.drains)
		p.closing()
	})
	<-p.open.Done()
}

// drains reports whether a message that no handler has is handled after the end of the call. The queue's lock is held, and the queue is stopped.
func (p *Pool[M]) drains(e *entry[M]) bool {
	return p.ops.Handle != nil && (p.set.DrainBuffered && p.err == nil || p.queue.consumer.isLast(e.delivered))
}

// handBackUnstarted stops the queue, and hands back the messages that no worker has begun, except those for which keep returns true. It
// returns their number, and how many are parked.
func (p *Pool[M]) handBackUnstarted(keep func(*entry[M]) bool) (unstarted, parked int) {
	q := &p.queue
	q.mu.Lock()
	q.stopped = true
	back, parked := q.unstarted(keep), q.parked
	q.mu.Unlock()
	p.handBack(back...)
	return len(back), parked
}

// isLast reports whether the server does not deliver a message again after a number of deliveries.
func (c Consumer) isLast(delivered uint64) bool { return c.MaxDeliver > 0 && delivered >= c.MaxDeliver }

// release removes a message before the server can redeliver it. It returns the newest delivery, and whether that was the last.
func (p *Pool[M]) release(e *entry[M]) (latest M, last bool) {
	p.queue.mu.Lock()
	defer p.queue.mu.Unlock()
	p.queue.remove(e)
	return e.latest, p.queue.consumer.isLast(e.delivered)
}

// handBack hands back messages that are not handled here.
func (p *Pool[M]) handBack(back ...*entry[M]) {
	var last []uint64
	for _, e := range back {
		m, isLast := p.release(e)
		if isLast {
			last = append(last, e.id.Seq)
		}
		p.ops.HandBack(m)
	}
	if len(last) > 0 {
		p.ops.Report.LastDeliveries(false, last...)
	}
}
