package feed

import (
	"context"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
	"github.com/jetpull/jetpull/internal/due"
)

// rememberMost bounds the times that are kept of items which wait; beyond, the poll finds them.
const rememberMost = 10000

// timers are when what is next.
type timers struct {
	scan     time.Time // for partitions to lease
	interval time.Duration
	renew    time.Time
	fetch    time.Time        // not before, after an error
	sweep    time.Time        // for items of partitions that are held
	due      due.Heap[string] // partitions with an item that may be processed then
	// cancel is when handlers are called off, abandon when Run returns without them.
	cancel, abandon time.Time
}

func (t *timers) remember(at time.Time, partition string) {
	if t.due.Len() < rememberMost {
		t.due.Add(at.Add(time.Millisecond), partition)
	}
}

// soon makes the next scan come at once.
func (t *timers) soon() {
	t.scan, t.interval = time.Time{}, 0
}

// next is how long nothing is due by time.
func (t *timers) next(now time.Time, stopping bool) time.Duration {
	at := t.renew
	earliest := func(other time.Time) {
		if other.After(now) && (other.Before(at) || !at.After(now)) {
			at = other
		}
	}
	if stopping {
		earliest(t.cancel)
		earliest(t.abandon)
	} else {
		earliest(t.scan)
		earliest(t.sweep)
		earliest(t.fetch)
		if at, ok := t.due.Next(); ok {
			earliest(at)
		}
	}
	return max(at.Sub(now), time.Millisecond)
}

// dueItems wakes the partitions whose items' times have come.
func (e *engine) dueItems(now time.Time) {
	for {
		partition, ok := e.timers.due.Pop(now)
		if !ok {
			return
		}
		if h := e.held[partition]; h != nil {
			h.redo = true
			e.consider(h)
		} else {
			e.timers.soon()
		}
	}
}

// sweep looks again at partitions of which all that is known is being processed: another program may have added to
// them, and no wake-up is sure to come.
func (e *engine) sweep(now time.Time) {
	if now.Before(e.timers.sweep) {
		return
	}
	e.timers.sweep = now.Add(e.jitter(e.pollMax))
	for _, h := range e.held {
		if h.ended {
			h.redo = true
			e.consider(h)
		}
	}
}

// scan leases partitions that have work.
func (e *engine) scan(now time.Time) {
	room := e.maxPartitions - len(e.held)
	if e.scanning || room <= 0 || now.Before(e.timers.scan) {
		return
	}
	e.scanning = true
	e.timers.interval = min(max(2*e.timers.interval, e.pollMin), e.pollMax)
	interval := e.timers.interval
	holds := make(map[string]bool, len(e.held))
	for id := range e.held {
		holds[id] = true
	}
	e.timers.scan = now.Add(e.jitter(interval))
	e.async(func(ctx context.Context) func() {
		begun := time.Now()
		leases, err := e.tables.Acquire(ctx, e.terms, room, holds)
		wait := time.Duration(-1)
		if err == nil && len(leases) == 0 && interval > 4*e.pollMin {
			wait, err = e.tables.Soonest(ctx, e.terms)
		}
		return func() { e.acquired(leases, begun, wait, err) }
	})
}

func (e *engine) acquired(leases []sqlstore.Lease, begun time.Time, wait time.Duration, err error) {
	e.scanning = false
	if e.failing("lease", err) {
		e.timers.scan = time.Now().Add(max(e.pause, e.pollMin))
		return
	}
	for _, l := range leases {
		h := &hold{Lease: l, since: begun, trusted: begun.Add(e.lease), inFlight: map[string]struct{}{}, leave: e.stopping}
		if old := e.held[h.ID]; old != nil {
			e.counts.leasesLost.Add(1)
			e.drop(old, errLost) // it had expired, and this is the next epoch of it
		}
		h.ctx, h.cancel = context.WithCancelCause(e.handlers)
		e.held[h.ID] = h
		e.counts.leases.Add(1)
		e.counts.leasesTaken.Add(1)
		e.consider(h)
	}
	if len(leases) > 0 {
		e.timers.soon()
		return
	}
	if wait >= 0 {
		if at := time.Now().Add(max(wait, e.pollMin)); at.Before(e.timers.scan) {
			e.timers.scan = at
		}
	}
	e.claimShare()
}

// claimShare asks others for partitions, one at a time, until they have no more than a fair share.
func (e *engine) claimShare() {
	room := e.maxPartitions - len(e.held)
	if !e.steal || e.claiming || e.stopping || room <= 0 {
		return
	}
	e.claiming = true
	e.async(func(ctx context.Context) func() {
		asked := 0
		var err error
		for more := true; more && err == nil && asked < room && ctx.Err() == nil; asked++ {
			if more, err = e.tables.Claim(ctx, e.terms); !more {
				break
			}
			e.counts.steals.Add(1)
		}
		return func() {
			e.claiming = false
			if !e.failing("claim", err) && asked > 0 {
				e.timers.interval = 0 // they come one by one
			}
		}
	})
}

// renewWhenDue extends all leases.
func (e *engine) renewWhenDue(now time.Time) {
	if e.renewing || now.Before(e.timers.renew) {
		return
	}
	e.timers.renew = now.Add(e.lease / 3)
	if len(e.held) == 0 {
		return
	}
	var leases []sqlstore.Lease
	var holds []*hold
	for _, h := range e.held {
		leases, holds = append(leases, h.Lease), append(holds, h)
	}
	e.renewing = true
	full := len(e.held) >= e.maxPartitions && !e.stopping
	e.async(func(ctx context.Context) func() {
		begun := time.Now()
		held, claimed, err := e.tables.Renew(ctx, e.terms, leases)
		waiting := 0
		if err == nil && full {
			waiting, err = e.tables.Waiting(ctx, e.terms, e.maxPartitions)
		}
		return func() { e.renewed(holds, held, claimed, begun, waiting, err) }
	})
}

func (e *engine) renewed(holds []*hold, held, claimed map[sqlstore.Lease]bool, begun time.Time, waiting int, err error) {
	e.renewing = false
	if e.failing("renew", err) {
		e.timers.renew = time.Now().Add(min(e.pause, e.lease/10))
		return
	}
	for _, h := range holds {
		switch {
		case h.gone:
		case !held[h.Lease] && h.settling: // it is on its way back
		case !held[h.Lease]:
			e.lost(h)
		default:
			h.trusted = begun.Add(e.lease)
			// Another watcher asked for it, or others wait and this one had its turn.
			if claimed[h.Lease] {
				e.letGo(h)
			} else if waiting > 0 && begun.Sub(h.since) > e.lease {
				waiting--
				e.letGo(h)
			}
		}
	}
}
