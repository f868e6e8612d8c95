package limit

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	refusedPause = 2 * time.Millisecond // before a write is repeated that another process was ahead of; longer if that happens again
	failedPause  = 100 * time.Millisecond
	requestTime  = 2 * time.Second
	never        = time.Duration(1<<63 - 1)
)

// key is a key while this process uses it. Limiter.mu guards it. Its goroutine, run, alone writes the record.
//
// The record always grants at least what this process has: hand and used to Open, slots to Run. So both shrink before a write that returns some, and
// grow when one that takes more was stored.
type key struct {
	text, bucketKey string
	woken           chan struct{} // wakes run

	waiters []chan struct{} // the callers of Acquire that wait; the first gets a signal when it may be its turn
	waiting time.Duration   // since when this process waits
	hand    int             // handlers that may begin
	used    int             // handlers that have begun, and are not reported
	last    time.Duration   // when the last of them began
	slots   int             // handlers that may run
	running int
	peak    int // the most that ran since the last write

	held  bool            // the last write that was stored has this process in it, and none that may have been stored since takes it out
	lease moment          // when that was sent
	right context.Context // of handlers that run
	end   context.CancelCauseFunc

	checked bool // check is due

	known     bool // rec is the newest record that this process can know of
	rec       record
	revision  uint64
	read      time.Duration // when rec was known
	contended bool          // another process waits for a slot

	wrote   time.Duration // when the last write that was stored was sent
	retry   time.Duration // when the next one may be tried
	refused int           // writes in a row
}

// keyOf returns the state of a key. Its goroutine ends when this process has nothing of the key any more.
func (l *Limiter) keyOf(text string) *key {
	k := l.keys[text]
	if k == nil {
		now := l.clock().mono
		k = &key{text: text, bucketKey: bucketKey(l.name, text), woken: make(chan struct{}, 1), wrote: now - l.cfg.TTL, retry: now}
		k.right, k.end = context.WithCancelCause(context.Background())
		l.keys[text], l.inBucket[k.bucketKey] = k, k
		l.tasks.Go(func() { l.run(k) })
	}
	return k
}

// notify wakes the key's goroutine.
func (k *key) notify() {
	select {
	case k.woken <- struct{}{}:
	default:
	}
}

func (l *Limiter) valid(k *key, now moment) bool { return k.held && now.since(k.lease) < l.cfg.lease() }

// ready reports whether a handler may begin. If another process waits for a slot, the turn of this one ends a while after its last write.
func (l *Limiter) ready(k *key, now moment) bool {
	yields := k.contended && now.mono-k.wrote >= l.cfg.base()
	return l.valid(k, now) && (l.cfg.Rate == 0 || k.hand > 0) && (l.cfg.Concurrent == 0 || k.running < k.slots && !yields)
}

// begin begins a handler. The caller of Acquire does that itself when it returns, so that the time is right.
func (l *Limiter) begin(k *key, now moment) (release func()) {
	if l.cfg.Rate > 0 {
		k.hand, k.used, k.last = k.hand-1, k.used+1, now.mono
	}
	if l.cfg.Concurrent == 0 {
		return func() {}
	}
	k.running++
	if k.peak = max(k.peak, k.running); !k.checked {
		k.checked = true
		time.AfterFunc(l.cfg.TTL/leaseChecks, func() { l.check(k) })
	}
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

// check ends the contexts of handlers when this process may not run them any more. It repeats that while some run: a timer stops while the machine
// sleeps, as the monotonic clock does. The key's goroutine may wait for an answer meanwhile.
func (l *Limiter) check(k *key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.running > 0 && !l.valid(k, l.clock()) {
		k.end(ErrLost)
		k.right, k.end = context.WithCancelCause(context.Background())
	}
	if k.checked = k.running > 0; k.checked {
		time.AfterFunc(l.cfg.TTL/leaseChecks, func() { l.check(k) })
	}
}

// signal wakes the first caller that waits.
func (k *key) signal() {
	if len(k.waiters) > 0 {
		select {
		case k.waiters[0] <- struct{}{}:
		default:
		}
	}
}

// await waits for the caller's turn. It is called with the lock, which it releases while it waits.
func (l *Limiter) await(ctx context.Context, k *key) (release func(), err error) {
	w := make(chan struct{}, 1)
	if k.waiters = append(k.waiters, w); len(k.waiters) == 1 {
		k.waiting = l.clock().mono
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
			return nil, ErrClosed
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case k.waiters[0] == w && l.ready(k, now):
			return l.begin(k, now), nil
		}
	}
}

// run writes the record of a key when that is due, until this process has nothing of the key and nobody waits.
func (l *Limiter) run(k *key) {
	for l.ctx.Err() == nil {
		l.mu.Lock()
		now := l.clock()
		write, look := l.due(k, now)
		if look == never {
			delete(l.keys, k.text)
			delete(l.inBucket, k.bucketKey)
			k.end(nil)
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

// due reports whether the record has to be written now, or else when to look again.
func (l *Limiter) due(k *key, now moment) (write bool, look time.Duration) {
	c, mine := &l.cfg, k.rec.of(l.id)
	waits := len(k.waiters) > 0 && !l.closing && !l.ready(k, now)
	p := l.plan(k, now)
	idle, pace := p.mine == holder{}, c.pace(p.holders)
	if l.closing {
		pace = 0
	}
	at := never // after the last write
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
	if at != never {
		look = max(at-(now.mono-k.wrote), k.retry-now.mono)
	} else if len(k.waiters) == 0 && k.running == 0 {
		return false, never
	} else {
		look = c.TTL
	}
	if !k.known && (waits || at != never) {
		look = k.retry - now.mono
	}
	if look <= 0 {
		return true, 0
	}
	if waits {
		look = min(look, max(time.Millisecond, k.rec.later(now.mono-k.read, l.id, c).next(l.id, c)))
	}
	return false, look
}

// plan is a record to be written, with this process's part of it.
type plan struct {
	record
	mine    holder
	holders int // with this one
}

// plan returns the record that this process wants. Each of the other processes that has waited longer gets one of what is free.
func (l *Limiter) plan(k *key, now moment) (p plan) {
	c, waiters, waited := &l.cfg, len(k.waiters), now.mono-k.waiting
	if waiters == 0 || l.closing {
		waiters, waited = 0, 0
	}
	p.record = k.rec.later(now.mono-k.read, l.id, c)
	p.Holders = slices.DeleteFunc(p.Holders, func(h holder) bool { return h.ID == l.id })
	p.holders = len(p.Holders) + 1
	if k.used > 0 {
		p.Used = append(p.Used, slice{N: k.used, Age: max(0, now.mono-k.last)})
	}
	begins, slots := c.Rate, c.Concurrent
	for _, s := range p.Used {
		begins -= s.N
	}
	for _, h := range p.Holders {
		begins, slots = begins-h.Open, slots-h.Run
		switch {
		case h.Wait <= waited:
		case h.Lacks == lacksBegin:
			begins--
		case h.Lacks == lacksRun:
			slots--
		}
	}
	p.merge(c.Window / mergesPerWindow)
	mine := holder{ID: l.id}
	ready := waiters // callers that a slot is left for
	if c.Concurrent > 0 {
		want := k.running + waiters
		if !k.contended && !l.closing {
			want = max(want, k.peak)
		}
		mine.Run = max(k.running, min(want, slots))
		ready = min(waiters, mine.Run-k.running)
	}
	if c.Rate > 0 && !l.closing && (ready > 0 || k.used > 0) {
		want := c.share(p.holders)
		if p.holders == 1 {
			want = max(want, ready)
		}
		mine.Open = max(0, min(want, begins))
	}
	switch {
	case waiters > 0 && ready == 0:
		mine.Lacks = lacksRun
	case waiters > 0 && c.Rate > 0 && mine.Open == 0:
		mine.Lacks = lacksBegin
	}
	if mine.Lacks != "" {
		mine.Wait = waited
	}
	if mine.Open > 0 || mine.Run > 0 || mine.Lacks != "" {
		p.mine, p.Holders = mine, append(p.Holders, mine)
	}
	return p
}

// write writes the record, if no other process has done so since this one knew it.
func (l *Limiter) write(k *key) {
	ctx, cancel := context.WithTimeout(l.ctx, min(requestTime, l.cfg.TTL/renewals))
	defer cancel()
	if !k.isKnown(l) {
		if err := l.read(ctx, k); err != nil {
			l.failed(k, err)
		}
		return // it may have to be written no more
	}
	l.mu.Lock()
	sent, used, revision := l.clock(), k.used, k.revision
	p := l.plan(k, sent)
	more := p.mine.Open - min(k.hand, p.mine.Open)
	k.hand, k.slots = min(k.hand, p.mine.Open), min(k.slots, p.mine.Run)
	k.held = k.held && p.mine.ID != ""
	l.mu.Unlock()

	value, _ := json.Marshal(p.record) // it has no value that JSON lacks
	var err error
	if revision == 0 {
		revision, err = l.kv.Create(ctx, k.bucketKey, value)
	} else {
		revision, err = l.kv.Update(ctx, k.bucketKey, value, revision)
	}
	if err != nil {
		l.failed(k, err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	k.held, k.lease, k.wrote, k.refused = p.mine.ID != "", sent, sent.mono, 0
	k.used, k.hand, k.slots, k.peak = k.used-used, k.hand+more, p.mine.Run, k.running
	if p.mine.Lacks == "" {
		k.waiting = sent.mono
	}
	if revision > k.revision {
		l.know(k, p.record, revision, sent.mono)
	}
	k.signal()
}

func (k *key) isKnown(l *Limiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return k.known
}

// failed has a write repeated later. It may be stored or not, and the next one is based on the record as it then is.
func (l *Limiter) failed(k *key, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock().mono
	k.known = false
	if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		k.refused = min(k.refused+1, 5)
		k.retry = now + rand.N(refusedPause<<k.refused)
		return
	}
	k.retry = now + failedPause/2 + rand.N(failedPause)
	if l.warned == 0 || now-l.warned >= l.cfg.TTL {
		l.warned = now
		slog.Warn("limit: the bucket cannot be used, so handlers wait", "bucket", l.kv.Bucket(), "key", k.bucketKey, "error", err)
	}
}

// read reads the record of a key. A replica that is behind may answer, so an older one than the last is an error.
func (l *Limiter) read(ctx context.Context, k *key) error {
	entry, err := l.kv.Get(ctx, k.bucketKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.know(k, record{}, 0, l.clock().mono)
		return nil
	}
	if err != nil {
		return err
	}
	if !l.seen(entry) {
		return errors.New("limit: a replica of the bucket is behind")
	}
	return nil
}

// seen takes note of a record, and reports whether the newest one is known now.
func (l *Limiter) seen(entry jetstream.KeyValueEntry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.inBucket[entry.Key()]
	if k == nil || entry.Revision() < k.revision || entry.Revision() == k.revision && k.known {
		return k != nil && k.known // by the watcher, which can be ahead of a read
	}
	r, err := decode(entry.Value())
	if err != nil {
		slog.Warn("limit: the record of a key cannot be read, so its handlers wait for TTL and Window", "key", k.bucketKey, "error", err)
		r = record{Holders: []holder{l.cfg.unknown()}}
	}
	l.know(k, r, entry.Revision(), l.clock().mono)
	return true
}

// know takes note of a record that is newer than the last one.
func (l *Limiter) know(k *key, r record, revision uint64, at time.Duration) {
	if now := l.clock(); k.held && r.of(l.id).ID == "" {
		if l.valid(k, now) { // Nobody removes this process so early.
			slog.Warn("limit: another hand has changed or deleted the record of a key, so its handlers wait for TTL and Window", "key", k.bucketKey)
			r.Holders = append(r.Holders, l.cfg.unknown())
		} else {
			k.used = 0 // The process that removed this one has counted them.
		}
		k.held, k.hand, k.slots = false, 0, k.running
	}
	k.known, k.rec, k.revision, k.read = true, r, revision, at
	k.contended = slices.ContainsFunc(r.Holders, func(h holder) bool { return h.ID != l.id && h.Lacks == lacksRun })
	k.notify()
}
