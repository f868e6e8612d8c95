package work

import (
	"context"
	"sync"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// turnPause is the wait for an earlier message of the same source.
	turnPause = 50 * time.Millisecond
	// headerPin is the pin with which the server delivers a message (ADR-42).
	headerPin = "Nats-Pin-Id"
)

// turns keeps the order of a source over a change of process. The pool of Consume keeps the order of what is delivered
// in order; what another process had when it died is delivered late. So an entry that may be part of that is checked
// against the queue itself, and handed back if its turn has not come, which lets the earlier one pass.
type turns struct {
	w *Workers

	mu      sync.Mutex
	settled map[string]uint64 // of each source, the last entry that this run is done with
	begun   time.Time         // of the run, or of the last disorder
	pin     string            // with which the last entry was delivered
}

func (t *turns) started() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled, t.begun = map[string]uint64{}, time.Now()
}

// disorder says that entries are delivered out of order.
func (t *turns) disorder() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun = time.Now()
}

// mine tells whether no earlier entry of the source, which filter matches, is unsettled. If one is, it has handed the
// message back.
func (t *turns) mine(ctx context.Context, m *jetpull.Msg, q store.Queue, filter, source string) (bool, error) {
	meta, err := m.Metadata()
	if err != nil {
		return false, err
	}
	t.mu.Lock()
	// Each delivery names the pin. Consume's callback for a change of it may come later than the first delivery.
	if pin := m.Headers().Get(headerPin); pin != t.pin {
		t.pin, t.begun = pin, time.Now()
	}
	clean := meta.NumDelivered == 1 && time.Since(t.begun) > 3*t.w.cfg.Takeover
	last := t.settled[source]
	t.mu.Unlock()
	if clean {
		return true, nil
	}
	// From behind the last one on: the acknowledgement of that one may still be on its way.
	first, err := t.w.store.First(ctx, q, filter, last+1)
	if err != nil {
		return false, jetpull.Retry(turnPause, err)
	}
	if first == 0 || first >= meta.Sequence.Stream {
		return true, nil
	}
	t.disorder()
	if err := m.NakWithDelay(turnPause); err != nil {
		return false, jetpull.Retry(turnPause, err)
	}
	return false, nil
}

// settle says that this run is done with an entry.
func (t *turns) settle(source string, seq uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled[source] = max(t.settled[source], seq)
}
