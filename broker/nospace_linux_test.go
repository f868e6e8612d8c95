package broker

import (
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// A system that had no room for a write, here for a larger file, costs no restart of the process: when there is room, the server is started again. What was
// answered is there, what was refused is not, and /readyz says how it is all the time.
func TestNoSpaceOnTheDisk(t *testing.T) {
	var free atomic.Int64
	cfg := testConfig(t)
	n, err := Start(t.Context(), cfg, testLogger(t), func(n *Node) {
		n.disk = func(string) (int64, int64, error) { return free.Load(), 100 << 30, nil }
	})
	require.NoError(t, err)
	t.Cleanup(func() { stopNode(t, n) })
	putConsumer(t, n, "k", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	ready := func() int { code, _, _ := call(t, n, "GET", "/readyz", nil, ""); return code }

	// No file can grow beyond this. What is broadcast goes to the store directly, past the look at the space.
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	grow := func(most uint64) {
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: limit.Max}))
	}
	defer grow(limit.Cur)
	grow(3<<20 + 1000)
	payload := []byte(strings.Repeat("x", 1<<20))
	var taken []string
	refused := ""
	for i := 0; refused == ""; i++ {
		require.Less(t, i, 100)
		id := fmt.Sprint("m", i)
		_, err := n.store.Append(t.Context(), domain.Message{ID: id, Channel: "ch", Producer: "pr", ContentType: "t", Payload: payload})
		if err != nil {
			require.ErrorIs(t, err, domain.ErrStoreFull)
			refused = id
			break
		}
		taken = append(taken, id)
	}
	require.NotEmpty(t, taken)
	require.True(t, n.store.Stuck())
	require.Equal(t, 503, ready())
	code, body, _ := call(t, n, "POST", "/channel/ch/broadcast", map[string]string{
		"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt",
	}, "x")
	require.Equal(t, 503, code)
	require.Contains(t, body, "the store is full")

	grow(limit.Cur)
	require.ErrorIs(t, n.store.Ready(), domain.ErrStoreFull, "there is room, and the server takes nothing yet")
	free.Store(10 << 30)
	require.Eventually(t, func() bool { return ready() == 200 }, waitLong, waitStep)
	require.False(t, n.store.Stuck())
	there := func(n *Node, id string) bool {
		code, _, _ := call(t, n, "GET", "/channel/ch/message/"+id, nil, "")
		return code == 200
	}
	for _, id := range taken {
		require.True(t, there(n, id), id)
	}
	require.False(t, there(n, refused))
	broadcast(t, n, refused, "now there is room", nil)
	require.Len(t, claim(t, n, "k", "?limit=100&wait=5s"), len(taken)+1)
	stopNode(t, n)
	again := startNode(t, cfg)
	for _, id := range append(taken, refused) {
		require.True(t, there(again, id), id)
	}
}
