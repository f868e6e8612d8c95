package relay

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/natstest/relayhistory"
	"github.com/jetpull/jetpull/test/servertest"
)

// takeoverTime is the take-over time of the processes in tests; see testConfig.
const takeoverTime = 2 * time.Second

// Four processes share a server, and their clocks differ by hours. The one that sends to a receiver with a limit is killed, and
// another takes over, again and again. The history is valid, no window is over its limit, and the limit is reached while no
// process is killed.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	takeOvers, limit, window := 50, 100, 10*time.Second
	if testing.Short() {
		takeOvers, limit, window = 3, 20, 2*time.Second
	}
	srv := servertest.RunServer(t)
	h := newWitness(t, map[string]traits{
		"limited": {Traits: relayhistory.Traits{Asked: true, Limit: limit, Window: window, MaxRetries: 3}},
		"ordered": {Traits: relayhistory.Traits{Asked: true, Order: "source", MaxRetries: 50}, failEvery: 3},
		"pending": {Traits: relayhistory.Traits{Asked: true, MaxRetries: 3}, pending: true},
	})
	processes := make([]*mortal, 4)
	for i, clock := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		processes[i] = &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0", nats: srv.URL(), clock: clock}
		t.Cleanup(processes[i].kill)
		processes[i].start()
	}
	h.configure(processes[0].site())
	for round := range takeOvers {
		sent := len(h.receivers["limited"].seen())
		var feeding sync.WaitGroup
		feeding.Go(func() { feed(h, processes, round, limit/2) })
		eventually(t, func() bool { return len(h.receivers["limited"].seen()) > sent }, "nobody has taken over")
		victim := sending(t, processes) // now, because a window after the last POST the owner cannot be determined
		feeding.Wait()
		victim.kill()
		feed(h, processes, takeOvers+round, 5)
		victim.start()
	}
	const windows = 6
	feed(h, processes, 2*takeOvers, windows*limit)
	h.check(processes[0].site(), takeOvers*inWork)
	posts := h.receivers["limited"].seen()
	last := posts[len(posts)-(windows-1)*limit:]
	used := float64(len(last)-1) / float64(limit) / (float64(last[len(last)-1].At.Sub(last[0].At)) / float64(window))
	t.Logf("%.1f %% of the limit were used over the last windows", 100*used)
	if !testing.Short() {
		require.GreaterOrEqual(t, used, 0.95)
	}
}

// feed submits n messages for each receiver, to the running processes in turn.
func feed(h *witness, processes []*mortal, round, n int) {
	var senders sync.WaitGroup
	for name := range h.receivers {
		senders.Go(func() {
			source := fmt.Sprintf("%s-%03d", name, round)
			for i := range n {
				id := fmt.Sprintf("%05d", i)
				m := processes[i%len(processes)]
				for ; m.dead(); m = processes[rand.IntN(len(processes))] {
				}
				h.offer(source, id, name)
				if m.persist(h.t.Context(), message(source, id, name)) {
					h.accept(source, id)
				}
			}
		})
	}
	senders.Wait()
}

// sending waits for the process that sends to the receiver with the limit.
func sending(t *testing.T, processes []*mortal) (owner *mortal) {
	eventually(t, func() bool {
		for _, m := range processes {
			if windowUsed(m.site(), "limited") > 0 {
				owner = m
				return true
			}
		}
		return false
	}, "no process sends")
	return owner
}

// An operator unpins a receiver with a limit that has a backlog, so two processes have entries of it in hand. The one that lost the pin
// hands its entries back at once. If it kept them, the two would take the window from each other for ever, and of an ordered source the
// other process could not send anything.
func TestUnpinnedReceiverGoesOn(t *testing.T) {
	t.Parallel()
	orders := []string{"none", "source"}
	if testing.Short() {
		orders = orders[:1]
	}
	for _, order := range orders {
		t.Run(order, func(t *testing.T) { unpinnedReceiverGoesOn(t, order) })
	}
}

func unpinnedReceiverGoesOn(t *testing.T, order string) {
	srv := servertest.RunServer(t)
	js := testJetStream(t, srv.Connect(t))
	r := newPeer(t, nil)
	const limit, window = 5, 500 * time.Millisecond
	onServer := func(c *Config) { c.NATS.URL = srv.URL() }
	sites := []*site{startSite(t, onServer), startSite(t, onServer)}
	sites[0].receiver("ci", r.URL, object{"rate_limit": limit, "window_size": window.Seconds(), "order": order})
	sites[0].batch("a", "ci", 1000)
	sites[0].batch("b", "ci", 200) // so that there are more than one process holds, or nobody is pinned after an unpin
	for _, next := range []int{0, 1, 0} {
		var unpinned time.Time
		eventually(t, func() bool {
			if windowUsed(sites[next], "ci") > 0 {
				return true
			}
			if len(r.list()) > 0 && time.Since(unpinned) > 3*takeoverTime { // again, because the server may pin the same process again
				require.NoError(t, jetpull.Unpin(t.Context(), js, "relay_to_receiver", "to_receiver_ci", "relay"))
				unpinned = time.Now()
			}
			return false
		}, "the other process does not take over")
		sent := len(r.list())
		eventually(t, func() bool { return len(r.list()) > sent+3*limit }, "nothing is sent")
	}
	requireWindows(t, r.list(), limit, window)
}

// windowUsed returns the POSTs that a process counts in the window of a receiver.
func windowUsed(s *site, receiver string) float64 {
	return s.want(200, "GET", "/v1/receivers/"+receiver, adminToken, nil)["state"].(object)["window_used"].(float64)
}

// A process that stops in good order hands its work and its window over at once.
func TestHandOver(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	r := newPeer(t, nil)
	var nodes [2]*Node
	start := func(i int) {
		cfg := testConfig(t.TempDir())
		cfg.NATS.URL, cfg.Relay.Takeover = srv.URL(), time.Minute
		var err error
		nodes[i], err = Start(t.Context(), cfg, testLog())
		require.NoError(t, err)
	}
	start(0)
	s := &site{t, nodes[0].URL()}
	s.receiver("ci", r.URL, object{"rate_limit": 5, "window_size": 0.3})
	for i := range 5 {
		s.want(200, "POST", "/v1/messages?wait=20s", adminToken, message("a", fmt.Sprint(i), "ci"))
	}
	start(1)
	require.NoError(t, nodes[0].Stop(context.Background()))
	t.Cleanup(func() { require.NoError(t, nodes[1].Stop(context.Background())) })
	s = &site{t, nodes[1].URL()}
	for i := range 10 { // far sooner than after the take-over time
		s.want(200, "POST", "/v1/messages?wait=20s", adminToken, message("a", fmt.Sprint("b", i), "ci"))
	}
	requireWindows(t, r.list(), 5, 300*time.Millisecond)
}
