package broker

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// errStopping gives a delivery back that was not started.
var errStopping = errors.New("dispatching stops")

const (
	// feedPause is the wait before a feed that failed is tried again.
	feedPause = time.Second
	// outcomeTries and outcomePause bound the attempts to record what became of
	// a callback: when they are used up, it is made again.
	outcomeTries = 5
	outcomePause = 200 * time.Millisecond
)

// lane dispatches the jobs of one push consumer on this node.
//
// A job without a record comes from the feed, which goes to one node at a time,
// and is settled in the feed once its outcome has a record. A job with a record
// is never touched by the feed: it is tried again when it is due, by whichever
// node gets to write that it is in flight. So each job is in one hand at any
// time, and whatever a node held when it died comes back: what had no record
// from the feed, and what was in flight by the end of its claim.
type lane struct {
	b     *Broker
	ready readyHeap // under mu

	mu       sync.Mutex
	consumer Consumer
	limit    *rate.Limiter
	signer   Signer
	busy     int
	closed   bool

	ctx      context.Context // ends when dispatching is to stop
	cancel   context.CancelFunc
	work     context.Context // ends when callbacks in progress are to be cut
	cut      context.CancelFunc
	idle     sync.WaitGroup // callbacks in progress
	finished chan struct{}  // closed when the feed has ended
}

// attempt is a job that is ready for its callback.
type attempt struct {
	job     Job
	message *Message   // nil for a retry: read when its turn comes
	done    chan error // nil for a retry
	dropped bool       // given back while it waited, under lane.mu
}

func newLane(b *Broker, c Consumer) *lane {
	l := &lane{b: b, limit: rate.NewLimiter(rate.Inf, 1), finished: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.work, l.cut = context.WithCancel(context.Background())
	l.update(c)
	return l
}

// update takes over the consumer's settings.
func (l *lane) update(c Consumer) {
	var signer Signer
	if c.SigningSecret != "" {
		var err error
		if signer, err = l.b.signer(c.SigningSecret); err != nil {
			l.b.log.Error("callbacks go out unsigned", "channel", c.Channel, "consumer", c.ID, "error", err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.consumer, l.signer = c, signer
	l.limit.SetLimit(rate.Inf)
	if c.RateLimit > 0 {
		l.limit.SetLimit(rate.Limit(c.RateLimit))
	}
}

func (l *lane) concurrency() int {
	n := l.consumer.Concurrency
	if n == 0 {
		n = l.b.cfg.Dispatch.Concurrency
	}
	return min(n, l.b.cfg.Dispatch.MaxWorkers)
}

// run reads the feed until the lane is closed.
func (l *lane) run() {
	defer close(l.finished)
	for l.ctx.Err() == nil {
		l.mu.Lock()
		c, window := l.consumer, min(4*l.concurrency(), l.b.cfg.Dispatch.QueueSize)
		l.mu.Unlock()
		err := l.b.store.Feed(l.ctx, Feed{
			Consumer: c, Window: window, Deliver: l.deliver, Pinned: l.pinned, Drain: l.b.cfg.Connection.Timeout,
		})
		if l.ctx.Err() != nil {
			return
		}
		l.b.log.Log(l.ctx, l.b.troubleLevel(), "the feed of a consumer ended, reading it again", "channel", c.Channel, "consumer", c.ID, "error", err)
		select {
		case <-l.ctx.Done():
		case <-time.After(feedPause):
		}
	}
}

func (l *lane) pinned(active bool) {
	l.mu.Lock()
	c := l.consumer
	l.mu.Unlock()
	l.b.log.Info("dispatching of a consumer", "channel", c.Channel, "consumer", c.ID, "here", active)
	l.b.metrics.pinned(c, active)
}

// close stops the lane: what waits is given back, and what is in progress may
// finish until ctx ends.
func (l *lane) close(ctx context.Context) {
	l.cancel()
	l.mu.Lock()
	l.closed = true
	for _, a := range l.ready {
		a.drop()
	}
	l.ready = nil
	l.mu.Unlock()
	done := make(chan struct{})
	go func() {
		l.idle.Wait()
		<-l.finished
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		l.cut()
		<-done
	}
	l.cut()
}

func (a *attempt) drop() {
	a.dropped = true
	if a.done != nil {
		a.done <- errStopping
	}
}

// deliver handles a job from the feed.
func (l *lane) deliver(ctx context.Context, d Delivery) error {
	job, err := l.b.store.Job(ctx, d.Job)
	switch {
	case errors.Is(err, ErrNotFound):
		// This node does not know of the message yet, though it was stored.
		job = Job{ID: d.Job, Status: Queued, Priority: d.Message.Priority, ChangedAt: d.Message.ReceivedAt}
	case err != nil:
		return err
	case job.Revision != 0:
		return nil
	}
	a := &attempt{job: job, message: &d.Message, done: make(chan error, 1)}
	if !l.enqueue(a) {
		return errStopping
	}
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
		return l.abandon(ctx, a)
	}
}

// abandon gives a delivery up whose time is over, unless its callback is in
// progress: then it is waited for, which ends because callbacks do.
func (l *lane) abandon(ctx context.Context, a *attempt) error {
	l.mu.Lock()
	for i, waiting := range l.ready {
		if waiting == a {
			heap.Remove(&l.ready, i)
			l.mu.Unlock()
			return context.Cause(ctx)
		}
	}
	l.mu.Unlock()
	return <-a.done
}

// retry handles a job that has a record and is due.
func (l *lane) retry(job Job) { l.enqueue(&attempt{job: job}) }

func (l *lane) enqueue(a *attempt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	heap.Push(&l.ready, a)
	l.startLocked()
	return true
}

// startLocked starts as many callbacks as the consumer may have.
func (l *lane) startLocked() {
	for l.busy < l.concurrency() && len(l.ready) > 0 && !l.closed {
		a := heap.Pop(&l.ready).(*attempt)
		l.busy++
		c, signer := l.consumer, l.signer
		l.idle.Go(func() {
			err := l.try(a, c, signer)
			if a.done != nil {
				a.done <- err
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.busy--
			l.startLocked()
		})
	}
}

// try makes one callback and records what became of it.
func (l *lane) try(a *attempt, c Consumer, signer Signer) error {
	if err := l.limit.Wait(l.ctx); err != nil {
		return errStopping
	}
	if a.message == nil {
		if !l.takeRetry(a) {
			return nil
		}
	}
	done, err := l.b.callback(l.work, c, signer, *a.message, a.job)
	if err != nil && l.work.Err() != nil {
		// It was cut by a shutdown, and that is not the consumer's fault.
		return errStopping
	}
	next := Attempted(a.job, err == nil, time.Now(), l.b.cfg.Dispatch.Backoff, l.b.cfg.Dispatch.MaxRetry)
	l.b.metrics.attempted(next.Status, a.message.ReceivedAt)
	if err != nil {
		l.b.log.Info("callback failed", "channel", c.Channel, "consumer", c.ID, "job", a.job.ID, "next", next.Status, "retry", next.Retries, "due", next.Due, "error", err)
	}
	return l.record(l.b.attempted(l.work, c, next, done))
}

// takeRetry writes that the job is in flight, which one node can do, and loads
// its message.
func (l *lane) takeRetry(a *attempt) bool {
	next, err := Claim(a.job, "", 0, time.Now(), l.b.cfg.ClaimLimit())
	if err != nil {
		return false
	}
	messages, err := l.b.store.MessagesAt(l.work, []uint64{a.job.ID.Seq})
	if err == nil {
		m, ok := messages[a.job.ID.Seq]
		if !ok {
			l.b.log.Info("no retry of a callback whose message was pruned", "job", a.job.ID)
			return false
		}
		a.message = &m
		a.job, err = l.b.store.PutJob(l.work, next)
	}
	if err != nil && !errors.Is(err, ErrConflict) {
		l.b.log.Log(l.ctx, l.b.troubleLevel(), "retry of a callback put off", "job", a.job.ID, "error", err)
		l.b.due.add(dueItem{at: time.Now().Add(feedPause), id: a.job.ID, revision: next.Revision})
	}
	return err == nil
}

// record writes the outcome of a callback. A conflict means that the job is in
// another hand, whose outcome counts.
func (l *lane) record(next Job) error {
	var err error
	for try := range outcomeTries {
		if _, err = l.b.store.PutJob(l.work, next); err == nil || errors.Is(err, ErrConflict) {
			return nil
		}
		select {
		case <-l.work.Done():
			return err
		case <-time.After(outcomePause << try):
		}
	}
	l.b.log.Error("the outcome of a callback could not be recorded, it will be made again", "job", next.ID, "error", err)
	return fmt.Errorf("record the outcome of job %s: %w", next.ID, err)
}

// readyHeap has the highest priority in front, and the oldest within one.
type readyHeap []*attempt

func (h readyHeap) Len() int { return len(h) }
func (h readyHeap) Less(i, j int) bool {
	if h[i].job.Priority != h[j].job.Priority {
		return h[i].job.Priority > h[j].job.Priority
	}
	return h[i].job.ID.Seq < h[j].job.ID.Seq
}
func (h readyHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *readyHeap) Push(x any)   { *h = append(*h, x.(*attempt)) }
func (h *readyHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return x
}
