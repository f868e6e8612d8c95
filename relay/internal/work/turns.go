package work

import (
	"context"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// turnPause is the pause before an entry that has to wait for an earlier one of its source is checked again.
const turnPause = 50 * time.Millisecond

// turns keeps the order of a source if deliveries are out of order. Consume handles deliveries in their order. But a delivery can
// be lost, or have gone to another process that was stalled or died. Then it is repeated behind later ones. So each entry is
// compared with the first entry of its source in the queue. If it is not the first, it is handed back, which lets the earlier one
// pass. An entry is acknowledged with a confirmation before the next one is checked.
type turns struct{ w *core }

// mine reports whether an entry is the first one of its queue that matches a filter, which is that of its source. If not, mine
// has handed the message back.
func (t turns) mine(ctx context.Context, m *jetpull.Msg, q store.Queue, filter string) (bool, error) {
	first, err := t.w.store.First(ctx, q, filter)
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
