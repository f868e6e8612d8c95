package engine

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

const (
	// sharePause is how long a watcher that works at a gate keeps a share before it asks again, and waits for a greater one.
	sharePause = 100 * time.Millisecond
	// usePart is the part of a rate's window in which a begin has to be used that was granted, up to useMost.
	usePart = 20
	useMost = time.Second
)

// lane is the items of the gates without a limit, or of one gate with a limit. Items of different lanes do not wait for each
// other.
type lane struct {
	limit   sqlstore.Limit // zero: none
	toFetch []*hold        // to fetch for
	queue   []*attempt     // fetched, not begun
	active  int            // begun, not saved

	concurrencyGrant
	rateGrant
	satisfied bool      // the last grant was all that was asked for
	next      time.Time // when to ask again
}

// concurrencyGrant is the share of a limit's concurrency that this watcher has.
type concurrencyGrant struct {
	share   int
	trusted time.Time // until when, by this machine's monotonic clock, early
	peak    int       // the most that was active since the last ask
}

// allowed is how many items may begin while so many are active.
func (g *concurrencyGrant) allowed(active int, now time.Time) int {
	if now.After(g.trusted) {
		return 0
	}
	return g.share - active
}

// rateGrant is how many items this watcher may begin within a limit's rate.
type rateGrant struct {
	begins int
	usable time.Time // until when, by this machine's monotonic clock, early
	at     int64     // names the grant
	spent  int       // begun since the last ask
	back   int       // not used of the grant before, which backAt names
	backAt int64
	use    time.Duration // how long the next grant may be used
}

func (g *rateGrant) allowed(now time.Time) int {
	if now.After(g.usable) {
		return 0
	}
	return g.begins
}

// lanes are the lane of the gates without a limit, and behind it one of each limit.
type lanes []*lane

// newLanes are the lanes in the order of their gates, so that two watchers lock the rows in one order.
func newLanes(limits []sqlstore.Limit) lanes {
	list := lanes{{}}
	for _, limit := range slices.SortedFunc(slices.Values(limits), func(a, b sqlstore.Limit) int { return cmp.Compare(a.Gate, b.Gate) }) {
		list = append(list, &lane{limit: limit, satisfied: true, rateGrant: rateGrant{use: useOf(&limit, 0)}})
	}
	return list
}

// useOf is how long begins may be used that are asked for after an ask that took so long, in whole milliseconds.
func useOf(l *sqlstore.Limit, took time.Duration) time.Duration {
	return max(min(l.Per/usePart, useMost), 2*took).Truncate(time.Millisecond)
}

func (list lanes) of(gate int) *lane {
	for _, l := range list[1:] {
		if l.limit.Gate == gate {
			return l
		}
	}
	return list[0]
}

// most is how many items of a lane may be active, but at least 1, so that there is an item to ask for.
func (l *lane) most(concurrency int) int {
	if l.limit.Concurrency == 0 {
		return concurrency
	}
	return min(concurrency, max(1, l.share))
}

// allowed is how many items of a lane may begin now.
func (l *lane) allowed(now time.Time) int {
	n := math.MaxInt
	if l.limit.Concurrency > 0 {
		n = l.concurrencyGrant.allowed(l.active, now)
	}
	if l.limit.Rate > 0 {
		n = min(n, l.rateGrant.allowed(now))
	}
	return max(0, n)
}

// take takes the items that begin now out of the queue, and leaves those in it whose partition has enough that run, and those that admit holds
// back. None begins on a lease that may have ended: after a stall of the process the next renewal finds out.
func (l *lane) take(e *Engine, now time.Time, most int) (started []*attempt) {
	most, passed := min(most, l.allowed(now)), 0
	var left []*attempt
	for _, a := range l.queue {
		if len(started) == most || now.After(a.h.trusted) {
			break
		}
		passed++
		if a.h.running >= e.PartitionConcurrency || !admit(e, a) {
			left = append(left, a)
			continue
		}
		a.until = l.until(a.h)
		a.h.running++
		started = append(started, a)
	}
	rest := l.queue[passed-len(left):]
	copy(rest, left)
	clear(l.queue[:passed-len(left)])
	l.queue = rest
	l.active += len(started)
	l.peak = max(l.peak, l.active)
	l.spent += len(started)
	l.begins -= len(started)
	return started
}

// until is the time up to which an item of a partition may begin that was taken out of the queue.
func (l *lane) until(h *hold) time.Time {
	at := h.trusted
	if l.limit.Concurrency > 0 && l.trusted.Before(at) {
		at = l.trusted
	}
	if l.limit.Rate > 0 && l.usable.Before(at) {
		at = l.usable
	}
	return at
}

// needs reports whether a lane needs a grant, has part of one to return, or is still known to wait for one.
func (l *lane) needs() bool {
	return len(l.queue) > 0 || !l.satisfied || (l.limit.Concurrency > 0 && l.active+l.share > 0) || (l.limit.Rate > 0 && l.begins+l.back > 0)
}

// askForGrants asks for grants of limits, where one is over or its items want more than it has.
func (e *Engine) askForGrants(now time.Time) {
	if e.asking > 0 {
		return
	}
	e.timers.ask = time.Time{}
	var lanes []*lane
	var asks []sqlstore.Ask
	for _, l := range e.lanes[1:] {
		if !l.needs() {
			continue
		}
		blocked := l.satisfied && len(l.queue) > 0 && l.allowed(now) == 0 && e.active < e.Concurrency
		if blocked || !now.Before(l.next) {
			lanes, asks = append(lanes, l), append(asks, l.ask(e.Concurrency))
		} else if e.timers.ask.IsZero() || l.next.Before(e.timers.ask) {
			e.timers.ask = l.next
		}
	}
	if len(lanes) == 0 {
		return
	}
	e.async(&e.asking, func(ctx context.Context) func() {
		begun := time.Now()
		grants, err := e.tables.Grant(ctx, e.terms, asks)
		return func() {
			now := time.Now()
			failed := e.failing("limit", err)
			for i, l := range lanes {
				if failed {
					l.next, l.satisfied = now.Add(e.pause), false
				} else {
					l.granted(&asks[i], grants[i], begun, now, e.Lease)
				}
			}
		}
	})
}

// ask is what the lane needs: as much again as it has used since the last ask, and what is in its queue. Until there is an
// answer it keeps to the share that it names.
func (l *lane) ask(concurrency int) sqlstore.Ask {
	waiting := min(len(l.queue), concurrency)
	a := sqlstore.Ask{Limit: l.limit, Begins: waiting, Use: l.use, BackAt: l.backAt, Back: l.back}
	used := 0
	if l.spent > 0 {
		used = 2 * l.peak
		if l.satisfied {
			a.Begins = max(waiting, 2*l.spent)
		}
	}
	if l.limit.Concurrency > 0 {
		a.Demand = min(concurrency, max(l.active+waiting, used))
		l.share = min(l.share, a.Demand)
		a.Keep = max(l.active, l.share)
	}
	l.peak, l.spent, l.back = l.active, 0, 0
	return a
}

// granted is the answer to an ask that was made at begun.
func (l *lane) granted(a *sqlstore.Ask, g sqlstore.Grant, begun, now time.Time, lease time.Duration) {
	l.backAt, l.back = l.at, max(0, l.begins)
	l.share, l.begins, l.at = g.Share, g.Begins, g.At
	l.trusted, l.usable = begun.Add(lease), begun.Add(a.Use)
	l.use = useOf(&l.limit, now.Sub(begun))
	l.satisfied = g.Share >= a.Demand && g.Begins >= a.Begins
	pause := sharePause
	switch {
	case a.Begins == 0 && l.spent == 0 && l.share <= l.active && l.begins+l.back == 0:
		pause = lease // nothing but to keep the share
	case g.Begins < a.Begins: // until the window has passed on, or another watcher has returned some
		pause = l.use / 2
	case l.limit.Rate > 0:
		pause = min(pause, l.use/2)
	}
	l.next = now.Add(min(pause, lease/3))
}

// returnGrants gives all back at the end of Run, when no handler runs.
func (e *Engine) returnGrants() {
	var asks []sqlstore.Ask
	for _, l := range e.lanes[1:] {
		if l.next.IsZero() {
			continue // it has never asked
		}
		for at, n := range map[int64]int{l.backAt: l.back, l.at: l.begins} {
			asks = append(asks, sqlstore.Ask{Limit: l.limit, BackAt: at, Back: max(0, n), Leave: true})
		}
	}
	if len(asks) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(e.db, handBack)
	defer cancel()
	_, _ = e.tables.Grant(ctx, e.terms, asks) // if it fails they end by time
}
