package feed

import (
	"context"
	"errors"
	"fmt"
)

// Watcher leases partitions and has their items processed. Several may run on the same tables, in one process or
// many; each Run is an owner of its own.
type Watcher struct {
	tables    tables
	processor Processor
	config    *config
	counts    tally
}

// NewWatcher makes a watcher. What is wrong with it is returned by [Watcher.Run].
func NewWatcher(s *Store, p Processor, opts ...WatcherOption) *Watcher {
	w := &Watcher{processor: p, config: newConfig(opts)}
	if s != nil {
		w.tables = s.tables()
	}
	return w
}

// Run processes items until ctx ends. Then nothing more is begun, running handlers go on for [DrainTimeout], and their
// results are saved; after that their context is cancelled. It returns nil once all is saved and the leases are given
// back, and [ErrDrainTimeout] DrainTimeout and a second after the end of ctx at the latest, whatever handlers and
// database do. [ErrInvalid] names an option that cannot be used. Errors of the database do not end it: they are
// logged, and it tries again.
func (w *Watcher) Run(ctx context.Context) error {
	switch {
	case w.tables == nil:
		return invalid("Store", "is nil")
	case w.processor == nil:
		return invalid("Processor", "is nil")
	}
	if err := w.config.check(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // its end is how Run ends
	}
	e := newEngine(ctx, w)
	e.listen()
	drained := e.loop(ctx)
	e.end()
	if !drained {
		return errors.Join(fmt.Errorf("feed: %w of %v is over: handlers are still running, or leases could not be given back", ErrDrainTimeout, w.config.drainTimeout), e.lastErr)
	}
	return nil
}
