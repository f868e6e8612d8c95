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
	refusedPause = 2 * time.Millisecond // base of the random pause after a compare-and-swap conflict; doubles with each conflict in a row
	failedPause  = 100 * time.Millisecond
	requestTime  = 2 * time.Second
)

// write stores the planned record by compare-and-swap. If the newest record is not known, write reads it instead.
func (l *Limiter) write(k *key) {
	ctx, cancel := context.WithTimeout(l.ctx, min(requestTime, l.cfg.TTL/renewals))
	defer cancel()
	if !k.isKnown(l) {
		if err := l.read(ctx, k); err != nil {
			l.failed(k, err)
		}
		return // with the new record, a write may be unnecessary
	}
	l.mu.Lock()
	sent, used, revision := l.clock(), k.used, k.revision
	p := l.plan(k, sent)
	more := p.mine.Open - min(k.hand, p.mine.Open)
	k.hand, k.slots = min(k.hand, p.mine.Open), min(k.slots, p.mine.Run)
	k.held = k.held && p.mine.ID != ""
	l.mu.Unlock()

	value, _ := json.Marshal(p.record) // all its values have a form in JSON
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
	k.held, k.wrote, k.refused = p.mine.ID != "", sent.Mono, 0
	if k.lease.Err() != nil {
		k.lease = l.newLease()
	}
	k.lease.Extend(sent)
	k.used, k.hand, k.slots, k.peak = k.used-used, k.hand+more, p.mine.Run, k.running
	if p.mine.Lacks == "" {
		k.waiting = sent.Mono
	}
	if revision > k.revision {
		l.know(k, p.record, revision, sent.Mono)
	}
	k.signal()
}

func (k *key) isKnown(l *Limiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return k.known
}

// failed schedules another attempt. The failed write may have been stored, so the record is read before the next one.
func (l *Limiter) failed(k *key, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock().Mono
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

// read reads the record of a key. A replica that is behind may answer, so a record older than the last known one is an error.
func (l *Limiter) read(ctx context.Context, k *key) error {
	entry, err := l.kv.Get(ctx, k.bucketKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.know(k, record{}, 0, l.clock().Mono)
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

// seen processes a record from a read or the watcher, and reports whether the newest record is known now.
func (l *Limiter) seen(entry jetstream.KeyValueEntry) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.keys[entry.Key()]
	if k == nil || entry.Revision() < k.revision || entry.Revision() == k.revision && k.known {
		return k != nil && k.known // from the watcher, which can be ahead of a read
	}
	r, err := decode(entry.Value())
	if err != nil {
		slog.Warn("limit: the record of a key cannot be read, so its handlers wait for TTL and Window", "key", k.bucketKey, "error", err)
		r = record{Holders: []holder{l.cfg.unknown()}}
	}
	l.know(k, r, entry.Revision(), l.clock().Mono)
	return true
}

// know makes r the known record.
func (l *Limiter) know(k *key, r record, revision uint64, at time.Duration) {
	if k.held && r.of(l.id).ID == "" {
		if k.valid() { // No process removes this one while its lease is valid.
			slog.Warn("limit: another hand has changed or deleted the record of a key, so its handlers wait for TTL and Window", "key", k.bucketKey)
			r.Holders = append(r.Holders, l.cfg.unknown())
		} else {
			k.used = 0 // The process that removed this one has counted these begins.
		}
		k.held, k.hand, k.slots = false, 0, k.running
		k.lease.End(ErrLost)
	}
	k.known, k.rec, k.revision, k.read = true, r, revision, at
	k.contended = slices.ContainsFunc(r.Holders, func(h holder) bool { return h.ID != l.id && h.Lacks == lacksRun })
	k.notify()
}
