package relay

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// takeoverTime is of the processes in tests; see testConfig.
const takeoverTime = 2 * time.Second

// Two processes share a server. One is killed while it works: the other has its work within the take-over time, no
// window of the receiver has more than its limit, no message is POSTed twice, and order holds.
func TestTakeOver(t *testing.T) {
	srv := servertest.RunServer(t)
	rounds := 6
	if testing.Short() {
		rounds = 3
	}
	limited := &ledger{posts: map[string]int{}, polled: map[string]int{}}
	ordered := &ledger{posts: map[string]int{}, polled: map[string]int{}}
	rate, order := newPeer(t, limited.answer), newPeer(t, ordered.answer)
	var processes [2]*mortal
	for i := range processes {
		processes[i] = &mortal{t: t, dir: t.TempDir(), listen: "127.0.0.1:0", nats: srv.URL()}
		t.Cleanup(processes[i].kill)
		processes[i].start()
	}
	s := processes[0].site()
	const limit = 20
	window := 500 * time.Millisecond
	s.sender("git", "none", "")
	s.receiver("rate", rate.URL, object{"rate_limit": limit, "window_size": window.Seconds(), "status_endpoint": rate.URL + "/status/{source_id}/{message_id}", "timeout": 0.5})
	s.receiver("order", order.URL, object{"order": "source", "status_endpoint": order.URL + "/status/{source_id}/{message_id}", "timeout": 0.5})
	var all []string
	for round := range rounds {
		victim, other := processes[round%2], processes[(round+1)%2]
		for i := range 60 {
			for _, name := range []string{"rate", "order"} {
				source, id := fmt.Sprintf("%s%d", name, i%3), fmt.Sprintf("%d-%03d", round, i)
				require.True(t, other.persist(t.Context(), message(source, id, name)))
				all = append(all, source+"/"+id)
			}
			if i == 30 {
				victim.kill()
			}
		}
		victim.start()
	}
	s = processes[0].site()
	for _, key := range all {
		source, id, _ := strings.Cut(key, "/")
		s.awaitStatus(source, id, "DONE")
	}
	for _, key := range all {
		require.Equal(t, 1, limited.posts[key]+ordered.posts[key], "POSTs of %s", key)
	}
	var posts []seen
	for _, got := range rate.list() {
		if got.Method == http.MethodPost {
			posts = append(posts, got)
		}
	}
	requireWindows(t, posts, limit, window)
	last := map[string]string{}
	for _, got := range order.list() {
		if got.Method != http.MethodPost {
			continue
		}
		source, id, _ := strings.Cut(got.Header.Get("Webhook-Id"), "/")
		require.Greater(t, id, last[source], "order of %s", source)
		last[source] = id
	}
}

// A process that stops in good order hands its work over at once, with its window.
func TestHandOver(t *testing.T) {
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
	s := &site{t: t, url: nodes[0].URL()}
	s.receiver("ci", r.URL, object{"rate_limit": 5, "window_size": 0.3})
	for i := range 5 {
		s.want(200, "POST", "/v1/messages?wait=20s", adminToken, message("a", fmt.Sprint(i), "ci"))
	}
	start(1)
	require.NoError(t, nodes[0].Stop(context.Background()))
	t.Cleanup(func() { require.NoError(t, nodes[1].Stop(context.Background())) })
	s = &site{t: t, url: nodes[1].URL()}
	begin := time.Now()
	for i := range 10 {
		s.want(200, "POST", "/v1/messages?wait=20s", adminToken, message("a", fmt.Sprint("b", i), "ci"))
	}
	require.Less(t, time.Since(begin), 20*time.Second, "far less than the take-over time")
	requireWindows(t, r.list(), 5, 300*time.Millisecond)
}
