package jetpull

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// aside are messages that were delivered for the last time and whose dead letter
// is not stored. The server would not deliver them again, so they are held until
// it is; and it may never be, so they do not hold their workers. With OrderedBy
// they hold their key.
//
// They do not count against the window, which may shrink to fewer messages than
// are aside, and then no other could come. They have bounds of their own; when
// those are reached the workers wait.
type aside struct {
	most, mostBytes int
	every           time.Duration // between in-progress
	trying          sync.WaitGroup

	mu    sync.Mutex
	held  map[*Msg]int // and their sizes
	bytes int
	full  bool          // and it has been told
	lost  []uint64      // sequences of those that were given up: nothing can be stored
	news  chan struct{} // closed when one has been stored: others may be now; nil: nobody waits
	timer *time.Timer
}

const (
	// asideMost and asideBytes bound what is set aside; one message always is.
	asideMost  = 64
	asideBytes = 8 << 20
	// buryAgain is how long after a failed try for a dead letter the next one
	// follows. A refusal seldom changes soon, so after those it doubles up to
	// buryLast. A store that does not answer is back any moment.
	buryAgain = time.Second
	buryLast  = time.Minute
)

func newAside(s *Subscription, prefetchBytes int) *aside {
	a := &aside{
		most: asideMost, mostBytes: asideBytes, every: max(time.Millisecond, s.patience()/3),
	}
	if n := s.config().MaxAckPending; n > 0 {
		// What is aside is pending, and the others have to come too.
		a.most = max(1, min(a.most, n/2))
	}
	if prefetchBytes > 0 {
		a.mostBytes = min(a.mostBytes, prefetchBytes)
	}
	return a
}

// adapt takes over the bounds of to. What is aside already is refreshed in time.
func (a *aside) adapt(to *aside) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sooner := to.every < a.every
	a.most, a.every = to.most, to.every
	if sooner && len(a.held) > 0 {
		a.timer.Reset(0)
	}
}

// add sets a message aside if there is room. first says that no other is, and
// full that the lack of room is news.
func (a *aside) add(h held) (added, first, full bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.held)
	if n > 0 && (n >= a.most || a.bytes+h.size > a.mostBytes) {
		full = !a.full
		a.full = true
		return false, false, full
	}
	if a.held == nil {
		a.held = map[*Msg]int{}
	}
	a.held[h.m] = h.size
	a.bytes += h.size
	if n == 0 {
		a.timer = time.AfterFunc(a.every, a.refresh)
	}
	return true, n == 0, false
}

// remove takes a message out and reports whether it was the last one.
func (a *aside) remove(h held) (last bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.held, h.m)
	a.bytes -= h.size
	if len(a.held) > 0 {
		return false
	}
	a.timer.Stop()
	a.full = false
	return true
}

// stored lets the others be tried at once.
func (a *aside) stored() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.news != nil {
		close(a.news)
		a.news = nil
	}
}

// heard is closed when the next one has been stored.
func (a *aside) heard() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.news == nil {
		a.news = make(chan struct{})
	}
	return a.news
}

func (a *aside) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.held)
}

// refresh says that all are in progress. It does so without [KeepAlive] too: when
// AckWait is over the server is done with a message at its last delivery.
func (a *aside) refresh() {
	a.mu.Lock()
	ms := make([]*Msg, 0, len(a.held))
	for m := range a.held {
		ms = append(ms, m)
	}
	if len(ms) > 0 {
		a.timer.Reset(a.every)
	}
	a.mu.Unlock()
	for _, m := range ms {
		_ = m.InProgress()
	}
}

// burial is a message whose dead letter is tried for again and again.
type burial struct {
	deadMessage
	err  error         // of the last try
	wait time.Duration // before the next one
	// news is closed when another one has been stored since the last try began.
	news <-chan struct{}
}

// failed notes a try that failed.
func (b *burial) failed(err error) {
	silent := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)
	if b.err = err; silent || b.wait == 0 {
		b.wait = buryAgain
		return
	}
	b.wait = min(2*b.wait, buryLast)
}

// insist has a dead letter stored whose message cannot be had again: from aside,
// so that the worker that calls it is free, or before it returns where there is
// no room.
func (st *stream) insist(ctx context.Context, b burial) {
	if st.lose(&b) {
		st.settled(b.held)
		return
	}
	ended := (<-chan struct{})(st.ended)
	for !st.setAside(ctx, b) {
		if st.tryAgain(ctx, &b, &ended) {
			st.settled(b.held)
			return
		}
	}
}

// setAside reports whether there was room for b. If so the rest is done on a
// goroutine that ends with the drain.
func (st *stream) setAside(ctx context.Context, b burial) bool {
	added, first, full := st.aside.add(b.held)
	if full {
		st.log.Warn("jetpull: workers wait for dead letters to be stored: no more messages can be set aside meanwhile",
			"aside", st.aside.len(), "subject", b.subject, "error", b.err)
	}
	if !added {
		return false
	}
	if first {
		st.log.Warn("jetpull: a message that was delivered for the last time is set aside until its dead letter is stored",
			"sequence", b.m.Sequence(), "subject", b.subject, "error", b.err)
	}
	if freed, bytes := st.queue.hold(b.held, st.lineUntil(&b), true); freed > 0 {
		st.tellFreed(freed, bytes)
	}
	st.aside.trying.Go(func() {
		ended := (<-chan struct{})(st.ended)
		for !st.tryAgain(ctx, &b, &ended) {
			st.queue.keepBlocked(b.held, st.lineUntil(&b))
		}
		if st.aside.remove(b.held) && b.err == nil {
			st.log.Info("jetpull: all dead letters are stored again")
		}
		if st.acks != nil {
			st.acks.settled(b.m.Sequence())
		}
		st.queue.unblock(b.held)
	})
	return true
}

// lineUntil is until when the line of b is kept though nothing more is heard of
// it: past the end of the next try.
func (st *stream) lineUntil(b *burial) at {
	return st.e.now() + b.wait + deadLetterWait + lineGrace
}

// tryAgain waits for a time and tries once more. It reports whether the message is
// settled: because its dead letter is stored, because ctx, the handlers', has
// ended, and then it goes back, or because neither is possible any more. Once the
// stream has ended there is no time to lose.
func (st *stream) tryAgain(ctx context.Context, b *burial, ended *<-chan struct{}) bool {
	wait := b.wait
	if *ended == nil {
		wait = buryAgain
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.news:
	case <-*ended:
		*ended = nil
	case <-st.e.cutOff:
	case <-ctx.Done():
	}
	if st.lose(b) {
		return true
	}
	if ctx.Err() == nil {
		b.news = st.aside.heard()
		err := st.bury(ctx, &b.deadMessage)
		if err == nil {
			b.err = nil
			st.aside.stored()
			return true
		}
		b.failed(err)
	}
	if st.lose(b) {
		return true
	}
	if ctx.Err() == nil {
		return false
	}
	st.report(fmt.Errorf("jetpull: stream sequence %d was delivered for the last time and has no dead letter: %w", b.m.Sequence(), context.Cause(ctx)))
	// The server will not deliver it again, but others see that it is not being
	// handled any more.
	if err := b.m.NakWithDelay(max(time.Second, st.retryDelay(b.attempts))); err != nil {
		st.report(err)
	}
	return true
}

// keepBlocked keeps the line of h from being lifted before until.
func (d *dispatch) keepBlocked(h held, until at) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.lines[h.key]; l != nil && l.blocked == h.m.Sequence() {
		l.until = max(l.until, until)
	}
}

// unblock lets the line of h go on if it still waits for h. It does not where the
// message has come again all the same, as from a consumer that was made anew.
func (d *dispatch) unblock(h held) {
	d.mu.Lock()
	defer d.release()
	if l := d.lines[h.key]; l != nil && l.blocked == h.m.Sequence() {
		d.advance(h.key)
	}
}
