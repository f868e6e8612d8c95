package limit

import (
	"context"
	"slices"
	"time"

	"github.com/jetpull/jetpull/internal/lease"
)

// never is the time until something that is not due.
const never = time.Duration(1<<63 - 1)

// state is the state of a key that this process uses. Limiter.mu guards it. Only its goroutine, run, writes the record.
//
// The record always grants at least what this process has: hand and used are at most Open, and slots are at most Run. So hand and slots shrink
// before a write that returns some, and grow after a write that takes more was stored.
type state struct {
	bucketKey string
	woken     chan struct{} // wakes run

	waiters []chan struct{} // callers of Acquire and Await; the first gets a signal when it may be its turn
	waiting time.Duration   // since when this process waits
	offer   *time.Timer     // ends the turn of a caller of Await, unless that calls TryAcquire before; nil: none has the turn
	hand    int             // handlers that may begin
	used    int             // handlers that have begun and are not reported yet
	last    time.Duration   // when the last of them began
	slots   int             // handlers that may run
	running int
	peak    int // the most that ran since the last write

	// lease is for running handlers. Each stored write extends it. It is nil unless the last stored write contains this process, and no later write
	// that may have been stored removes it.
	lease *lease.Lease

	known     bool // rec is the newest record, as far as this process can know
	rec       record
	revision  uint64
	read      time.Duration // when rec became known
	contended bool          // another process waits for a slot

	wrote   time.Duration // when the last stored write was sent
	retry   time.Duration // when the next write may be sent
	refused int           // refused writes in a row
}

// stateOf returns the state of a key, and starts its goroutine, which ends when this process has nothing of the key any more.
func (l *Limiter) stateOf(text string) *state {
	bucketKey := bucketKey(l.name, text)
	k := l.keys[bucketKey]
	if k == nil {
		now := l.clock().Mono
		k = &state{bucketKey: bucketKey, woken: make(chan struct{}, 1), wrote: now - l.cfg.TTL, retry: now}
		l.keys[bucketKey] = k
		l.tasks.Go(func() { l.run(k) })
	}
	return k
}

// wake sends a signal to c, unless one is already pending.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (k *state) valid() bool { return k.lease != nil && k.lease.Valid() }

// ready reports whether a handler may begin. If another process waits for a slot, this process yields when base has passed since its last write.
func (l *Limiter) ready(k *state, now time.Duration) bool {
	yields := l.cfg.Concurrent > 0 && k.contended && now-k.wrote >= l.cfg.base()
	return k.valid() && k.free(&l.cfg) > 0 && !yields
}

// free returns how many handlers may begin while the lease is valid.
func (k *state) free(c *Config) int {
	free := maxNumber
	if c.Rate > 0 {
		free = k.hand
	}
	if c.Concurrent > 0 {
		free = min(free, k.slots-k.running)
	}
	return free
}

// begin records the start of a handler. It runs on the goroutine of the caller, just before Acquire returns, so that the time is right.
func (l *Limiter) begin(k *state, now time.Duration) (release func()) {
	if l.cfg.Rate > 0 {
		k.hand, k.used, k.last = k.hand-1, k.used+1, now
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
		if k.contended || l.closing() {
			wake(k.woken)
		}
	}
}

func (k *state) signal() {
	if len(k.waiters) > 0 && k.offer == nil {
		wake(k.waiters[0])
	}
}

// offerLasts is how long the other callers wait for the one that has the turn to call TryAcquire.
const offerLasts = 100 * time.Millisecond

// endOffer gives the turn to the next caller, unless the offer is over already.
func (k *state) endOffer(offer *time.Timer) {
	if offer != nil && k.offer == offer {
		offer.Stop()
		k.offer = nil
		k.signal()
	}
}

// await waits for the caller's turn, and calls begin. The caller holds l.mu, which await releases while it waits.
func (l *Limiter) await(ctx context.Context, k *state, begin func(now time.Duration)) error {
	w := make(chan struct{}, 1)
	if k.waiters = append(k.waiters, w); len(k.waiters) == 1 {
		k.waiting = l.clock().Mono
	}
	wake(k.woken)
	defer func() {
		k.waiters = slices.DeleteFunc(k.waiters, func(other chan struct{}) bool { return other == w })
		k.signal()
		wake(k.woken)
	}()
	for {
		now := l.clock().Mono
		switch {
		case l.closing():
			return ErrClosed
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case k.waiters[0] == w && k.offer == nil && l.ready(k, now):
			begin(now)
			return nil
		}
		l.mu.Unlock()
		select {
		case <-w:
		case <-ctx.Done():
		case <-l.open.Done():
		}
		l.mu.Lock()
	}
}
