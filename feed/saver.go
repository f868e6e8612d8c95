package feed

import (
	"context"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// saveRows is how many results one statement saves, at most.
const saveRows = 2000

// saver writes what handlers returned: what has come while one statement ran is the next one's.
func (e *engine) saver() {
	for {
		var batch []attempt
		select {
		case a := <-e.results:
			batch = append(batch, a)
		case <-e.done:
			return
		}
	gather:
		for len(batch) < saveRows {
			select {
			case a := <-e.results:
				batch = append(batch, a)
			default:
				break gather
			}
		}
		saved := e.save(e.db, batch)
		e.post(func() { e.saved(batch, saved) })
	}
}

// save writes a batch, again until the database takes it or the watcher ends. A write that succeeded unseen, because
// the connection broke in COMMIT, matches no row the second time.
func (e *engine) save(ctx context.Context, batch []attempt) []bool {
	results := make([]sqlstore.Result, 0, len(batch))
	index := make([]int, 0, len(batch))
	for i, a := range batch {
		if !a.abandoned {
			results, index = append(results, a.result), append(index, i)
		}
	}
	saved := make([]bool, len(batch))
	if len(results) == 0 {
		return saved
	}
	for pause := errorPause; ; pause = min(2*pause, maxPause) {
		wrote, err := e.tables.Save(ctx, e.terms, results)
		if err == nil {
			for i, ok := range wrote {
				saved[index[i]] = ok
				e.counts.saved(&results[i], ok)
				if !ok {
					e.onError(batch[index[i]].item, ErrConflict)
				}
			}
			return saved
		}
		if ctx.Err() != nil {
			return saved
		}
		e.post(func() { e.failing("save", err) })
		e.sleep(ctx, pause)
	}
}

func (e *engine) saved(batch []attempt, saved []bool) {
	e.active -= len(batch)
	e.counts.running.Add(-int64(len(batch)))
	for i := range batch {
		a := &batch[i]
		r := &a.result
		delete(a.h.inFlight, a.item.ID)
		if a.h.fetching && !a.abandoned {
			if a.h.savedMeanwhile == nil {
				a.h.savedMeanwhile = map[string]int64{}
			}
			a.h.savedMeanwhile[a.item.ID] = a.item.Version
		}
		switch {
		case saved[i] && r.Delay > 0 && r.Status == sqlstore.Available:
			e.timers.remember(time.Now().Add(r.Delay), r.ID)
		case saved[i] && r.Status == sqlstore.Available && r.Gate == a.item.Gate:
			a.h.redo = true
		case !saved[i] && !a.abandoned:
			// The lease is lost, which the renewal tells, or another program wrote the item: then it is read again.
			a.h.redo = true
			e.timers.renew = time.Now()
		}
		e.consider(a.h)
	}
}
