package bulk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jetpull/jetpull/internal/stored"
	"github.com/jetpull/jetpull/internal/watch"
)

const (
	// parallel is how many items of an operation are in work at a time.
	parallel = 256
	// tries bounds the writes against conflicts, with triesPause between them: memory may be a moment behind the bucket.
	tries      = 20
	triesPause = 5 * time.Millisecond
	// saveEvery is how often a running operation is saved, and how often others are looked at, unless Config.Lost is short.
	saveEvery = time.Second
)

// Item does the operation to one item. It returns false if that is no longer to be done. After [stored.ErrUnavailable] the item is
// selected again. Any other error is the item's own: it counts as failed, and the operation goes on behind it. Its context does not end
// with a cancel or a stop.
type Item func(ctx context.Context) (done bool, err error)

// Kind says which items an operation is for.
type Kind struct {
	// Known returns the last change that is stored, when this process knows all up to there.
	Known func(ctx context.Context) (last uint64, err error)
	// Select returns at most limit items from a position on, and the next position, 0 at the end. It does not select what was changed
	// after o.UpTo. So it does not select what was done.
	Select func(ctx context.Context, o Operation, from uint64, limit int) (items []Item, next uint64, err error)
	// Page is how many items are selected at a time.
	Page int
}

// Config says how operations are run.
type Config struct {
	Records Records
	Kinds   map[string]Kind
	// Process names this process, as opposed to others and to earlier ones.
	Process string
	// Shared says that other processes may run operations of the same bucket.
	Shared bool
	// Lost is after how long without a save an operation of another process is taken over.
	Lost time.Duration
	// Exclusive says that a group has at most one running operation.
	Exclusive bool
	// Now is the clock of the records.
	Now func() time.Time
	Log *slog.Logger
}

// Runner begins, runs and cancels operations. Its methods may be called by several goroutines.
type Runner struct {
	cfg   Config
	every time.Duration

	mu   sync.Mutex
	ctx  context.Context // that of Run; nil: nothing runs here
	here map[string]bool // what runs here
	runs sync.WaitGroup
}

// errLost says that an operation is another process's now, was cancelled, or was deleted.
var errLost = errors.New("the operation does not run here any more")

// New makes a runner, which does nothing by itself until Run.
func New(cfg Config) *Runner {
	return &Runner{cfg: cfg, every: min(saveEvery, cfg.Lost/4), here: map[string]bool{}}
}

// Count returns how many items an operation would be for.
func (r *Runner) Count(ctx context.Context, o Operation) (int, error) {
	o, err := r.match(ctx, o)
	return o.Matched, err
}

func (r *Runner) match(ctx context.Context, o Operation) (_ Operation, err error) {
	kind := r.cfg.Kinds[o.Kind]
	if o.UpTo, err = kind.Known(ctx); err != nil {
		return o, err
	}
	for from := uint64(1); from > 0; {
		if ctx.Err() != nil {
			return o, context.Cause(ctx)
		}
		var items []Item
		if items, from, err = kind.Select(ctx, o, from, kind.Page); err != nil {
			return o, err
		}
		o.Matched += len(items)
	}
	return o, nil
}

// Begin stores an operation and runs it. Its Kind, Group, By, Spec and Rate are the caller's.
func (r *Runner) Begin(ctx context.Context, o Operation) (Operation, error) {
	if _, err := r.next(ctx, o.Group); err != nil {
		return o, err
	}
	o, err := r.match(ctx, o)
	if err != nil {
		return o, err
	}
	o.State, o.Next, o.Owner, o.CreatedAt = Running, 1, r.cfg.Process, r.cfg.Now()
	o.ChangedAt = o.CreatedAt
	// Of those that begin one at the same time in any process, one makes the number its own.
	for try := range uint64(tries) {
		if o.Number, err = r.next(ctx, o.Group); err != nil {
			return o, err
		}
		if !r.cfg.Exclusive {
			o.Number += try // its place may be that of an old one that still runs
		}
		o.ID = ID(o.Group, o.Number)
		saved, err := r.cfg.Records.Put(ctx, o)
		if !errors.Is(err, stored.ErrConflict) {
			if err == nil {
				r.start(saved)
			}
			return saved, err
		}
		if _, err = r.cfg.Records.Fresh(ctx, o.ID); err != nil && !errors.Is(err, stored.ErrNotFound) {
			return o, err
		}
		if err := watch.Sleep(ctx, triesPause); err != nil {
			return o, err
		}
	}
	return o, fmt.Errorf("%w: %d operations in a row", stored.ErrConflict, tries)
}

// next returns the number of a group's next operation. If the group may have only one that runs, that is its last.
func (r *Runner) next(ctx context.Context, group string) (uint64, error) {
	var last Operation
	for _, o := range r.cfg.Records.In(group) {
		if o.Number > last.Number {
			last = o
		}
	}
	if r.cfg.Exclusive && last.State == Running {
		now, err := r.cfg.Records.Fresh(ctx, last.ID)
		switch {
		case err == nil && now.State == Running:
			return 0, &RunningError{ID: now.ID}
		case err != nil && !errors.Is(err, stored.ErrNotFound):
			return 0, err
		}
	}
	return last.Number + 1, nil
}

// Get returns an operation as it is stored.
func (r *Runner) Get(ctx context.Context, id string) (Operation, error) {
	return r.cfg.Records.Fresh(ctx, id)
}

// Cancel ends an operation, and returns it. Items that were done stay done, and an operation that has ended stays as it is.
func (r *Runner) Cancel(ctx context.Context, id string) (Operation, error) {
	for range tries {
		o, err := r.Get(ctx, id)
		if err != nil || o.State != Running {
			return o, err
		}
		o.State, o.ChangedAt = Cancelled, r.cfg.Now()
		if o, err = r.cfg.Records.Put(ctx, o); !errors.Is(err, stored.ErrConflict) {
			return o, err
		}
		if err := watch.Sleep(ctx, triesPause); err != nil {
			return o, err
		}
	}
	return Operation{}, fmt.Errorf("%w: operation %s changed %d times in a row", stored.ErrConflict, id, tries)
}
