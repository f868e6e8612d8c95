package engine

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

const (
	// saveRows is how many results one statement saves, at most.
	saveRows = 2000
	// SaveBytes is how much data they have, but for what the last adds: databases bound a statement, too.
	SaveBytes = 16 << 20
)

// attempt is an item whose handler has returned, and what becomes of it.
type attempt struct {
	h         *hold
	item      sqlstore.Item
	result    sqlstore.Result
	abandoned bool // its outcome counts for nothing
}

// end sets the result. An error of a handler that was called off is no attempt that failed.
func (a *attempt) end(handler Handler, log *slog.Logger, s *Step) {
	if s.Err != nil && a.h.ctx.Err() != nil {
		a.abandoned = true
		return
	}
	if s.Err != nil {
		log.Warn("feed: attempt failed", "partition", a.item.PartitionID, "item", a.item.ID, "gate", a.item.Gate, "attempt", a.item.Attempt,
			"error", firstLine(s.Err))
		s.Result = handler.Failed(&a.item, s.Err)
	}
	a.result = s.Result
	a.result.Lease = a.h.Lease
}

// saver writes the results of handlers. Results that come while one statement runs are saved by the next.
type saver struct {
	tables    Tables
	terms     sqlstore.Terms
	handler   Handler
	log       *slog.Logger
	tally     *Tally
	statement time.Duration // see Engine

	ctx     context.Context // of statements
	done    <-chan struct{}
	results <-chan attempt
	// saved and failed report what was written, and an error of the database.
	saved  func(batch []attempt, saved []bool)
	failed func(err error)
}

func newSaver(e *Engine) *saver {
	return &saver{
		tables: e.tables, terms: e.terms, handler: e.handler, log: e.Log, tally: e.tally, statement: e.statement,
		ctx: e.db, done: e.done, results: e.results,
		saved:  func(batch []attempt, saved []bool) { e.post(func() { e.saved(batch, saved) }) },
		failed: func(err error) { e.post(func() { e.failing("save", err) }) },
	}
}

func (s *saver) run() {
	for {
		var batch []attempt
		select {
		case a := <-s.results:
			batch = append(batch, a)
		case <-s.done:
			return
		}
		size := len(batch[0].result.Data)
	gather:
		for len(batch) < saveRows && size < SaveBytes {
			select {
			case a := <-s.results:
				batch = append(batch, a)
				size += len(a.result.Data)
			default:
				break gather
			}
		}
		s.saved(batch, s.save(batch))
	}
}

// save writes a batch and reports what of it was written. One result that the database refuses would keep all others
// from being saved, so after that each is written by itself; a result that is refused then is a failed attempt.
func (s *saver) save(batch []attempt) []bool {
	saved := make([]bool, len(batch))
	index := make([]int, 0, len(batch))
	for i, a := range batch {
		if !a.abandoned {
			index = append(index, i)
		}
	}
	if len(index) == 0 || s.write(batch, index, saved) == nil {
		return saved
	}
	for n := range index {
		one := index[n : n+1]
		refused := s.write(batch, one, saved)
		if refused == nil {
			continue
		}
		a := &batch[one[0]]
		a.end(s.handler, s.log, &Step{Err: fmt.Errorf("the database refused the result: %w", refused)})
		if !a.abandoned && s.write(batch, one, saved) != nil {
			_ = Sleep(s.ctx, maxPause) // the item is processed again, and others go on meanwhile
		}
	}
	return saved
}

// write saves those results of a batch that index names, again until the database takes or refuses them, or the engine
// ends. Its error is that the database refused one. A write that succeeded unseen, because the connection broke in
// COMMIT, matches no row the second time.
func (s *saver) write(batch []attempt, index []int, saved []bool) error {
	results := make([]sqlstore.Result, len(index))
	for n, i := range index {
		results[n] = batch[i].result
	}
	for pause := errorPause; ; pause = min(2*pause, maxPause) {
		ctx, cancel := context.WithTimeout(s.ctx, s.statement)
		wrote, err := s.tables.Save(ctx, s.terms, results)
		cancel()
		if err == nil {
			for n, i := range index {
				saved[i] = wrote[n]
				s.tally.saved(&results[n], wrote[n])
				if !wrote[n] {
					s.handler.Conflict(&batch[i].item)
				}
			}
			return nil
		}
		if s.ctx.Err() != nil {
			return nil //nolint:nilerr // the engine ends, and nothing was refused
		}
		s.failed(err)
		if sqlstore.Refused(err) {
			return err
		}
		_ = Sleep(s.ctx, pause) // the loop looks at its end
	}
}

// saved is loop's part of a save.
func (e *Engine) saved(batch []attempt, saved []bool) {
	e.active -= len(batch)
	e.tally.Running.Add(-int64(len(batch)))
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
			// The lease is lost, which the renewal finds out, or another program wrote the item: then it is read again.
			a.h.redo = true
			e.timers.renew = time.Now()
		}
		e.consider(a.h)
	}
}
