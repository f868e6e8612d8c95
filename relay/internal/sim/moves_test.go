package sim

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
)

// A process that works dies, or stops in good order, beside one that stands by. What is handed in after that is with its
// receiver within the take-over time and a second, or at once.
func TestWorkMoves(t *testing.T) {
	for name, within := range map[string]time.Duration{"killed": takeover + time.Second, "stopped": time.Second} {
		t.Run(name, func(t *testing.T) {
			ats.Register()
			defer ats.Unregister()
			natstest.EmptyTimerPool()
			synctest.Test(t, func(t *testing.T) {
				w := emptyWorld(t, 1)
				w.faults = false
				w.processes = []*process{w.start(0)}
				w.add(newReceiver("r0"), 0)
				var longest time.Duration
				for round := range 20 {
					longest = max(longest, w.replace(fmt.Sprint(round), name == "stopped"))
				}
				t.Logf("at the receiver after %v at most", longest)
				require.LessOrEqual(t, longest, within)
				w.close()
			})
		})
	}
}

// replace has the process that works end while another stands by, and returns how long after that a message is at its
// receiver.
func (w *world) replace(id string, graceful bool) time.Duration {
	old, next := w.processes[0], w.start(1)
	r := w.chance("pause")
	<-time.After(takeover + upTo(r, takeover))
	require.True(w.t, w.submit(r, "before", id, "r0"))
	<-time.After(upTo(r, time.Second))
	begin := time.Now()
	if graceful {
		old.over()
	} else {
		w.kill(old)
	}
	w.mu.Lock()
	w.processes = []*process{next}
	w.mu.Unlock()
	require.True(w.t, w.submit(r, "after", id, "r0"))
	for {
		w.mu.Lock()
		there := w.receivers["r0"].has["after/"+id] && w.receivers["r0"].has["before/"+id]
		w.mu.Unlock()
		if there {
			return time.Since(begin)
		}
		<-time.After(time.Millisecond)
	}
}
