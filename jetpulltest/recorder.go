package jetpulltest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/jetpull/jetpull"
)

// Recorder is a handler that records its calls. The zero value acknowledges each message. Its methods may be called from any number of goroutines.
type Recorder struct {
	h jetpull.Handler

	mu    sync.Mutex
	calls []Call
	more  chan struct{} // closed by the next call; nil: nobody waits for it
}

// Call is one call of a handler.
type Call struct {
	Msg *jetpull.Msg
	Err error // the error that the handler returned
}

// NewRecorder returns a Recorder that calls h for each message. If h is nil, it acknowledges each message.
func NewRecorder(h jetpull.Handler) *Recorder {
	return &Recorder{h: h}
}

// Handle is the [jetpull.Handler]. A call is recorded when h has returned. A call that panics is not recorded.
func (r *Recorder) Handle(ctx context.Context, m *jetpull.Msg) error {
	var err error
	if r.h != nil {
		err = r.h(ctx, m)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, Call{m, err})
	if r.more != nil {
		close(r.more)
		r.more = nil
	}
	return err
}

// Calls returns the calls so far, in the order in which they ended.
func (r *Recorder) Calls() []Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

// Wait waits until n calls have been recorded, and returns all calls so far. It fails if ctx ends first.
func (r *Recorder) Wait(ctx context.Context, n int) ([]Call, error) {
	for {
		r.mu.Lock()
		if r.more == nil {
			r.more = make(chan struct{})
		}
		calls, more := slices.Clone(r.calls), r.more
		r.mu.Unlock()
		if len(calls) >= n {
			return calls, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return calls, fmt.Errorf("jetpulltest: %d of %d calls: %w", len(calls), n, context.Cause(ctx))
		}
	}
}
