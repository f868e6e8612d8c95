package work

import (
	"context"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// turnPause is the wait for an earlier message of the same source.
const turnPause = 50 * time.Millisecond

// turns keeps the order of a source where deliveries do not. The pool of Consume keeps the order of what is delivered
// in order; but a delivery can be lost, or have gone to another process that was stalled or died, and is then repeated
// behind later ones. So each entry is checked against the queue itself, and handed back if its turn has not come, which
// lets the earlier one pass. An entry is acknowledged, and the server has confirmed that, before the next one is checked.
type turns struct{ w *core }

// mine reports whether an entry is the first that its queue has for a filter, that of its source. If it is not, mine has handed the
// message back.
func (t turns) mine(ctx context.Context, m *jetpull.Msg, q store.Queue, filter string) (bool, error) {
	first, err := t.w.store.First(ctx, q, filter, 1)
	if err != nil {
		return false, err
	}
	if first == nil || first.Sequence >= m.Sequence() {
		return true, nil
	}
	if err := m.NakWithDelay(turnPause); err != nil {
		return false, jetpull.Retry(turnPause, err)
	}
	return false, nil
}
