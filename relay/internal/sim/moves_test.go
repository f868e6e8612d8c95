package sim

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/internal/natstest"
	"github.com/jetpull/jetpull/internal/natstest/relayhistory"
)

// A working process dies, or stops in good order, beside a stand-by. Messages that are submitted after that reach their receiver
// within the take-over time and a second, or at once.
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

// replace ends the working process while another stands by, and returns the time until a message reaches its receiver.
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

// Four processes share a receiver with a limit, and three of them die, one after the other. No window is over the limit, and
// after the last take-over the remaining process uses it fully.
func TestLimitIsUsedAfterTakeOvers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // see TestSimulation
	ats.Register()
	defer ats.Unregister()
	natstest.EmptyTimerPool()
	synctest.Test(t, func(t *testing.T) {
		const limit, window, messages = 100, 10 * time.Second, 2000
		w := emptyWorld(t, 1)
		w.faults = false
		for i := range 4 {
			w.processes = append(w.processes, w.start(i))
		}
		e := newReceiver("r0")
		e.Asked, e.Order, e.Limit, e.Window, e.MaxRetries = true, "none", limit, window, 3
		w.add(e, 0)
		r, all := w.chance("play"), w.processes
		w.processes = all[3:] // messages are submitted to the last one
		for i := range messages {
			require.True(t, w.submit(r, "a", fmt.Sprint(i), "r0"))
		}
		for _, p := range all[:3] {
			<-time.After(3 * window)
			w.kill(p)
		}
		killed := time.Now()
		<-time.After(messages / limit * window)
		w.close()
		posts := e.posts
		require.GreaterOrEqual(t, len(posts), messages)
		for i := limit; i < len(posts); i++ {
			require.GreaterOrEqual(t, posts[i].At.Sub(posts[i-limit].At), window)
		}
		// By then the last process has taken over, and the window that it assumed full has passed.
		begin := slices.IndexFunc(posts, func(p relayhistory.Post) bool { return p.At.Sub(killed) > 3*window })
		last := posts[begin:]
		require.Greater(t, len(last), 2*limit)
		used := float64(len(last)-1) / limit / (float64(last[len(last)-1].At.Sub(last[0].At)) / float64(window))
		t.Logf("%.1f %% of the limit were used over the last windows", 100*used)
		require.GreaterOrEqual(t, used, 0.95)
	})
}

// Two processes share a receiver with a limit and a backlog. The one that sends stops in good order, again and again, in the middle of a
// window or while POSTs are in flight. It saves the window before it gives up the pin, so the other one continues the window.
func TestTheWindowMovesWithTheWork(t *testing.T) {
	const limit, window, rounds = 4, time.Minute, 8
	for name, pause := range map[string]time.Duration{"in flight": 0, "between POSTs": window / 2} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(t *testing.T, w *world) {
				w.processes = []*process{w.start(0), w.start(1)}
				e := newReceiver("r0")
				e.Order, e.Limit, e.Window = "none", limit, window
				w.add(e, 0)
				for i := range 2 * rounds * limit {
					require.True(t, w.submit(w.chance("play"), "a", fmt.Sprint(i), "r0"))
				}
				c := w.processes[0].store.Receivers.Get("r0")
				posts := func() int {
					w.mu.Lock()
					defer w.mu.Unlock()
					return len(e.posts)
				}
				for posts() == 0 {
					<-time.After(time.Millisecond)
				}
				begin, events := time.Now(), w.follow("$KV.relay_state.window.r0", "$JS.EVENT.ADVISORY.CONSUMER.UNPINNED.relay_to_receiver.>")
				for round := range rounds {
					for posts() < 1+round*limit {
						<-time.After(time.Millisecond)
					}
					<-time.After(pause)
					i := slices.IndexFunc(w.processes, func(p *process) bool { return p.workers.State(c).WindowUsed > 0 })
					w.processes[i].over()
					w.processes[i] = w.start(i)
				}
				took := time.Since(begin) - pause
				t.Logf("%d windows in %v", rounds-1, took)
				require.Less(t, took, (rounds-1)*(window+time.Second))
				stops, saved := 0, false
				for _, m := range events() {
					if strings.HasPrefix(m.Subject, "$KV") {
						saved = strings.Contains(string(m.Data), `"stopped":true`)
						continue
					}
					stops++
					require.True(t, saved, "stop %d gives up the pin first", stops)
				}
				require.Equal(t, rounds, stops)
			})
		})
	}
}

// follow returns a function that ends a subscription of several subjects and returns its messages.
func (w *world) follow(subjects ...string) func() []*nats.Msg {
	nc, err := w.srv.Connect()
	require.NoError(w.t, err)
	messages := make(chan *nats.Msg, 10_000)
	for _, subject := range subjects {
		_, err := nc.ChanSubscribe(subject, messages)
		require.NoError(w.t, err)
	}
	require.NoError(w.t, nc.Flush())
	return func() (all []*nats.Msg) {
		require.NoError(w.t, nc.Flush())
		nc.Close()
		for len(messages) > 0 {
			all = append(all, <-messages)
		}
		return all
	}
}
