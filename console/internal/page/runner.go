package page

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/console/internal/view"
	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/stored"
)

// runnerGroup is the group of the console's own operations.
const runnerGroup = "console"

// Runner runs operations in the console, for systems and objects that have none of their own. Without [Runner.Restore] their records are in memory:
// when the console stops, an operation ends as if it was cancelled. Its finished part is not undone.
type Runner struct {
	records *memory
	kinds   map[string]bulk.Kind
	log     *slog.Logger
	bulk    *bulk.Runner

	mu sync.Mutex
	// refused is why objects of an operation were skipped: the first reasons, by operation.
	refused map[string][]string
	// waits is why an operation does not go on now.
	waits map[string]string
	// chosen are the objects of operations that run, by selection.
	chosen map[string]chosen
}

// errNotTried is the error of an action that was not tried, because its system does not answer. The operation waits for the system.
var errNotTried = errors.New("nothing was done")

// task is what an operation is for: its description, and the selection in the form of the operation's kind.
type task struct {
	What   string
	Select json.RawMessage
}

// NewRunner makes a runner that runs nothing before Start. Pages add their kinds of operations before.
func NewRunner(log *slog.Logger) *Runner {
	r := &Runner{
		log:     log,
		records: &memory{all: map[string]bulk.Operation{}}, kinds: map[string]bulk.Kind{}, refused: map[string][]string{},
		waits: map[string]string{}, chosen: map[string]chosen{},
	}
	r.bulk = bulk.New(bulk.Config{
		Records: r.records, Process: "console-" + rand.Text(), Shared: true, Lost: lostAfter, Now: time.Now, Log: log, Kinds: r.kinds,
	})
	return r
}

// lostAfter is how long an operation is not saved before another console with the same bucket continues it.
const lostAfter = 10 * time.Second

// Run runs operations until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	r.bulk.Run(ctx)
}

// selector selects at most limit objects of a selection from a position on, each with what is to be done to it, and the next position, 0
// at the end.
type selector func(ctx context.Context, selection json.RawMessage, from uint64, limit int) (do []func(context.Context) error, next uint64, err error)

// add adds a kind of operations, which selects up to size objects at a time.
func (r *Runner) add(kind string, size int, choose selector) {
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
			return items, next, waitFor(err)
		},
	}
}

// chosen are the objects of an operation, by their names, and the form that its user has sent.
type chosen struct {
	Names []string
	Form  url.Values
}

// addNamed adds a kind of operations on objects that are chosen by their names before anything is changed. The selection is a key of
// r.chosen, and the position an index of the names plus one. One name is selected at a time. After an error the object is not tried again, because
// its action may have taken effect.
func (r *Runner) addNamed(kind string, do func(ctx context.Context, name string, form url.Values) error) {
	r.add(kind, 1, func(_ context.Context, selection json.RawMessage, from uint64, _ int) ([]func(context.Context) error, uint64, error) {
		var key string
		_ = json.Unmarshal(selection, &key) // beginNamed has written it
		r.mu.Lock()
		c := r.chosen[key]
		r.mu.Unlock()
		if from > uint64(len(c.Names)) {
			return nil, 0, fmt.Errorf("%w: the objects of this operation are not known any more", stored.ErrNotFound)
		}
		name, next := c.Names[from-1], from+1
		if next > uint64(len(c.Names)) {
			next = 0
		}
		return []func(context.Context) error{func(ctx context.Context) error {
			err := do(ctx, name, c.Form)
			if err != nil && !errors.Is(err, errNotTried) {
				return errors.New(short(name) + ": " + err.Error())
			}
			return err
		}}, next, nil
	})
}

// beginNamed starts an operation of a kind that addNamed has added.
func (r *Runner) beginNamed(ctx context.Context, kind, what string, c chosen, rate float64) (view.Outcome, error) {
	key := rand.Text()
	if err := r.choose(ctx, key, c); err != nil {
		return view.Outcome{}, notBegun(err)
	}
	return r.begin(ctx, kind, what, key, rate)
}

// begin starts an operation on all objects of a selection.
func (r *Runner) begin(ctx context.Context, kind, what string, selection any, rate float64) (view.Outcome, error) {
	data, err := json.Marshal(selection)
	if err == nil {
		data, err = json.Marshal(task{what, data})
	}
	var o bulk.Operation
	if err == nil {
		o, err = r.bulk.Begin(ctx, bulk.Operation{Kind: kind, Group: runnerGroup, By: user(ctx), Spec: data, Rate: rate})
	}
	if err != nil {
		return view.Outcome{}, notBegun(err)
	}
	return view.Outcome{
		Count: o.Matched, Then: operationLink(r.System(), o.ID), Text: fmt.Sprintf("Began to %s: %s.", kind, view.Count(uint64(o.Matched), "object")),
	}, nil
}

func notBegun(err error) error {
	return unavailable(err, "Try again.", "The operation did not begin. Nothing was changed")
}

// item judges how an object of an operation ended. If the server does not answer, the object is tried again later. If the server refuses
// the action, the object is skipped.
func (r *Runner) item(ctx context.Context, id string, err error) (done bool, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waits, id)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, errNotTried):
		r.waits[id] = err.Error()
		return false, waitFor(err)
	case ctx.Err() != nil, errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrConnectionClosed):
		return false, waitFor(err)
	}
	if len(r.refused[id]) < firstShown {
		r.refused[id] = append(r.refused[id], err.Error())
	}
	return false, nil
}

// waitFor is an error after which an operation tries again. Only a stream that is gone ends one.
func waitFor(err error) error {
	if err == nil || errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	return fmt.Errorf("%w: %w", stored.ErrUnavailable, err)
}

// System implements [OperationSource].
func (r *Runner) System() string { return "console" }

// Operations implements [OperationSource].
func (r *Runner) Operations(context.Context) ([]Operation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Operation
	for _, o := range r.records.All() {
		var t task
		if err := json.Unmarshal(o.Spec, &t); err != nil {
			return nil, err
		}
		op := Operation{
			System: r.System(), ID: o.ID, Kind: o.Kind, By: o.By, What: t.What, State: stateWord(o.State),
			Matched: o.Matched, Done: o.Done, Skipped: o.Skipped, Began: o.CreatedAt, Changed: o.ChangedAt,
		}
		if o.State == interrupted {
			op.Notes = []string{"It was interrupted by a restart: begin it again."}
		}
		if o.State != bulk.Running {
			var key string
			if json.Unmarshal(t.Select, &key) == nil {
				delete(r.chosen, key)
			}
		} else if why := r.waits[o.ID]; why != "" {
			op.Notes = []string{"It waits, and goes on when the system answers: " + why}
		}
		if why := r.refused[o.ID]; len(why) > 0 {
			op.Notes = append(op.Notes, "Objects that refused are skipped. They stay as they are, unless the reason says otherwise. The first reasons:")
			op.Notes = append(op.Notes, why...)
		}
		all = append(all, op)
	}
	return all, nil
}

func stateWord(s bulk.State) string {
	switch s {
	case bulk.Running:
		return running
	case bulk.Cancelled:
		return "cancelled"
	case interrupted:
		return "interrupted"
	}
	return "done"
}

// CancelOperation implements [OperationSource].
func (r *Runner) CancelOperation(ctx context.Context, id string) error {
	_, err := r.bulk.Cancel(ctx, id)
	if errors.Is(err, stored.ErrNotFound) {
		return notFound("The list of operations shows all that are known.", "There is no operation %q.", id)
	}
	return err
}

// memory keeps the records of operations in this process. It implements [bulk.Records].
type memory struct {
	mu       sync.Mutex
	revision uint64
	all      map[string]bulk.Operation
	keep     Keep // nil: the records are in memory alone
	held     bool // no operation begins, since what is kept has not been read
}

// maxOperations is how many operations are remembered.
const maxOperations = 200

// Put implements [bulk.Records].
func (m *memory) Put(ctx context.Context, o bulk.Operation) (bulk.Operation, error) {
	m.mu.Lock()
	if keep := m.keep; keep != nil {
		m.mu.Unlock()
		return m.swap(ctx, keep, o)
	}
	defer m.mu.Unlock()
	if m.held {
		return o, fmt.Errorf("%w: the operations of the console have not been read yet", stored.ErrUnavailable)
	}
	if m.all[o.ID].Revision != o.Revision {
		return o, stored.ErrConflict
	}
	m.revision++
	o.Revision = m.revision
	m.all[o.ID] = o
	if len(m.all) > maxOperations {
		m.forgetOldest()
	}
	return o, nil
}

// forgetOldest drops the operation that ended first. The caller holds the lock.
func (m *memory) forgetOldest() {
	oldest := ""
	for id, o := range m.all {
		if o.State != bulk.Running && (oldest == "" || o.ChangedAt.Before(m.all[oldest].ChangedAt)) {
			oldest = id
		}
	}
	delete(m.all, oldest)
}

// Fresh implements [bulk.Records].
func (m *memory) Fresh(_ context.Context, id string) (bulk.Operation, error) {
	if o, ok := m.Cached(id); ok {
		return o, nil
	}
	return bulk.Operation{}, fmt.Errorf("%w: operation %q", stored.ErrNotFound, id)
}

// Cached implements [bulk.Records].
func (m *memory) Cached(id string) (bulk.Operation, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.all[id]
	return o, ok
}

// In implements [bulk.Records]. All operations are of one group.
func (m *memory) In(string) []bulk.Operation { return m.All() }

// All implements [bulk.Records].
func (m *memory) All() []bulk.Operation {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []bulk.Operation
	for _, o := range m.all {
		all = append(all, o)
	}
	return all
}
