package relay

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jetpull/jetpull/relay/internal/work"
)

// The clock of a process is set by an hour, ahead and back, while messages are in work. Nobody is killed, so nothing is
// sent twice, each message ends, and no window has more than its limit.
func TestClockIsSetByAnHour(t *testing.T) {
	var ahead atomic.Int64
	work.SetClock(func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) })
	t.Cleanup(func() { work.SetClock(time.Now) })
	h := newWitness(t, everyKind)
	h.timeout = patient
	s := startSite(t)
	h.configure(s)
	process := []*mortal{{t: t, listen: strings.TrimPrefix(s.url, "http://")}}
	n := contractMessages() / 3
	for round, step := range []time.Duration{time.Hour, 0, -time.Hour, 0} {
		seen := h.accepts()
		var senders sync.WaitGroup
		senders.Go(func() { feed(h, process, round, n) })
		eventually(t, func() bool { return h.accepts()-seen > len(everyKind)*n/2 }, "too few are accepted")
		ahead.Store(int64(step))
		senders.Wait()
	}
	h.check(s, 0)
}
