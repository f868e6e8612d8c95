package bulk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jetpull/jetpull/internal/stored"
	"github.com/jetpull/jetpull/internal/watch"
)

// Run runs the operations that this process began, and takes over operations that no process runs, until ctx ends. It returns when no operation runs
// here any more.
func (r *Runner) Run(ctx context.Context) {
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	type sighting struct {
		revision uint64
		at       time.Time
	}
	seen := map[string]sighting{}
	watch.Every(ctx, r.every, func() {
		before := seen
		seen = map[string]sighting{}
		for _, o := range r.cfg.Records.All() {
			if o.State != Running {
				continue
			}
			last := before[o.ID]
			if last.revision != o.Revision {
				last = sighting{o.Revision, time.Now()}
			}
			seen[o.ID] = last
			others := r.cfg.Shared && o.Owner != "" && o.Owner != r.cfg.Process
			if !others || time.Since(last.at) >= r.cfg.Lost {
				r.takeOver(ctx, o)
			}
		}
	})
	r.mu.Lock()
	r.ctx = nil
	r.mu.Unlock()
	r.runs.Wait()
}

func (r *Runner) takeOver(ctx context.Context, o Operation) {
	r.mu.Lock()
	here := r.here[o.ID]
	r.mu.Unlock()
	if _, known := r.cfg.Kinds[o.Kind]; here || !known {
		return
	}
	o.Owner, o.ChangedAt = r.cfg.Process, r.cfg.Now()
	if o, err := r.cfg.Records.Put(ctx, o); err == nil {
		r.cfg.Log.Info("an operation continues here", "operation", o.ID, "kind", o.Kind, "done", o.Done)
		r.start(o)
	}
}

// start runs an operation in this process, until the operation or Run ends.
func (r *Runner) start(o Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx == nil || r.here[o.ID] {
		return
	}
	ctx := r.ctx
	r.here[o.ID] = true
	r.runs.Go(func() {
		if err := r.run(ctx, o); err != nil && ctx.Err() == nil && !errors.Is(err, errLost) {
			r.cfg.Log.Warn("an operation stopped and is tried again", "operation", o.ID, "kind", o.Kind, "error", err)
		}
		r.mu.Lock()
		delete(r.here, o.ID)
		r.mu.Unlock()
	})
}

// progress is the progress of a running operation.
type progress struct {
	mu sync.Mutex
	at Operation // its Next, Done, Skipped and Failed
}

// note applies a change to the progress.
func (p *progress) note(change func(o *Operation)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.at)
}

// of returns an operation with its current progress.
func (p *progress) of(o Operation) Operation {
	p.mu.Lock()
	defer p.mu.Unlock()
	o.Next, o.Done, o.Skipped, o.Failed = p.at.Next, p.at.Done, p.at.Skipped, p.at.Failed
	return o
}

// run processes an operation in another goroutine, and saves the progress in this one.
func (r *Runner) run(ctx context.Context, o Operation) error {
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &progress{at: o}
	ended := make(chan error, 1)
	go func() { ended <- r.work(working, o, p) }()
	ticker := time.NewTicker(r.every)
	defer ticker.Stop()
	saving := context.WithoutCancel(ctx)
	for {
		select {
		case <-ticker.C:
			saved, err := r.save(saving, p.of(o))
			switch {
			case err == nil:
				o = saved
			case errors.Is(err, errLost):
				cancel()
				<-ended
				return err
			default:
				r.cfg.Log.Info("the progress of an operation is not saved", "operation", o.ID, "error", err)
			}
			if o.State == Cancelled {
				cancel()
			}
		case err := <-ended:
			o = p.of(o)
			switch {
			case o.State == Running && err == nil:
				o.State = Done
			case o.State == Running && !passes(err):
				o.State = Cancelled
				r.cfg.Log.Error("an operation is cancelled: its items cannot be selected", "operation", o.ID, "kind", o.Kind, "error", err)
				err = nil
			case ctx.Err() != nil:
				o.Owner = "" // another process need not wait for Lost
			}
			_, saveErr := r.save(saving, o)
			return errors.Join(err, saveErr)
		}
	}
}

// save stores the progress of an operation of this process, even if it was cancelled meanwhile.
func (r *Runner) save(ctx context.Context, o Operation) (Operation, error) {
	o.ChangedAt = r.cfg.Now()
	for range tries {
		saved, err := r.cfg.Records.Put(ctx, o)
		if !errors.Is(err, stored.ErrConflict) {
			return saved, err
		}
		now, err := r.cfg.Records.Fresh(ctx, o.ID)
		switch {
		case errors.Is(err, stored.ErrNotFound):
			return o, errLost
		case err != nil:
			return o, err
		case now.Owner != r.cfg.Process, now.State == Done:
			return o, errLost
		}
		o.Revision = now.Revision
		if now.State == Cancelled {
			o.State = Cancelled
		}
		if err := watch.Sleep(ctx, triesPause); err != nil {
			return o, err
		}
	}
	return o, fmt.Errorf("%w: operation %s changed %d times in a row", stored.ErrConflict, o.ID, tries)
}

// work processes the items of an operation page by page.
func (r *Runner) work(ctx context.Context, o Operation, p *progress) error {
	kind := r.cfg.Kinds[o.Kind]
	// After a take-over, Select would leave out items that this process does not know yet.
	if _, err := kind.Known(ctx); err != nil {
		return err
	}
	limit, pace := kind.Page, &pace{}
	if o.Rate > 0 {
		limit = max(1, min(limit, int(o.Rate)))
		pace.every = time.Duration(float64(time.Second) / o.Rate)
	}
	for from := o.Next; from > 0; {
		items, next, err := kind.Select(ctx, o, from, limit)
		if err != nil {
			return err
		}
		skipped, failed, err := r.page(ctx, o, items, pace, p)
		if err != nil {
			return err
		}
		p.note(func(o *Operation) { o.Next, o.Skipped, o.Failed = next, o.Skipped+skipped, o.Failed+failed })
		from = next
	}
	return nil
}

// passes reports whether a retry may succeed after an error.
func passes(err error) bool {
	return errors.Is(err, stored.ErrUnavailable) || errors.Is(err, errLost) || errors.Is(err, context.Canceled) || errors.Is(err,
		context.DeadlineExceeded)
}

// page processes the items of a page, and returns how many were skipped and how many failed. If it returns an error, the page is selected again,
// without the items that were done. A page whose items have all ended is not selected again, even if ctx ended meanwhile.
func (r *Runner) page(ctx context.Context, o Operation, items []Item, pace *pace, p *progress) (skipped, failed int, err error) {
	feeding, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var skips, failures, ended atomic.Int64
	var working sync.WaitGroup
	places := make(chan struct{}, parallel)
	for _, item := range items {
		if pace.wait(feeding) != nil {
			break
		}
		if now, ok := r.cfg.Records.Cached(o.ID); !ok || now.State != Running || now.Owner != r.cfg.Process {
			fail(errLost)
			break
		}
		places <- struct{}{}
		working.Go(func() {
			defer func() { <-places }()
			done, err := item(context.WithoutCancel(ctx))
			if err != nil && passes(err) {
				fail(err)
				return
			}
			ended.Add(1)
			switch {
			case err != nil:
				failures.Add(1)
				r.cfg.Log.Warn("an item of an operation failed, and is passed over", "operation", o.ID, "kind", o.Kind, "error", err)
			case done:
				p.note(func(o *Operation) { o.Done++ })
			default:
				skips.Add(1)
			}
		})
	}
	working.Wait()
	if int(ended.Load()) < len(items) {
		err = context.Cause(feeding)
	}
	return int(skips.Load()), int(failures.Load()), err
}

// catchUp limits how much lost time a delayed pace makes up for.
const catchUp = 100 * time.Millisecond

// pace limits the rate of items.
type pace struct {
	every time.Duration
	next  time.Time
}

// wait returns when the next item may start, or ctx ends.
func (p *pace) wait(ctx context.Context) error {
	now := time.Now()
	if p.next.IsZero() {
		p.next = now
	}
	if late := now.Add(-catchUp); p.next.Before(late) {
		p.next = late
	}
	until := p.next.Sub(now)
	p.next = p.next.Add(p.every)
	return watch.Sleep(ctx, until)
}
