package pull

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The time for a message is in proportion to the calls that wait, also if each has a pull of its own, because it came after the others.
func TestTimeOfAMessageWhileCallsWait(t *testing.T) {
	least := func(calls int) time.Duration {
		e, least := New("x", Limits{}, 2000, 0), time.Hour
		plan := func() (ib *Inbox) {
			e.Plan(0)
			for _, f := range e.Effects(nil) {
				if f.Kind == Send {
					ib = f.Inbox
				}
			}
			return ib
		}
		var boxes []*Inbox
		for range calls {
			e.Post(0, &Demand{Ask: Ask{Want: 1, Deadline: time.Hour}})
			ib := plan()
			e.Status(0, ib, ib.reply, statuses["404"])
			boxes = append(boxes, plan())
		}
		for i := range 50 {
			began := time.Now()
			e.Message(0, boxes[i], message(i), 100, "")
			plan()
			least = min(least, time.Since(began))
		}
		return least
	}
	few, many := least(100), least(1000)
	require.Less(t, many, 40*few, "%v while 100 calls wait, and %v while 1,000 do", few, many)
}
