package work

import (
	"context"
	"time"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/relay/internal/store"
)

// turnPause is the pause before an entry that has to wait for an earlier one of its source is checked again.
const turnPause = 50 * time.Millisecond

// itsTurn reports whether an entry is the first one of its queue that matches a filter, which is that of its source. If not, it has
// handed the message back.
//
// It keeps the order of a source if deliveries are out of order. Consume handles deliveries in their order. But a delivery can be lost,
// or have gone to another process that was stalled or died. Then it is repeated behind later ones. An entry that is handed back lets
// the earlier one pass. An entry is acknowledged with a confirmation before the next one is checked.
func (w *core) itsTurn(ctx context.Context, m *jetpull.Msg, q store.Queue, filter string) (bool, error) {
	first, err := w.store.First(ctx, q, filter)
	if err != nil {
		return false, err
	}
	if first == nil || first.Sequence >= m.Sequence() {
		return true, nil
	}
	return false, m.NakWithDelay(turnPause)
}
