package engine

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
	"github.com/jetpull/jetpull/internal/due"
	"github.com/jetpull/jetpull/internal/watch"
)

// rememberMost bounds the remembered times of delayed items. Polling finds the others.
const rememberMost = 10000

// quietLeast and quietMost bound how long wake-ups must wait for a scan; see fruitless.
const quietLeast, quietMost = 10 * time.Millisecond, 250 * time.Millisecond

// claimMost bounds the partitions that one scan requests from other watchers.
const claimMost = 64

// timers has the times of the next actions.
type timers struct {
	scan     time.Time // for partitions to lease
	interval time.Duration
	// quiet is the time until which wake-ups start no scan, after a scan that found nothing. It lasts for pause. hinted: a wake-up came meanwhile.
	quiet  time.Time
	pause  time.Duration
	hinted bool
	renew  time.Time
	fetch  time.Time        // not before, after an error
	sweep  time.Time        // for items of partitions that are held
	ask    time.Time        // for a grant
	slow   time.Time        // for handlers that run for long
	due    due.Heap[string] // partitions with an item that may be processed then
	// cancel is when handlers are cancelled, abandon when Run returns without them.
	cancel, abandon time.Time
}

func (t *timers) remember(at time.Time, partition string) {
	if t.due.Len() < rememberMost {
		t.due.Add(at.Add(time.Millisecond), partition)
	}
}

// soon makes the next scan start at once.
func (t *timers) soon() {
	t.scan, t.interval = time.Time{}, 0
}

// hint makes the next scan start at once for a wake-up, or at the time of quiet.
func (t *timers) hint(now time.Time) {
	if t.hinted = now.Before(t.quiet); !t.hinted {
		t.soon()
	} else if t.quiet.Before(t.scan) {
		t.scan = t.quiet
	}
}

// fruitless notes a scan that found nothing. If wake-ups keep coming, nearly all are for partitions that other watchers hold, so the pause gets
// longer with each such scan.
func (t *timers) fruitless(now time.Time) {
	t.hinted = t.hinted || t.scan.IsZero()
	if t.pause = min(max(2*t.pause, quietLeast), quietMost); !t.hinted {
		t.pause = quietLeast
	}
	t.quiet = now.Add(t.pause)
	if t.scan.IsZero() {
		t.scan = t.quiet
	}
	t.hinted = false
}

// next returns the time until the next timer is due. A timer in the past needs no wait: its statement runs already, or begins after an event.
func (t *timers) next(now time.Time) time.Duration {
	due, _ := t.due.Next()
	wait := slowEvery
	for _, at := range []time.Time{t.scan, t.renew, t.fetch, t.sweep, t.ask, t.slow, t.cancel, t.abandon, due} {
		if left := at.Sub(now); left > 0 {
			wait = min(wait, left)
		}
	}
	return max(wait, time.Millisecond)
}

// due wakes the partitions with items that have become due. Every PollMax, it also looks again at partitions whose known items are all in progress:
// another program may have added items, and no wake-up is certain.
func (e *Engine) due(now time.Time) {
	for partition, ok := e.timers.due.Pop(now); ok; partition, ok = e.timers.due.Pop(now) {
		e.look(partition)
	}
	if now.Before(e.timers.sweep) {
		return
	}
	e.timers.sweep = now.Add(e.Jitter(e.PollMax))
	for _, h := range e.held {
		if h.ended {
			h.redo = true
			e.consider(h)
		}
	}
}

// scan leases partitions that have work.
func (e *Engine) scan(now time.Time) {
	free := e.MaxPartitions - len(e.held)
	if e.scanning > 0 || free <= 0 || now.Before(e.timers.scan) {
		return
	}
	e.timers.interval = min(max(2*e.timers.interval, e.PollMin), e.PollMax)
	interval := e.timers.interval
	holds := slices.Collect(maps.Keys(e.held))
	e.timers.scan = now.Add(e.Jitter(interval))
	e.async(&e.scanning, func(ctx context.Context) func() {
		var err error
		wait, asked := time.Duration(-1), 0
		if interval > 4*e.PollMin || e.Steal { // before Acquire, so that nothing between the two is missed
			wait, err = e.tables.Soonest(ctx, e.terms)
		}
		begun := time.Now()
		var leases []sqlstore.Taken
		if err == nil {
			leases, err = e.tables.Acquire(ctx, e.terms, free, holds)
		}
		// If nothing is free, ask others for partitions, one at a time, until they have no more than a fair share.
		for more := e.Steal && err == nil && len(leases) == 0; more && asked < min(free, claimMost); {
			if more, err = e.tables.Claim(ctx, e.terms); more {
				asked++
			}
		}
		return func() {
			e.tally.Steals.Add(int64(asked))
			if e.failing("lease", err) {
				e.timers.scan = time.Now().Add(max(e.pause, e.PollMin))
				return
			}
			for _, l := range leases {
				e.hold(l, begun)
			}
			if len(leases) > 0 || asked > 0 {
				e.timers.quiet, e.timers.pause = time.Time{}, 0
				e.timers.soon()
				return
			}
			e.timers.fruitless(time.Now())
			if at := time.Now().Add(max(wait, min(e.PollMin, sqlstore.ClaimEvery))); wait >= 0 && at.Before(e.timers.scan) {
				e.timers.scan = at
			}
		}
	})
}

// hold begins to process a partition. The statement that leased it began at begun.
func (e *Engine) hold(l sqlstore.Taken, begun time.Time) {
	if old := e.held[l.ID]; old != nil {
		e.forget(old, errLost) // it had expired, and this is its next epoch
	}
	h := &hold{
		Taken: l, since: begun, trusted: begun.Add(e.Lease), lane: e.lanes.of(l.Gate), inFlight: map[string]struct{}{},
		leave: e.stopping,
	}
	h.ctx, h.cancel = context.WithCancelCause(e.handlers)
	e.held[h.ID] = h
	e.tally.Leases.Add(1)
	e.tally.LeasesTaken.Add(1)
	e.consider(h)
}

func (e *Engine) renew(now time.Time) {
	if e.renewing > 0 || now.Before(e.timers.renew) {
		return
	}
	e.timers.renew = now.Add(e.Lease / renewals)
	report(e, now)
	if len(e.held) == 0 {
		return
	}
	holds := slices.Collect(maps.Values(e.held))
	leases := sqlstore.Map(holds, func(h **hold) sqlstore.Lease { return (*h).Lease })
	full := len(e.held) >= e.MaxPartitions && !e.stopping
	e.async(&e.renewing, func(ctx context.Context) func() {
		begun := time.Now()
		renewed, err := e.tables.Renew(ctx, e.terms, leases)
		waiting := 0
		if err == nil && full {
			waiting, err = e.tables.Waiting(ctx, e.terms, e.MaxPartitions)
		}
		return func() {
			if e.failing("renew", err) {
				e.timers.renew = time.Now().Add(min(e.pause, e.Lease/10))
				return
			}
			for _, h := range holds {
				renewed := renewed[h.Lease]
				if renewed == sqlstore.Renewed || renewed == sqlstore.Claimed {
					h.trusted = begun.Add(e.Lease)
					h.resume(e)
				}
				switch {
				case h.phase == gone, renewed == sqlstore.NotHeld && h.phase == settling: // it is being released
				case renewed == sqlstore.NotHeld:
					e.forget(h, errLost)
				case renewed == sqlstore.Unlocked:
					h.rest(e)
					e.timers.renew = time.Now().Add(e.Lease / 10)
				case renewed == sqlstore.Claimed:
					e.relinquish(h)
				case waiting > 0 && begun.Sub(h.since) > e.Lease: // others wait, and this one has had its turn
					waiting--
					e.relinquish(h)
				}
			}
		}
	})
}

// listenAgain is the pause before the next try to listen.
const listenAgain = time.Second

// Wake reports that a partition has changed, or any if it is "". It may be called at any time, and does not block.
func (e *Engine) Wake(partition string) {
	select {
	case e.wakes <- partition:
	default:
		e.missed.Store(true)
	}
}

// woken handles a wake-up, and those that came with it.
func (e *Engine) woken(partition string) {
	e.look(partition)
	for range len(e.wakes) {
		e.look(<-e.wakes)
	}
	if e.missed.Swap(false) {
		e.look("")
	}
}

// look looks for changes in a partition, or in all if it is "". It starts another pass over a held partition, because a retried item precedes those
// that were fetched already. Otherwise it starts a scan.
func (e *Engine) look(partition string) {
	if partition == "" {
		e.timers.sweep = time.Time{}
	}
	h := e.held[partition]
	if h == nil {
		e.timers.hint(time.Now())
		return
	}
	h.redo = true
	e.consider(h)
}

// listen receives the changes of other processes from the database, and listens again when the connection breaks.
func (e *Engine) listen() {
	for {
		err := e.tables.Listen(e.db, e.Wake)
		if err == nil || e.db.Err() != nil {
			return
		}
		e.Log.Warn("feed: no wake-ups by LISTEN", "error", oneLine(err), "again", listenAgain)
		_ = watch.Sleep(e.db, e.Jitter(listenAgain)) // Listen returns when it ends
	}
}
