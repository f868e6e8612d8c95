package work

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/relay/internal/store"
)

const (
	// turnPause is the wait for an earlier message of the same source.
	turnPause = 50 * time.Millisecond
	// bridged is when an acknowledgement has arrived, or is lost: its entry is then delivered again.
	bridged = 10 * time.Second
	// leastSweep is how many sources are remembered before the old ones are looked for.
	leastSweep = 1000
)

// turns keeps the order of a source where deliveries do not. The pool of Consume keeps the order of what is delivered
// in order; but a delivery can be lost, or have gone to another process that was stalled or died, and is then repeated
// behind later ones. So each entry is checked against the queue itself, and handed back if its turn has not come, which
// lets the earlier one pass.
type turns struct {
	w *core

	mu      sync.Mutex
	settled map[string]settled // by source
	sweepAt int                // as many as this
}

// settled is the last entry of a source that a run is done with.
type settled struct {
	seq uint64
	at  time.Time
}

func (t *turns) started() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled, t.sweepAt = map[string]settled{}, leastSweep
}

// mine tells whether no earlier entry of the source, which filter matches, is unsettled. If one is, it has handed the
// message back.
func (t *turns) mine(ctx context.Context, m *jetpull.Msg, q store.Queue, filter, source string) (bool, error) {
	meta, err := m.Metadata()
	if err != nil {
		return false, err
	}
	t.mu.Lock()
	last := t.settled[source].seq
	t.mu.Unlock()
	// From behind the last one on: the acknowledgement of that one may still be on its way.
	first, err := t.w.store.First(ctx, q, filter, last+1)
	if err != nil {
		return false, err
	}
	if first == nil || first.Sequence >= meta.Sequence.Stream {
		return true, nil
	}
	if err := m.NakWithDelay(turnPause); err != nil {
		return false, jetpull.Retry(turnPause, err)
	}
	return false, nil
}

// settle says that this run is done with an entry whose turn it was. Of others it must not be told: an earlier one may be
// unsettled behind them.
func (t *turns) settle(source string, seq uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled[source] = settled{max(t.settled[source].seq, seq), time.Now()}
	if len(t.settled) >= t.sweepAt {
		maps.DeleteFunc(t.settled, func(_ string, s settled) bool { return time.Since(s.at) > bridged })
		t.sweepAt = max(leastSweep, 2*len(t.settled))
	}
}
