package limit

import (
	"slices"
	"time"

	"github.com/jetpull/jetpull/internal/lease"
)

// plan is a record to be written, and this process's part of it.
type plan struct {
	record
	revision uint64 // of the record that it replaces; 0: there is none
	mine     holder
	holders  int          // including this process
	at       lease.Moment // when the record was planned
	used     int          // begins that the record reports
	more     int          // begins of mine that this process does not have yet
}

// plan returns the record that this process wants. It leaves one free begin or slot for each other process that has waited longer.
func (l *Limiter) plan(k *state, now lease.Moment) plan {
	c, p, waiters, waited := &l.cfg, plan{at: now, used: k.used, revision: k.revision}, len(k.waiters), now.Mono-k.waiting
	if waiters == 0 || l.closing() {
		waiters, waited = 0, 0
	}
	p.record = k.rec.later(now.Mono-k.read, l.id, c)
	p.Holders = slices.DeleteFunc(p.Holders, func(h holder) bool { return h.ID == l.id })
	p.holders = len(p.Holders) + 1
	if k.used > 0 {
		p.Used = append(p.Used, slice{N: k.used, Age: max(0, now.Mono-k.last)})
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
	ready := waiters // callers for which there is a slot
	if c.Concurrent > 0 {
		want := k.running + waiters
		if !k.contended && !l.closing() {
			want = max(want, k.peak)
		}
		mine.Run = max(k.running, min(want, slots))
		ready = min(waiters, mine.Run-k.running)
	}
	if c.Rate > 0 && !l.closing() && (ready > 0 || k.used > 0) {
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
	p.more = max(0, mine.Open-k.hand)
	return p
}

// due returns the time until the planned record is to be written, or until this process must plan again. It returns never if this process has nothing
// of the key, and nobody waits.
func (l *Limiter) due(k *state, p *plan) time.Duration {
	c, now, mine := &l.cfg, p.at.Mono, k.rec.of(l.id)
	waits := len(k.waiters) > 0 && !l.closing() && !l.ready(k, now)
	gains, idle, pace := waits && p.mine.Lacks == "", p.mine == holder{}, c.pace(p.holders)
	if l.closing() {
		pace = 0
	}
	at := never // time from the last write to the next
	for _, reason := range []struct {
		is    bool
		after time.Duration
	}{
		{k.used > 0 || k.hand > 0 || k.slots > k.running || mine.ID != "" && idle, pace}, // it reports begins, or returns unused rights
		{!idle && (mine.ID != "" || k.running > 0), c.TTL / renewals},
		{gains && (c.Rate == 0 || c.share(p.holders) == 1), 0}, // at least one handler begins for each write
		{gains || waits && p.mine.Lacks != mine.Lacks, c.base()},
		{k.contended && k.slots > k.running || k.running > 0 && mine.ID == "", c.base()},
	} {
		if reason.is {
			at = min(at, reason.after)
		}
	}
	switch {
	case at == never && len(k.waiters) == 0 && k.running == 0:
		return never
	case !k.known && (waits || at != never):
		at = 0
	}
	look := min(c.TTL, max(at-(now-k.wrote), k.retry-now))
	if look > 0 && waits {
		look = min(look, max(time.Millisecond, k.rec.later(now-k.read, l.id, c).next(l.id, c)))
	}
	return look
}
