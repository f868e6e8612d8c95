package limit

import (
	"context"
	"slices"
	"time"

	"github.com/jetpull/jetpull/internal/lease"
)

// never is the time until something that is not due.
const never = time.Duration(1<<63 - 1)

// key is the state of a key that this process uses. Limiter.mu guards it. Only its goroutine, run, writes the record.
//
// The record always grants at least what this process has: hand and used are at most Open, and slots are at most Run. So hand and slots shrink
// before a write that returns some, and grow after a write that takes more was stored.
type key struct {
	bucketKey string
	woken     chan struct{} // wakes run

	waiters []chan struct{} // callers of Acquire and Await; the first gets a signal when it may be its turn
	waiting time.Duration   // since when this process waits
	offer   *time.Timer     // runs from the return of a caller of Await until it calls TryAcquire; nil: there is no such caller
	hand    int             // handlers that may begin
	used    int             // handlers that have begun and are not reported yet
	last    time.Duration   // when the last of them began
	slots   int             // handlers that may run
	running int
	peak    int // the most that ran since the last write

	held  bool         // the last stored write contains this process, and no later write that may have been stored removes it
	lease *lease.Lease // for running handlers; extended by each stored write

	known     bool // rec is the newest record, as far as this process can know
	rec       record
	revision  uint64
	read      time.Duration // when rec became known
	contended bool          // another process waits for a slot

	wrote   time.Duration // when the last stored write was sent
	retry   time.Duration // when the next write may be sent
	refused int           // refused writes in a row
}

// keyOf returns the state of a key, and starts its goroutine, which ends when this process has nothing of the key any more.
func (l *Limiter) keyOf(text string) *key {
	bucketKey := bucketKey(l.name, text)
	k := l.keys[bucketKey]
	if k == nil {
		now := l.clock().Mono
		k = &key{bucketKey: bucketKey, woken: make(chan struct{}, 1), wrote: now - l.cfg.TTL, retry: now}
		k.lease = l.newLease()
		l.keys[bucketKey] = k
		l.tasks.Go(func() { l.run(k) })
	}
	return k
}

func (k *key) notify() {
	select {
	case k.woken <- struct{}{}:
	default:
	}
}

func (l *Limiter) newLease() *lease.Lease {
	return lease.New(context.Background(), l.clock, l.cfg.TTL, ErrLost)
}

func (k *key) valid() bool { return k.held && k.lease.Valid() }

// ready reports whether a handler may begin. If another process waits for a slot, this process yields when base has passed since its last write.
func (l *Limiter) ready(k *key, now lease.Moment) bool {
	yields := k.contended && now.Mono-k.wrote >= l.cfg.base()
	return k.valid() && (l.cfg.Rate == 0 || k.hand > 0) && (l.cfg.Concurrent == 0 || k.running < k.slots && !yields)
}

// free returns how many handlers may begin while the lease is valid.
func (k *key) free(c *Config) int {
	switch {
	case c.Concurrent == 0:
		return k.hand
	case c.Rate == 0:
		return k.slots - k.running
	}
	return min(k.hand, k.slots-k.running)
}

// begin records the start of a handler. It runs on the goroutine of the caller, just before Acquire returns, so that the time is right.
func (l *Limiter) begin(k *key, now lease.Moment) (release func()) {
	if l.cfg.Rate > 0 {
		k.hand, k.used, k.last = k.hand-1, k.used+1, now.Mono
	}
	if l.cfg.Concurrent == 0 {
		return func() {}
	}
	k.running++
	k.peak = max(k.peak, k.running)
	released := false
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if released {
			return
		}
		released = true
		k.running--
		k.signal()
		if k.contended || l.closing {
			k.notify()
		}
	}
}

func (k *key) signal() {
	if len(k.waiters) > 0 && k.offer == nil {
		select {
		case k.waiters[0] <- struct{}{}:
		default:
		}
	}
}

// offerLasts is how long the other callers wait for the one that has the turn to call TryAcquire.
const offerLasts = 100 * time.Millisecond

// offered gives the turn to a caller of Await.
func (l *Limiter) offered(k *key) {
	var offer *time.Timer
	offer = time.AfterFunc(offerLasts, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.offer == offer {
			k.accepted()
		}
	})
	k.offer = offer
}

func (k *key) accepted() {
	if k.offer != nil {
		k.offer.Stop()
		k.offer = nil
		k.signal()
	}
}

// await waits for the caller's turn, and calls begin. The caller holds l.mu, which await releases while it waits.
func (l *Limiter) await(ctx context.Context, k *key, begin func(lease.Moment)) error {
	w := make(chan struct{}, 1)
	if k.waiters = append(k.waiters, w); len(k.waiters) == 1 {
		k.waiting = l.clock().Mono
	}
	k.notify()
	defer func() {
		k.waiters = slices.DeleteFunc(k.waiters, func(other chan struct{}) bool { return other == w })
		k.signal()
		k.notify()
	}()
	for {
		l.mu.Unlock()
		select {
		case <-w:
		case <-ctx.Done():
		case <-l.closed:
		}
		l.mu.Lock()
		now := l.clock()
		switch {
		case l.closing:
			return ErrClosed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case k.waiters[0] == w && k.offer == nil && l.ready(k, now):
			begin(now)
			return nil
		}
	}
}

// run writes the record of a key whenever a write is due, until this process has nothing of the key and nobody waits.
func (l *Limiter) run(k *key) {
	for l.ctx.Err() == nil {
		l.mu.Lock()
		now := l.clock()
		write, look := l.due(k, now)
		if look == never {
			delete(l.keys, k.bucketKey)
			k.lease.End(nil)
		}
		l.mu.Unlock()
		switch {
		case look == never:
			return
		case write:
			l.write(k)
			continue
		}
		timer := time.NewTimer(look)
		select {
		case <-k.woken:
		case <-timer.C:
		case <-l.ctx.Done():
		}
		timer.Stop()
	}
}

// due reports whether the record must be written now, and otherwise when to look again.
func (l *Limiter) due(k *key, now lease.Moment) (write bool, look time.Duration) {
	c, mine := &l.cfg, k.rec.of(l.id)
	waits := len(k.waiters) > 0 && !l.closing && !l.ready(k, now)
	p := l.plan(k, now)
	idle, pace := p.mine == holder{}, c.pace(p.holders)
	if l.closing {
		pace = 0
	}
	at := never // time from the last write to the next
	if k.used > 0 || k.hand > 0 || k.slots > k.running || mine.ID != "" && idle {
		at = pace
	}
	if !idle && (mine.ID != "" || k.running > 0) {
		at = min(at, c.TTL/renewals)
	}
	if waits && p.mine.Lacks == "" && (c.Rate == 0 || c.share(p.holders) == 1) { // at least one handler begins for each write
		at = 0
	}
	if waits && (p.mine.Lacks == "" || p.mine.Lacks != mine.Lacks) || k.contended && k.slots > k.running || k.running > 0 && mine.ID == "" {
		at = min(at, c.base())
	}
	switch {
	case at != never:
		look = max(at-(now.Mono-k.wrote), k.retry-now.Mono)
	case len(k.waiters) == 0 && k.running == 0:
		return false, never
	default:
		look = c.TTL
	}
	if !k.known && (waits || at != never) {
		look = k.retry - now.Mono
	}
	if look <= 0 {
		return true, 0
	}
	if waits {
		look = min(look, max(time.Millisecond, k.rec.later(now.Mono-k.read, l.id, c).next(l.id, c)))
	}
	return false, look
}
