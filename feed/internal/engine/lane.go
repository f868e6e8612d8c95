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
	// sharePause is how long a watcher that works at a gate keeps a share, or waits for a greater one, before it asks again.
	sharePause = 100 * time.Millisecond
	// usePart divides a rate's window into parts. A granted begin must be used within one part, at most useMost.
	usePart = 20
	useMost = time.Second
)

// lane has the items of the gates without a limit, or of one gate with a limit. Items of different lanes do not wait for each other.
type lane struct {
	limit   sqlstore.Limit // zero: none
	toFetch []*hold        // whose items must be fetched
	queue   []*attempt     // fetched, not begun
	active  int            // begun, not saved

	share  int       // of the limit's concurrency
	begins int       // within the limit's rate
	until  time.Time // when the grant ends, by this machine's monotonic clock, early
	at     int64     // names the grant of begins
	back   int       // unused begins of the previous grant, which backAt names
	backAt int64
	use    time.Duration // how long the begins of the next grant may be used

	peak      int       // the most that was active since the last ask
	spent     int       // begun since the last ask
	satisfied bool      // the last grant met the whole ask
	next      time.Time // when to ask again
}

// lanes has the lane of the gates without a limit, followed by one for each limit.
type lanes []*lane

// newLanes returns the lanes in the order of their gates, so that all watchers lock the rows in the same order.
func newLanes(limits []sqlstore.Limit) lanes {
	list := lanes{{until: time.Now().Add(math.MaxInt64)}}
	for _, limit := range slices.SortedFunc(slices.Values(limits), func(a, b sqlstore.Limit) int { return cmp.Compare(a.Gate, b.Gate) }) {
		list = append(list, &lane{limit: limit, satisfied: true, use: useOf(&limit, 0)})
	}
	return list
}

// useOf returns how long the begins of an ask may be used if the previous ask took so long, in whole milliseconds.
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

// most returns how many items of a lane may be active. It is at least 1, so that there is an item for which to ask.
func (l *lane) most(concurrency int) int {
	if l.limit.Concurrency == 0 {
		return concurrency
	}
	return min(concurrency, max(1, l.share))
}

// allowed returns how many items of a lane may begin now.
func (l *lane) allowed(now time.Time) int {
	n := math.MaxInt
	if l.limit.Concurrency > 0 {
		n = l.share - l.active
	}
	if l.limit.Rate > 0 {
		n = min(n, l.begins)
	}
	if now.After(l.until) {
		n = 0
	}
	return max(0, n)
}

// take removes the items that begin now from the queue. It leaves items whose partition has reached PartitionConcurrency, and those that admit holds
// back. None begins on a lease that may have ended: after a stall of the process, the next renewal finds out.
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
		if a.until = a.h.trusted; l.until.Before(a.until) {
			a.until = l.until
		}
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

// needs reports whether a lane needs a grant, has part of one to return, or is still known to wait for one.
func (l *lane) needs() bool {
	return len(l.queue) > 0 || !l.satisfied || (l.limit.Concurrency > 0 && l.active+l.share > 0) || (l.limit.Rate > 0 && l.begins+l.back > 0)
}

// askForGrants asks for a grant of each limit whose grant is over, or whose items need more.
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

// ask returns what the lane needs: twice its use since the last ask, or enough for its queue if that is more. Until the answer, the lane keeps to the
// share that the ask names.
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

// granted handles the answer to an ask that was made at begun.
func (l *lane) granted(a *sqlstore.Ask, g sqlstore.Grant, begun, now time.Time, lease time.Duration) {
	l.backAt, l.back = l.at, max(0, l.begins)
	l.share, l.begins, l.at = g.Share, g.Begins, g.At
	l.until = begun.Add(lease)
	if l.limit.Rate > 0 {
		l.until = begun.Add(min(lease, a.Use))
	}
	l.use = useOf(&l.limit, now.Sub(begun))
	l.satisfied = g.Share >= a.Demand && g.Begins >= a.Begins
	pause := sharePause
	switch {
	case a.Begins == 0 && l.spent == 0 && l.share <= l.active && l.begins+l.back == 0:
		pause = lease // the watcher only keeps its share
	case g.Begins < a.Begins: // until the window has passed on, or another watcher has returned some
		pause = l.use / 2
	case l.limit.Rate > 0:
		pause = min(pause, l.use/2)
	}
	l.next = now.Add(min(pause, lease/3))
}

// returnGrants returns all grants at the end of Run, when no handler runs.
func (e *Engine) returnGrants() {
	var asks []sqlstore.Ask
	for _, l := range e.lanes[1:] {
		if l.next.IsZero() {
			continue // the lane has never asked
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
	_, _ = e.tables.Grant(ctx, e.terms, asks) // if this fails, they expire
}
