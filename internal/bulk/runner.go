package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jetpull/jetpull/internal/stored"
	"github.com/jetpull/jetpull/internal/watch"
)

const (
	// parallel is the maximum number of items of an operation that are processed at a time.
	parallel = 256
	// tries limits the writes after conflicts, with triesPause between them, because memory may be a moment behind the bucket.
	tries      = 20
	triesPause = 5 * time.Millisecond
	// saveEvery is how often a running operation is saved and others are checked, unless Config.Lost is short.
	saveEvery = time.Second
)

// Item applies the operation to one item. It returns false if the item no longer has to be done. If it returns [stored.ErrUnavailable], the item is
// selected again. Any other error counts as a failure of the item, and the operation continues with the next one. A cancel or a stop does not end its
// context.
type Item func(ctx context.Context) (done bool, err error)

// Kind selects the items of an operation.
type Kind struct {
	// Known waits until this process knows all stored changes, and returns the last one.
	Known func(ctx context.Context) (last uint64, err error)
	// Select returns at most limit items, starting at a position, and the next position, or 0 at the end. It does not select items that were changed
	// after o.UpTo, and so no items that are already done.
	Select func(ctx context.Context, o Operation, from uint64, limit int) (items []Item, next uint64, err error)
	// Page is the number of items to select at a time.
	Page int
}

// NewKind returns a kind whose selection of items has the form S in [Operation].Spec. find returns at most limit items, as Kind.Select does. do
// applies the operation to one item, as an [Item] does.
func NewKind[S, T any](page int, known func(context.Context) (uint64, error),
	find func(ctx context.Context, o Operation, spec S, from uint64, limit int) (found []T, next uint64, err error),
	do func(ctx context.Context, o Operation, spec S, item T) (done bool, err error),
) Kind {
	return Kind{Known: known, Page: page, Select: func(ctx context.Context, o Operation, from uint64, limit int) (items []Item, next uint64, err error) {
		var spec S
		if err := json.Unmarshal(o.Spec, &spec); err != nil {
			return nil, from, fmt.Errorf("%s %s: %w", o.Kind, o.ID, err)
		}
		found, next, err := find(ctx, o, spec, from, limit)
		if err != nil {
			return nil, from, err
		}
		for _, item := range found {
			items = append(items, func(ctx context.Context) (bool, error) { return do(ctx, o, spec, item) })
		}
		return items, next, nil
	}}
}

// Config configures a Runner.
type Config struct {
	Records Records
	Kinds   map[string]Kind
	// Process identifies this process, among other and earlier processes.
	Process string
	// Shared specifies whether other processes may run operations of the same bucket.
	Shared bool
	// Lost is how long after its last save an operation of another process is taken over.
	Lost time.Duration
	// Exclusive specifies whether a group may have only one running operation.
	Exclusive bool
	// Now returns the time of the records' clock.
	Now func() time.Time
	Log *slog.Logger
}

// Runner begins, runs and cancels operations. It is safe for concurrent use.
type Runner struct {
	cfg   Config
	every time.Duration

	mu   sync.Mutex
	ctx  context.Context // of Run; nil if Run does not run
	here map[string]bool // the operations that run here
	runs sync.WaitGroup
}

// errLost reports that an operation was cancelled or deleted, or now belongs to another process.
var errLost = errors.New("the operation does not run here any more")

// New returns a runner. It runs no operations before Run.
func New(cfg Config) *Runner {
	return &Runner{cfg: cfg, every: min(saveEvery, cfg.Lost/4), here: map[string]bool{}}
}

// Count returns how many items an operation would select.
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

// Begin stores an operation and runs it. The caller sets its Kind, Group, By, Spec and Rate.
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
	// If several callers in any processes begin an operation at the same time, one of them gets the number.
	for try := range uint64(tries) {
		if o.Number, err = r.next(ctx, o.Group); err != nil {
			return o, err
		}
		if !r.cfg.Exclusive {
			o.Number += try // the place of o.Number may be that of an old operation that still runs
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

// next returns the number of a group's next operation. If the group may have only one running operation, next returns a *RunningError for it.
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

// Get returns an operation as stored.
func (r *Runner) Get(ctx context.Context, id string) (Operation, error) {
	return r.cfg.Records.Fresh(ctx, id)
}

// Cancel ends an operation and returns it. Processed items stay processed. An operation that has ended does not change.
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
