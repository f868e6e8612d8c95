package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/bulk"
	"github.com/jetpull/jetpull/internal/stored"
)

const (
	kindRequeue = "requeue"
	kindPurge   = "purge"
	// letterGroup is the group of the console's own operations.
	letterGroup = "letters"
)

// letterRunner runs operations on dead letters in this process. Their records are in memory: when the console stops, an operation ends
// as if it was cancelled. What it has done stays done, and the rest stays a dead letter.
type letterRunner struct {
	source  MessageSource
	records *memory
	runner  *bulk.Runner

	mu sync.Mutex
	// refused is why objects of an operation were skipped: the first reason, by operation.
	refused map[string]string
}

func newLetterRunner(source MessageSource, log *slog.Logger) *letterRunner {
	l := &letterRunner{source: source, records: &memory{all: map[string]bulk.Operation{}}, refused: map[string]string{}}
	kind := func(do func(context.Context, letterFilter, *jetstream.RawStreamMsg) error) bulk.Kind {
		return bulk.Kind{Page: letterWindow, Known: func(context.Context) (uint64, error) { return 0, nil }, Select: l.selectLetters(do)}
	}
	l.runner = bulk.New(bulk.Config{
		Records: l.records, Process: "console", Lost: time.Minute, Now: time.Now, Log: log,
		Kinds: map[string]bulk.Kind{
			kindRequeue: kind(func(ctx context.Context, f letterFilter, m *jetstream.RawStreamMsg) error {
				_, err := requeue(ctx, source, f.Stream, m, f.Subject)
				return err
			}),
			kindPurge: kind(func(ctx context.Context, f letterFilter, m *jetstream.RawStreamMsg) error {
				return source.DeleteMessage(ctx, f.Stream, m.Sequence)
			}),
		},
	})
	return l
}

// begin starts an operation on all dead letters that a filter matches.
func (l *letterRunner) begin(ctx context.Context, kind string, f letterFilter, rate float64) (bulk.Operation, error) {
	data, err := json.Marshal(f)
	if err != nil {
		return bulk.Operation{}, err
	}
	return l.runner.Begin(ctx, bulk.Operation{Kind: kind, Group: letterGroup, By: user(ctx), Spec: data, Rate: rate})
}

// count is how many dead letters match. It stops at maxScanned, with more.
func (l *letterRunner) count(ctx context.Context, f letterFilter) (n int, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	info, err := l.source.Stream(ctx, f.Stream)
	if err != nil {
		return 0, false, err
	}
	for from := max(1, info.State.FirstSeq); from <= f.Last; {
		found, err := l.source.Messages(ctx, info, from, ">", letterWindow)
		if err != nil {
			return n, true, errIfNone(n, err)
		}
		if len(found) == 0 {
			break
		}
		for _, m := range found {
			if m.Sequence <= f.Last && f.fits(m) {
				if n++; n == maxScanned {
					return n, true, nil
				}
			}
		}
		from = found[len(found)-1].Sequence + 1
	}
	return n, false, nil
}

// errIfNone passes on an error that ended a count before it found anything.
func errIfNone(n int, err error) error {
	if n > 0 {
		return nil
	}
	return err
}

// selectLetters selects the dead letters of an operation, and has do done to each.
func (l *letterRunner) selectLetters(do func(context.Context, letterFilter, *jetstream.RawStreamMsg) error) func(context.Context, bulk.Operation, uint64, int) ([]bulk.Item, uint64, error) {
	return func(ctx context.Context, o bulk.Operation, from uint64, limit int) ([]bulk.Item, uint64, error) {
		f, err := spec(o)
		if err != nil {
			return nil, 0, err
		}
		info, err := l.source.Stream(ctx, f.Stream)
		if err != nil {
			return nil, 0, err
		}
		found, err := l.source.Messages(ctx, info, from, ">", limit)
		if err != nil || len(found) == 0 {
			return nil, 0, err
		}
		var items []bulk.Item
		next := found[len(found)-1].Sequence + 1
		for _, m := range found {
			if m.Sequence > f.Last {
				return items, 0, nil
			}
			if f.fits(m) {
				items = append(items, func(ctx context.Context) (bool, error) { return l.item(ctx, o.ID, do(ctx, f, m)) })
			}
		}
		return items, next, nil
	}
}

// item judges how an object of an operation ended. A server that does not answer has the object done again later; one that refuses it
// has it skipped, and it stays a dead letter.
func (l *letterRunner) item(ctx context.Context, id string, err error) (done bool, _ error) {
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil, errors.Is(err, nats.ErrTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrConnectionClosed):
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused[id] == "" {
		l.refused[id] = err.Error()
	}
	return false, nil
}

// System implements [OperationSource].
func (l *letterRunner) System() string { return "console" }

// Operations implements [OperationSource].
func (l *letterRunner) Operations(context.Context) ([]Operation, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Operation
	for _, o := range l.records.All() {
		f, err := spec(o)
		if err != nil {
			return nil, err
		}
		op := Operation{
			System: l.System(), ID: o.ID, Kind: o.Kind + " dead letters", By: o.By, What: f.words(), State: stateWord(o.State),
			Matched: o.Matched, Done: o.Done, Skipped: o.Skipped, Began: o.CreatedAt, Changed: o.ChangedAt,
		}
		if why := l.refused[o.ID]; why != "" {
			op.Note = fmt.Sprintf("%s skipped, and stays a dead letter. The first reason: %s", countIs(uint64(o.Skipped), "dead letter"), why)
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
	}
	return "done"
}

// CancelOperation implements [OperationSource].
func (l *letterRunner) CancelOperation(ctx context.Context, id string) error {
	_, err := l.runner.Cancel(ctx, id)
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
}

// maxOperations is how many operations are remembered.
const maxOperations = 200

// Put implements [bulk.Records].
func (m *memory) Put(_ context.Context, o bulk.Operation) (bulk.Operation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
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
