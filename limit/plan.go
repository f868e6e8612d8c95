package limit

import (
	"slices"

	"github.com/jetpull/jetpull/internal/lease"
)

// plan is a record to be written, and this process's part of it.
type plan struct {
	record
	mine    holder
	holders int // including this process
}

// plan returns the record that this process wants. It leaves one free begin or slot for each other process that has waited longer.
func (l *Limiter) plan(k *key, now lease.Moment) (p plan) {
	c, waiters, waited := &l.cfg, len(k.waiters), now.Mono-k.waiting
	if waiters == 0 || l.closing {
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
