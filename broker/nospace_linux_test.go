package broker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
)

// limitFiles limits the size of all files of the process until lift is called.
func limitFiles(t *testing.T, most uint64) (lift func()) {
	t.Helper()
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	set := func(most uint64) {
		require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: most, Max: limit.Max}))
	}
	set(most)
	lift = sync.OnceFunc(func() { set(limit.Cur) })
	t.Cleanup(lift)
	return lift
}

// startWithSpace starts a node on a disk whose free space the test sets.
func startWithSpace(t *testing.T, cfg *Config) (n *Node, free *atomic.Int64) {
	t.Helper()
	free = new(atomic.Int64)
	free.Store(1 << 30) // enough to start, and not to broadcast
	n, err := Start(t.Context(), cfg, testLogger(t), func(n *Node) {
		n.disk = func(string) (int64, int64, error) { return free.Load(), 100 << 30, nil }
	})
	require.NoError(t, err)
	t.Cleanup(func() { stopNode(t, n) })
	return n, free
}

func readyCode(t *testing.T, n *Node) int {
	t.Helper()
	code, _, _ := call(t, n, "GET", "/readyz", nil, "")
	return code
}

// The system has no space for a write, here because of the size of a file. The process need not be restarted: when there is
// space, the embedded server is. Answered messages are there, refused ones are not, and /readyz always reports the state.
func TestNoSpaceOnTheDisk(t *testing.T) {
	cfg := testConfig(t)
	n, free := startWithSpace(t, cfg)
	putConsumer(t, n, "k", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})

	// This stores a message directly, without the check of the free space.
	lift := limitFiles(t, 3<<20+1000)
	payload := []byte(strings.Repeat("x", 1<<20))
	var taken []string
	refused := ""
	for i := 0; refused == ""; i++ {
		require.Less(t, i, 100)
		id := fmt.Sprint("m", i)
		_, err := n.store.Messages.Append(t.Context(), domain.Message{ID: id, Channel: "ch", Producer: "pr", ContentType: "t", Payload: payload})
		if err != nil {
			require.ErrorIs(t, err, domain.ErrStoreFull)
			refused = id
			break
		}
		taken = append(taken, id)
	}
	require.NotEmpty(t, taken)
	require.True(t, n.store.Writers.Stuck())
	require.Equal(t, 503, readyCode(t, n))
	code, body, _ := call(t, n, "POST", "/channel/ch/broadcast", map[string]string{
		"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt",
	}, "x")
	require.Equal(t, 503, code)
	require.Contains(t, body, "the store is full")

	lift()
	require.ErrorIs(t, n.store.Ready(), domain.ErrStoreFull, "there is space, and the server accepts nothing yet")
	free.Store(10 << 30)
	require.Eventually(t, func() bool { return readyCode(t, n) == 200 }, waitLong, waitStep)
	require.False(t, n.store.Writers.Stuck())
	there := func(n *Node, id string) bool {
		code, _, _ := call(t, n, "GET", "/channel/ch/message/"+id, nil, "")
		return code == 200
	}
	for _, id := range taken {
		require.True(t, there(n, id), id)
	}
	require.False(t, there(n, refused))
	broadcast(t, n, refused, "now there is space", nil)
	require.Len(t, claim(t, n, "k", "?limit=100&wait=5s"), len(taken)+1)
	stopNode(t, n)
	again := startNode(t, cfg)
	for _, id := range append(taken, refused) {
		require.True(t, there(again, id), id)
	}
}

// After an attempt for which there was no space, the server refuses all attempts until it is restarted. Callbacks go on
// meanwhile, and their outcomes count. Histories are complete again once there is space.
func TestNoSpaceForAttempts(t *testing.T) {
	var fail atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if fail.Load() {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	defer receiver.Close()
	cfg := testConfig(t)
	cfg.Dispatch.MaxRetry = 1
	n, free := startWithSpace(t, cfg)
	putConsumer(t, n, "k", receiver.URL, nil)
	send := func(id string) {
		_, err := n.store.Messages.Append(t.Context(), domain.Message{ID: id, Channel: "ch", Producer: "pr", ContentType: "t"})
		require.NoError(t, err)
	}
	send("m")
	waitState(t, n, "m", "k", "DELIVERED")
	id := domain.JobID{Seq: 1, Consumer: mustConsumer(t, n, "k").Number}
	lift := limitFiles(t, 3<<20+1000)
	var err error
	for i := 1; err == nil; i++ {
		require.Less(t, i, 100)
		err = n.store.Jobs.KeepAttempt(t.Context(), id, domain.Attempt{Number: i, Body: make([]byte, 512<<10)})
	}
	require.ErrorIs(t, err, domain.ErrStoreFull)
	require.True(t, n.store.Writers.Stuck())
	require.Equal(t, 503, readyCode(t, n))
	require.NoError(t, n.store.Recordable())
	fail.Store(true)
	send("dead")
	waitState(t, n, "dead", "k", "DEAD")
	list, count := attemptsAt(t, n, "dead", "k")
	require.Equal(t, 2, count)
	require.Equal(t, []int{2}, numbers(list), "all that is left is what the record has")

	lift()
	free.Store(10 << 30)
	require.Eventually(t, func() bool { return readyCode(t, n) == 200 }, waitLong, waitStep)
	broadcast(t, n, "later", "x", nil)
	waitState(t, n, "later", "k", "DEAD")
	list, _ = attemptsAt(t, n, "later", "k")
	require.Equal(t, []int{2, 1}, numbers(list))
}

// A start on a full file system fails. When there is space again, the next one has what was stored before.
func TestStartOnAFullFileSystem(t *testing.T) {
	dir := smallDisk(t, 200<<20)
	filler := filepath.Join(dir, "filler")
	cfg := testConfig(t)
	cfg.NATS.StoreDir = filepath.Join(dir, "store")
	n := startNode(t, cfg)
	putConsumer(t, n, "k", "http://127.0.0.1:9/", map[string][]string{"type": {"pull"}})
	broadcast(t, n, "m", "x", nil)
	stopNode(t, n)

	fillDisk(t, filler)
	_, err := Start(t.Context(), cfg, testLogger(t))
	require.ErrorContains(t, err, "no space left on device")
	require.NoError(t, os.Remove(filler))
	require.Len(t, claim(t, startNode(t, cfg), "k", "?wait=5s"), 1)
}

// smallDisk mounts a file system of the given size in bytes, which needs privileges.
func smallDisk(t *testing.T, size int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	return dir
}

// fillDisk writes a file until there is no space.
func fillDisk(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	require.NoError(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4<<10))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())
}
