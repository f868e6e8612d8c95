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

	"github.com/jetpull/jetpull/internal/lease"
)

const (
	refusedPause = 2 * time.Millisecond // base of the random pause after a compare-and-swap conflict; doubles with each conflict in a row
	failedPause  = 100 * time.Millisecond
	requestTime  = 2 * time.Second
)

// run writes the record of a key whenever a write is due, until this process has nothing of the key and nobody waits.
func (l *Limiter) run(k *state) {
	for l.ctx.Err() == nil {
		l.mu.Lock()
		now := l.clock()
		p, known := l.plan(k, now), k.known
		look := l.due(k, &p)
		switch {
		case look == never:
			delete(l.keys, k.bucketKey)
		case look <= 0 && known:
			k.giveUp(&p)
		}
		l.mu.Unlock()
		var err error
		switch {
		case look == never:
			return
		case look > 0:
			select {
			case <-k.woken:
			case <-time.After(look):
			case <-l.ctx.Done():
			}
		case known:
			err = l.write(k, &p)
		default: // with the new record, a write may be unnecessary
			err = l.read(k)
		}
		if err != nil {
			l.failed(k, err)
		}
	}
}

// giveUp ends the use of rights that a planned record no longer has.
func (k *state) giveUp(p *plan) {
	k.hand, k.slots = min(k.hand, p.mine.Open), min(k.slots, p.mine.Run)
	if p.mine.ID == "" && k.lease != nil {
		k.lease.End(nil)
		k.lease = nil
	}
}

func (l *Limiter) request() (context.Context, context.CancelFunc) {
	return context.WithTimeout(l.ctx, min(requestTime, l.cfg.TTL/renewals))
}

// write stores a planned record by compare-and-swap.
func (l *Limiter) write(k *state, p *plan) error {
	ctx, cancel := l.request()
	defer cancel()
	value, _ := json.Marshal(p.record) // all its values have a form in JSON
	var revision uint64
	var err error
	if p.revision == 0 {
		revision, err = l.kv.Create(ctx, k.bucketKey, value)
	} else {
		revision, err = l.kv.Update(ctx, k.bucketKey, value, p.revision)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.mine.ID != "" {
		if k.lease == nil || k.lease.Err() != nil {
			k.lease = lease.New(context.Background(), l.clock, l.cfg.TTL, ErrLost)
		}
		k.lease.Extend(p.at)
	}
	k.wrote, k.refused = p.at.Mono, 0
	k.used, k.hand, k.slots, k.peak = k.used-p.used, k.hand+p.more, p.mine.Run, k.running
	if p.mine.Lacks == "" {
		k.waiting = p.at.Mono
	}
	if revision > k.revision {
		l.know(k, p.record, revision, p.at.Mono)
	}
	k.signal()
	return nil
}

// failed schedules another attempt. The failed write may have been stored, so the record is read before the next one.
func (l *Limiter) failed(k *state, err error) {
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
func (l *Limiter) read(k *state) error {
	ctx, cancel := l.request()
	defer cancel()
	entry, err := l.kv.Get(ctx, k.bucketKey)
	none := errors.Is(err, jetstream.ErrKeyNotFound)
	if err != nil && !none {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, revision, now := record{}, uint64(0), l.clock().Mono
	if !none {
		r, revision = l.decode(entry), entry.Revision()
	}
	switch {
	case revision < k.revision && k.known: // the watcher was ahead
		return nil
	case revision < k.revision && now-k.read < l.cfg.TTL:
		return errors.New("limit: a replica of the bucket is behind")
	}
	l.know(k, r, revision, now)
	return nil
}

// seen processes a record from the watcher.
func (l *Limiter) seen(entry jetstream.KeyValueEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.keys[entry.Key()]; k != nil && entry.Revision() > k.revision {
		l.know(k, l.decode(entry), entry.Revision(), l.clock().Mono)
	}
}

func (l *Limiter) decode(entry jetstream.KeyValueEntry) record {
	r, err := decode(entry.Value())
	if err != nil {
		slog.Warn("limit: the record of a key cannot be read, so its handlers wait for TTL and Window", "key", entry.Key(), "error", err)
		return record{Holders: []holder{l.cfg.unknown()}}
	}
	return r
}

// know makes r the known record. If it is older than the last one, the bucket was created again, or has forgotten writes.
func (l *Limiter) know(k *state, r record, revision uint64, at time.Duration) {
	removed := k.lease != nil && r.of(l.id).ID == ""
	switch {
	case revision < k.revision, removed && k.valid(): // No process removes this one while its lease is valid.
		slog.Warn("limit: another hand has changed or deleted the record of a key, so its handlers wait for TTL and Window", "key", k.bucketKey)
		r.Holders = append(r.Holders, l.cfg.unknown())
	case removed:
		k.used = 0 // The process that removed this one has counted these begins.
	}
	if removed {
		k.lease.End(ErrLost)
		k.lease, k.hand, k.slots = nil, 0, k.running
	}
	k.known, k.rec, k.revision, k.read = true, r, revision, at
	k.contended = slices.ContainsFunc(r.Holders, func(h holder) bool { return h.ID != l.id && h.Lacks == lacksRun })
	wake(k.woken)
}
