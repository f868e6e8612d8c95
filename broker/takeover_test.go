package broker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/test/servertest"
)

// Two broker processes share a server. The one that dispatches is killed and cannot hand over. The other takes over once the pin
// has expired. Jobs that were in progress are delivered as soon as the others.
func TestKilledDispatcherIsTakenOver(t *testing.T) {
	t.Parallel()
	srv := servertest.RunServer(t)
	processes := make([]*mortal, 2)
	for i := range processes {
		processes[i] = &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0", nats: srv.URL()}
		t.Cleanup(processes[i].kill)
		processes[i].start()
	}
	at := func(i int) *Node { return processes[i].node() }
	var fresh []string
	for i := range 20 {
		fresh = append(fresh, fmt.Sprint(i))
	}
	var calls tally
	block := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Broker-Message-ID")
		if n := calls.add(id); id == "hanging" && n == 1 {
			select {
			case <-block:
			case <-r.Context().Done():
			}
		}
	}))
	defer receiver.Close()
	defer close(block)
	putConsumer(t, at(0), "k", receiver.URL, nil)
	broadcast(t, at(0), "first", "x", nil)
	waitState(t, at(0), "first", "k", "DELIVERED")
	dispatcher := -1
	require.Eventually(t, func() bool {
		for i := range processes {
			if dispatching(t, at(i)) {
				dispatcher = i
			}
		}
		return dispatcher >= 0
	}, 10*time.Second, 10*time.Millisecond)
	survivor := at(1 - dispatcher)
	broadcast(t, survivor, "hanging", "x", nil)
	require.Eventually(t, func() bool { missing, _ := calls.missing([]string{"hanging"}); return missing == 0 }, 10*time.Second, time.Millisecond)
	processes[dispatcher].kill()
	killed := time.Now()

	c := client.New(survivor.URL(), nil)
	for _, id := range fresh {
		_, err := c.Broadcast(t.Context(), producer, client.Message{ID: id, Payload: []byte("x")})
		require.NoError(t, err)
	}
	delivered := func(id string) bool { return jobStates(t, survivor, id)["k"] == "DELIVERED" }
	waitUntil(t, func() bool { return delivered("hanging") }, "the other node does not take over")
	takenOver := time.Since(killed)
	require.True(t, dispatching(t, survivor))
	all := append([]string{"hanging"}, fresh...)
	waitUntil(t, func() bool { return !slices.ContainsFunc(all, func(id string) bool { return !delivered(id) }) }, "what comes new is not delivered")
	t.Logf("what was in work was delivered after %v", takenOver.Round(time.Millisecond))
	_, repeats := calls.missing(all)
	require.LessOrEqual(t, repeats, 1, "only what hung at the kill is called again")
}
