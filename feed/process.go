package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/jetpull/jetpull/feed/internal/engine"
	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// Processor processes items. Its method is called by several goroutines. To process several items in one request, collect the items of concurrent
// calls.
type Processor interface {
	// Process makes one attempt at a step of an item. An error or a panic is a failed attempt; see [Permanent] and [RetryAfter]. ctx has the
	// values of Run's context, and ends up to DrainTimeout after that. It ends earlier if the database reports that the lease is lost; the
	// result of Process is then not saved. It does not end while the watcher cannot reach the database, because the watcher often still holds
	// the lease when the database is back.
	Process(ctx context.Context, it Item) (Response, error)
}

func apply[P any, O ~func(P) error](name string, p P, opts []O) error {
	for _, o := range opts {
		if o == nil {
			return invalid(name, "is nil; leave it out")
		}
		if err := o(p); err != nil {
			return err
		}
	}
	return nil
}

// ProcessorFunc is a function that implements [Processor].
type ProcessorFunc func(context.Context, Item) (Response, error)

// Process calls f.
func (f ProcessorFunc) Process(ctx context.Context, it Item) (Response, error) { return f(ctx, it) }

// errRegression is the error of a Response with a gate below the item's.
var errRegression = errors.New("the response's gate is below the item's")

// attempt makes an attempt at an item. It returns a panic as an error, even one in the methods of a returned error.
func attempt(ctx context.Context, p Processor, it Item) (resp Response, err error) {
	defer func() {
		if r := recover(); r != nil {
			resp, err = Response{}, fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	if resp, err = p.Process(ctx, it); err != nil {
		_ = err.Error() // panics here, and not later, for a nil pointer of an error's type
	}
	return resp, err
}

// traceContext carries the parent of a span in the headers of requests and messages (W3C Trace Context).
var traceContext propagation.TraceContext

// handler makes the attempts of a watcher, each with a span if there is a tracer, and returns the results. It is the engine's [engine.Handler].
type handler struct {
	*config
	processor Processor
}

func (h *handler) Process(ctx context.Context, row *sqlstore.Item) (sqlstore.Result, error) {
	if row.Timer != nil {
		return elapsed(row), nil
	}
	if n := row.Crashes; h.MaxCrashes > 0 && n != nil && *n >= int64(h.MaxCrashes) {
		return sqlstore.Result{}, Permanent(fmt.Errorf("its process ended %d times while it was handled", *n))
	}
	it := itemOf(row)
	resp, err := h.traced(ctx, it)
	if err == nil && resp.Gate != nil && *resp.Gate < it.Gate {
		err = Permanent(fmt.Errorf("%w: %d, item %d", errRegression, *resp.Gate, it.Gate))
	}
	return h.result(row, &resp), err
}

func (h *handler) traced(ctx context.Context, it Item) (resp Response, err error) {
	if h.tracers == nil {
		return attempt(ctx, h.processor, it)
	}
	ctx, span := h.tracers.Tracer("github.com/jetpull/jetpull/feed").Start(ctx, "process", trace.WithAttributes(
		attribute.String("feed.partition", it.Partition), attribute.String("feed.item", it.ID),
		attribute.Int("feed.gate", it.Gate), attribute.Int("feed.attempt", it.Attempt),
	))
	err = engine.ErrExited
	defer func() {
		switch {
		case err != nil:
			line, _, _ := strings.Cut(err.Error(), "\n")
			span.SetStatus(codes.Error, line)
		case resp.Done:
			span.SetAttributes(attribute.Bool("feed.done", true))
		case resp.Gate != nil && *resp.Gate != it.Gate:
			span.SetAttributes(attribute.Int("feed.next_gate", *resp.Gate))
		}
		span.End()
	}()
	return attempt(ctx, h.processor, it)
}

// result returns the result of an item's Response.
func (h *handler) result(row *sqlstore.Item, resp *Response) sqlstore.Result {
	r := sqlstore.Result{Item: row.ID, Version: row.Version, Gate: row.Gate, Status: sqlstore.Available, Data: resp.Data, Steps: 1}
	if resp.Gate != nil {
		r.Gate = *resp.Gate
	}
	switch {
	case resp.Done:
		r.Status, r.Attempt, r.Errors = sqlstore.Complete, row.Attempt, row.Errors
	case r.Gate == row.Gate:
		r.Delay = h.requeue
	}
	return r
}

func (h *handler) Failed(row *sqlstore.Item, err error) sqlstore.Result {
	it := itemOf(row)
	h.report(it, err)
	r := sqlstore.Result{
		Item: it.ID, Version: it.Version, Gate: it.Gate, Status: sqlstore.Available, Attempt: it.Attempt,
		Errors:  appendLast(it.Errors, cleanText(err.Error(), maxErrorText)),
		History: appendLast(it.History(), Attempt{time.Now().UTC(), it.Gate, it.Attempt, cleanText(err.Error(), maxAttemptText)}),
	}
	_, permanent := errors.AsType[*permanentError](err)
	if permanent || (h.maxRetries >= 0 && r.Attempt > h.maxRetries) {
		r.Status = sqlstore.Failed
		return r
	}
	if after, ok := errors.AsType[*retryAfterError](err); ok {
		r.Delay = after.after
	} else {
		r.Delay = defaultBackoff(r.Attempt)
		h.guarded("Backoff", func() { r.Delay = h.backoff(r.Attempt) })
	}
	r.Delay = min(max(r.Delay, 0), maxDelay)
	return r
}

func (h *handler) Conflict(row *sqlstore.Item) { h.report(itemOf(row), ErrConflict) }

func (h *handler) report(it Item, err error) {
	h.guarded("OnError", func() { h.onError(it, err) })
}

// guarded calls a function of an option, on a goroutine that the function may end, as FailNow of a test does. It logs a panic, which would otherwise
// end the process each time that the item is processed.
func (h *handler) guarded(option string, f func()) {
	var call sync.WaitGroup
	call.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				h.Log.Error("feed: panic", "option", option, "panic", v, "stack", string(debug.Stack()))
			}
		}()
		f()
	})
	call.Wait()
}

// Attempt is a failed attempt.
type Attempt struct {
	// At is the time at which it ended, by the clock of the watcher's machine.
	At time.Time `json:"at"`
	// Gate is the gate of the item, and Attempt is the number of the attempt in its step, from 1.
	Gate    int    `json:"gate"`
	Attempt int    `json:"attempt"`
	Error   string `json:"error"`
}

const (
	maxErrors    = 50
	maxErrorText = 2048
	// maxAttemptText bounds the errors of the history, in bytes. An item has its history as long as its row exists.
	maxAttemptText = 512
)

// History returns the failed attempts of all steps, oldest first, including those before a [Store.Retry]. It has the last 50, and each error is
// cut at 512 bytes.
func (it Item) History() []Attempt {
	return decodeList(it.history, func(text string) Attempt { return Attempt{Error: text} })
}

// decodeList decodes a column that has a list as JSON. Any other text, which another program wrote, is the only entry.
func decodeList[E any](column *string, entry func(text string) E) (list []E) {
	if column == nil || *column == "" {
		return nil
	}
	if json.Unmarshal([]byte(*column), &list) != nil {
		return []E{entry(*column)}
	}
	return list
}

// appendLast returns a column with a list and one more entry. It keeps the last maxErrors.
func appendLast[E any](list []E, e E) *string {
	list = append(slices.Clip(list), e)
	text, _ := json.Marshal(list[max(0, len(list)-maxErrors):]) // JSON can encode every value
	return new(string(text))
}

// cleanText cuts a text to most bytes, and replaces zero bytes, which columns cannot hold.
func cleanText(text string, most int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) <= most {
		return text
	}
	for !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
