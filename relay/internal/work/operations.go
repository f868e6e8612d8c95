package work

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"
	"golang.org/x/time/rate"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// operationWorkers is how many messages of an operation are in work at a time.
	operationWorkers = 256
	// progressEvery is how often progress is written, and a cancel looked for.
	progressEvery = 200 * time.Millisecond
)

// operator redrives, skips and purges failed messages.
type operator struct{ *core }

// Begin matches failed messages and has a worker do to them what the verb says.
func (w *operator) Begin(ctx context.Context, o store.Operation) (store.Operation, error) {
	items, err := w.match(ctx, &o)
	if err != nil {
		return o, err
	}
	o.ID, o.State, o.Matched, o.Begun = nuid.Next(), store.Running, len(items), w.store.Now()
	return o, w.store.BeginOperation(ctx, o)
}

// Count counts the failed messages that an operation would be about.
func (w *operator) Count(ctx context.Context, o store.Operation) (int, error) {
	items, err := w.match(ctx, &o)
	return len(items), err
}

// match finds the messages of an operation that are on the list, the oldest first. What fails later is left alone.
func (w *operator) match(ctx context.Context, o *store.Operation) (items []store.Item, err error) {
	if o.Filter == nil {
		return w.store.FailedItems(ctx, o.Seqs)
	}
	before := uint64(0)
	if o.Upto > 0 {
		before = o.Upto + 1
	}
	if items, err = w.store.ListFailed(ctx, *o.Filter, before, 0); err != nil {
		return nil, err
	}
	if o.Upto == 0 && len(items) > 0 {
		o.Upto = items[0].Seq
	}
	return items, nil
}

// operations is the worker that does operations. One that is delivered again, after its process died, goes on with
// what is still on the list.
func (w *operator) operations() worker {
	worker := w.newWorker(w.store.StreamName(store.Operations), "operations", w.store.OperationsFilter(), false)
	worker.handle = func(ctx context.Context, m *jetpull.Msg) error {
		o, err := w.store.Operation(ctx, string(m.Data()))
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err == nil && o.State == store.Running {
			err = w.operate(ctx, o)
		}
		return w.again(err)
	}
	return worker
}

func (w *operator) operate(ctx context.Context, o store.Operation) error {
	items, err := w.match(ctx, &o)
	if err != nil {
		return err
	}
	if o.Filter != nil && o.Upto == 0 {
		items = nil // nothing matched when it began
	}
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	limit := rate.NewLimiter(rate.Inf, 1)
	if o.Rate > 0 {
		limit.SetLimit(rate.Limit(o.Rate))
	}
	var done atomic.Int64
	done.Store(int64(max(0, o.Matched-len(items))))
	var failed atomic.Pointer[error]
	work := make(chan *store.Item)
	var workers sync.WaitGroup
	for range min(operationWorkers, len(items)) {
		workers.Go(func() {
			for item := range work {
				// Not run: a cancel must not come between the steps of a redrive, which nobody would then end.
				switch err := w.operateOn(ctx, o.Verb, item); {
				case err == nil:
					done.Add(1)
				case errors.Is(err, errNotRedriven), errors.Is(err, store.ErrConflict):
				default:
					failed.CompareAndSwap(nil, &err)
					cancel()
				}
			}
		})
	}
	feeding, stop := context.WithCancel(run)
	defer stop()
	defer context.AfterFunc(stopped(ctx), stop)()
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		defer close(work)
		for i := range items {
			if limit.Wait(feeding) != nil {
				return
			}
			select {
			case work <- &items[i]:
			case <-feeding.Done():
				return
			}
		}
	}()
	over := make(chan struct{})
	go func() {
		<-fed
		workers.Wait()
		close(over)
	}()
	cancelled := w.watch(run, cancel, over, &o, &done)
	<-over
	switch {
	case cancelled:
		return w.progress(ctx, &o, &done) // what was in work has ended since
	case failed.Load() != nil:
		return jetpull.Retry(time.Second, *failed.Load())
	case stopped(ctx).Err() != nil || ctx.Err() != nil:
		return jetpull.Retry(0, errStopping)
	}
	o.State = store.Finished
	return w.progress(ctx, &o, &done)
}

// watch writes the progress of an operation until it is over; true: somebody cancelled it.
func (w *operator) watch(ctx context.Context, cancel func(), over <-chan struct{}, o *store.Operation, done *atomic.Int64) bool {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case <-over:
			return o.State == store.Cancelled
		case <-ticker.C:
		}
		if err := w.progress(ctx, o, done); err != nil {
			w.log.Info("progress of an operation", "operation", o.ID, "error", err)
		}
		if o.State == store.Cancelled {
			cancel()
			return true
		}
	}
}

// progress writes how far an operation is, unless it was cancelled: then o says so.
func (w *operator) progress(ctx context.Context, o *store.Operation, done *atomic.Int64) error {
	for {
		o.Done = int(done.Load())
		revision, err := w.store.PutOperation(ctx, *o)
		if err == nil {
			o.Revision = revision
			return nil
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		now, err := w.store.Operation(ctx, o.ID)
		if err != nil {
			return err
		}
		o.Revision = now.Revision
		if now.State == store.Cancelled {
			o.State = store.Cancelled
		}
	}
}

// Cancel ends an operation: what is done stays done.
func (w *operator) Cancel(ctx context.Context, id string) (store.Operation, error) {
	for {
		o, err := w.store.Operation(ctx, id)
		if err != nil || o.State != store.Running {
			return o, err
		}
		o.State = store.Cancelled
		if _, err = w.store.PutOperation(ctx, o); !errors.Is(err, store.ErrConflict) {
			return o, err
		}
	}
}

func (w *operator) operateOn(ctx context.Context, verb string, item *store.Item) error {
	switch verb {
	case store.Skip:
		return w.store.Settle(ctx, item, store.Skip, true)
	case store.Purge:
		return w.store.Settle(ctx, item, store.Purge, false)
	}
	return w.Redrive(ctx, item)
}
