// Package operation runs operations on many objects in the console, for systems and objects that have no operations of their own, and keeps them over
// a restart. It does not depend on the objects or the pages, which add their kinds of operations to a [Runner].
package operation

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/stored"
)

// Operation is an action on many objects that runs in a system. Its counts, times and state have the names of the relay's HTTP interface.
type Operation struct {
	// System is the system that runs it, and ID its name there.
	System, ID string
	Kind, By   string
	// A description of the objects to which it applies.
	What string
	// State is running, done, cancelled or failed.
	State                  string
	Matched, Done, Skipped int
	Failed                 int
	Began, Changed         time.Time
	// Notes describe what happened to skipped objects, and what the operation waits for.
	Notes []string
	// Cancel ends the operation. It does not undo the finished part.
	Cancel func(ctx context.Context) error `json:"-"`
}

// Ended returns the number of objects that were processed.
func (o Operation) Ended() int { return o.Done + o.Skipped + o.Failed }

// Left returns the number of objects that were not processed yet.
func (o Operation) Left() int { return max(0, o.Matched-o.Ended()) }

// Running is the state of an operation that has not ended.
const Running = "running"

// Source lists the operations of a system.
type Source interface {
	// System returns the name of the system.
	System() string
	Operations(ctx context.Context) ([]Operation, error)
}

// Keep stores data beyond the end of the console's process: the log of actions, the operations and the values of charts.
type Keep interface {
	// Read returns the messages of all values whose keys match, such as "log.>".
	Read(ctx context.Context, keys string) (map[string]*jetstream.RawStreamMsg, error)
	// Put and Update are like those of a [jetstream.KeyValue].
	Put(ctx context.Context, key string, data []byte) (revision uint64, err error)
	Update(ctx context.Context, key string, data []byte, last uint64) (revision uint64, err error)
}

// runnerGroup is the group of the console's own operations.
const runnerGroup = "console"

// Runner runs operations in the console, for systems and objects that have no operations of their own. Before [Runner.Restore], records are in
// memory: when the console stops, its operations end as if they were cancelled. The finished parts are not undone.
type Runner struct {
	records *records
	kinds   map[string]bulk.Kind
	bulk    *bulk.Runner

	mu sync.Mutex
	// refused contains, by operation, the first reasons why objects were skipped.
	refused map[string][]string
	// waits contains, by operation, why it does not continue now. ended contains why it ended early.
	waits, ended map[string]string
	// chosen contains the objects of running operations, by selection.
	chosen *Store[Chosen]
}

// ErrNotTried reports that an action was not tried, because its system does not answer. The operation waits for the system.
var ErrNotTried = errors.New("nothing was done")

// task is the spec of an operation: its description, and the selection in the form of its kind.
type task struct {
	What   string
	Select json.RawMessage
}

// NewRunner returns a runner. It runs nothing before [Runner.Run]. Pages must add their kinds of operations before that.
func NewRunner(log *slog.Logger) *Runner {
	process := "console-" + rand.Text()
	r := &Runner{
		records: newRecords(process), kinds: map[string]bulk.Kind{}, refused: map[string][]string{}, waits: map[string]string{},
		ended: map[string]string{}, chosen: NewStore("chosen.", 0, func(_, _ Chosen) bool { return false }),
	}
	r.bulk = bulk.New(bulk.Config{Records: r.records, Process: process, Shared: true, Lost: lostAfter, Now: time.Now, Log: log, Kinds: r.kinds})
	return r
}

// lostAfter is how long after its last save an operation is continued by another console with the same bucket.
const lostAfter = 10 * time.Second

// Restore reads the operations that earlier processes have kept, and keeps those of this process. If this process has already begun one, its
// operations stay in memory, and the others wait for the next process.
func (r *Runner) Restore(ctx context.Context, keep Keep) error {
	if err := r.chosen.Restore(ctx, keep); err != nil { // first, because an operation continues as soon as its record is there
		return err
	}
	return r.records.Restore(ctx, keep)
}

// Hold prevents operations from beginning, until Hold(false) is called or Restore has succeeded.
func (r *Runner) Hold(hold bool) {
	r.records.mu.Lock()
	defer r.records.mu.Unlock()
	r.records.held = hold
}

// Run runs operations until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	r.bulk.Run(ctx)
}

// firstRefused is the number of refusals that an operation shows.
const firstRefused = 5

// Selector selects at most limit objects of a selection, starting at a position. It returns the action for each, and the next position, or 0 at the
// end.
type Selector func(ctx context.Context, selection json.RawMessage, from uint64, limit int) (do []func(context.Context) error, next uint64, err error)

// Add adds a kind of operations, which selects up to size objects at a time. If continued is true, kept operations continue after a restart. Records
// have no token, so continued must be true only if anybody who may write records could also change the objects without the console.
func (r *Runner) Add(kind string, continued bool, size int, choose Selector) {
	r.records.continued[kind] = continued
	r.kinds[kind] = bulk.Kind{
		Page: size, Known: func(context.Context) (uint64, error) { return 0, nil },
		Select: func(ctx context.Context, o bulk.Operation, from uint64, limit int) ([]bulk.Item, uint64, error) {
			var t task
			if err := json.Unmarshal(o.Spec, &t); err != nil {
				return nil, 0, err
			}
			found, next, err := choose(ctx, t.Select, from, limit)
			items := make([]bulk.Item, len(found))
			for i, do := range found {
				items[i] = func(ctx context.Context) (bool, error) { return r.item(ctx, o.ID, do(ctx)) }
			}
			return items, next, r.selected(o.ID, err)
		},
	}
}

// Chosen contains the names of an operation's objects, and the form that its user has sent.
type Chosen struct {
	Names []string
	Form  url.Values
	// Created is when the newest of the objects was created. An object that was created later is another one with its name. Zero means that this is
	// not known.
	Created time.Time `json:",omitzero"`
}

// AddNamed adds a kind of operations on objects whose names are chosen before anything is changed. The selection is a key of r.chosen, and the
// position an index of the names plus one. One name is selected at a time. After an error, an object is not tried again, because its action may have
// taken effect.
func (r *Runner) AddNamed(kind string, continued bool, do func(ctx context.Context, name string, of Chosen) error) {
	r.Add(kind, continued, 1, func(_ context.Context, selection json.RawMessage, from uint64, _ int) ([]func(context.Context) error, uint64, error) {
		var key string
		_ = json.Unmarshal(selection, &key) // BeginNamed has written it
		c, _ := r.chosen.Get(key)
		if from > uint64(len(c.Names)) {
			return nil, 0, fmt.Errorf("%w: the objects of this operation are not known any more", stored.ErrNotFound)
		}
		name, next := c.Names[from-1], from+1
		if next > uint64(len(c.Names)) {
			next = 0
		}
		return []func(context.Context) error{func(ctx context.Context) error {
			err := do(ctx, name, c)
			if err != nil && !errors.Is(err, ErrNotTried) {
				return fmt.Errorf("%.80s: %s", name, err.Error()) // skip the object, whatever the error is
			}
			return err
		}}, next, nil
	})
}

// BeginNamed starts an operation on named objects, of a kind from AddNamed. by is its author.
func (r *Runner) BeginNamed(ctx context.Context, kind, by, what string, all Chosen, rate float64) (Operation, error) {
	key := rand.Text()
	if err := r.chosen.Set(ctx, key, all); err != nil {
		return Operation{}, err
	}
	return r.Begin(ctx, kind, by, what, key, rate)
}

// Begin starts an operation on all objects of a selection. by is its author.
func (r *Runner) Begin(ctx context.Context, kind, by, what string, selection any, rate float64) (Operation, error) {
	data, err := json.Marshal(selection)
	if err == nil {
		data, err = json.Marshal(task{what, data})
	}
	if err != nil {
		return Operation{}, err
	}
	o, err := r.bulk.Begin(ctx, bulk.Operation{Kind: kind, Group: runnerGroup, By: by, Spec: data, Rate: rate})
	return Operation{System: r.System(), ID: o.ID, Kind: kind, Matched: o.Matched}, err
}

// item interprets the result of an object's action. If the server does not answer, the object is tried again later. If the server refuses the action,
// the object is skipped.
func (r *Runner) item(ctx context.Context, id string, err error) (done bool, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waits, id)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrNotTried):
		r.waits[id] = err.Error()
		return false, waitFor(err)
	case ctx.Err() != nil, errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrConnectionClosed):
		return false, waitFor(err)
	}
	if len(r.refused[id]) < firstRefused {
		r.refused[id] = append(r.refused[id], err.Error())
	}
	return false, nil
}

// selected interprets the result of a selection. Only the loss of all objects at once, such as with a stream, ends the operation.
func (r *Runner) selected(id string, err error) error {
	if !errors.Is(err, jetstream.ErrStreamNotFound) && !errors.Is(err, stored.ErrNotFound) {
		return waitFor(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended[id] = err.Error()
	return err
}

// waitFor returns an error after which the operation retries.
func waitFor(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", stored.ErrUnavailable, err)
}

// System implements [Source].
func (r *Runner) System() string { return "console" }

// Operations implements [Source].
func (r *Runner) Operations(context.Context) ([]Operation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Operation
	for _, o := range r.records.All() {
		var t task
		if json.Unmarshal(o.Spec, &t) != nil {
			t.What = "not known, since its record cannot be read"
		}
		op := Operation{
			System: r.System(), ID: o.ID, Kind: o.Kind, By: o.By, What: t.What, State: strings.ToLower(string(o.State)),
			Matched: o.Matched, Done: o.Done, Skipped: o.Skipped, Began: o.CreatedAt, Changed: o.ChangedAt,
			Cancel: func(ctx context.Context) error {
				_, err := r.bulk.Cancel(ctx, o.ID)
				return err
			},
		}
		if o.State == interrupted {
			op.Notes = []string{"It was interrupted by a restart: begin it again."}
		}
		if o.State != bulk.Running {
			var key string
			if json.Unmarshal(t.Select, &key) == nil {
				r.chosen.Drop(key)
			}
		} else if why := r.waits[o.ID]; why != "" {
			op.Notes = []string{"It waits, and goes on when the system answers: " + why}
		}
		if why := r.ended[o.ID]; why != "" {
			op.Notes = []string{"It ended early: " + why}
		}
		if why := r.refused[o.ID]; len(why) > 0 {
			op.Notes = append(op.Notes, "Objects that refused are skipped. They stay as they are, unless the reason says otherwise. The first reasons:")
			op.Notes = append(op.Notes, why...)
		}
		all = append(all, op)
	}
	return all, nil
}
