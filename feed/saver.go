package feed

import (
	"context"
	"fmt"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

const (
	// saveRows is how many results one statement saves, at most.
	saveRows = 2000
	// saveBytes is how much data they have, but for what the last adds: databases bound a statement, too.
	saveBytes = 16 << 20
)

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
		size := len(batch[0].result.Data)
	gather:
		for len(batch) < saveRows && size < saveBytes {
			select {
			case a := <-e.results:
				batch = append(batch, a)
				size += len(a.result.Data)
			default:
				break gather
			}
		}
		saved := e.save(e.db, batch)
		e.post(func() { e.saved(batch, saved) })
	}
}

// save writes a batch and tells what of it was written. One result that the database refuses would keep all others
// from being saved, so after that each is written by itself; what is refused then is a failed attempt.
func (e *engine) save(ctx context.Context, batch []attempt) []bool {
	saved := make([]bool, len(batch))
	index := make([]int, 0, len(batch))
	for i, a := range batch {
		if !a.abandoned {
			index = append(index, i)
		}
	}
	if len(index) == 0 || e.write(ctx, batch, index, saved) == nil {
		return saved
	}
	for n := range index {
		one := index[n : n+1]
		refused := e.write(ctx, batch, one, saved)
		if refused == nil {
			continue
		}
		a := &batch[one[0]]
		*a = e.ended(a.h, a.item, Response{}, fmt.Errorf("the database refused the result: %w", refused))
		if !a.abandoned && e.write(ctx, batch, one, saved) != nil {
			e.sleep(ctx, maxPause) // the item is processed again, and others go on meanwhile
		}
	}
	return saved
}

// write saves those results of a batch that index names, again until the database takes or refuses them, or the watcher
// ends. Its error is that the database refused one. A write that succeeded unseen, because the connection broke in
// COMMIT, matches no row the second time.
func (e *engine) write(ctx context.Context, batch []attempt, index []int, saved []bool) error {
	results := make([]sqlstore.Result, len(index))
	for n, i := range index {
		results[n] = batch[i].result
	}
	for pause := errorPause; ; pause = min(2*pause, maxPause) {
		wrote, err := e.saveInTime(ctx, results)
		if err == nil {
			for n, ok := range wrote {
				i := index[n]
				saved[i] = ok
				e.counts.saved(&results[n], ok)
				if !ok {
					e.onError(batch[i].item, ErrConflict)
				}
			}
			return nil
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the watcher ends, and nothing was refused
		}
		e.post(func() { e.failing("save", err) })
		if sqlstore.Refused(err) {
			return err
		}
		e.sleep(ctx, pause)
	}
}

func (e *engine) saveInTime(ctx context.Context, results []sqlstore.Result) ([]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, e.statementTime())
	defer cancel()
	return e.tables.Save(ctx, e.terms, results)
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
