package broker

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
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

// The system has no space for a write, here because of the size of a file. The node reports that and ends, and refuses everything
// until it is stopped. Started again with space, it has all that was answered and nothing that was refused.
func TestNoSpaceOnTheDisk(t *testing.T) {
	cfg := testConfig(t)
	n, err := Start(t.Context(), cfg, testLogger(t))
	require.NoError(t, err)
	stop := sync.OnceFunc(func() { stopNode(t, n) })
	t.Cleanup(stop)
	putConsumer(t, n, "k", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	waiting, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, n.Wait(waiting))

	// This stores a message directly, without the check of the free space.
	lift := limitFiles(t, 3<<20+1000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	context.AfterFunc(n.broken, cancel)
	payload := []byte(strings.Repeat("x", 1<<20))
	var taken []string
	refused := ""
	for i := 0; refused == ""; i++ {
		require.Less(t, i, 100)
		id := fmt.Sprint("m", i)
		if _, err := n.store.Messages.Append(ctx, domain.Message{ID: id, Channel: "ch", Producer: "pr", ContentType: "t", Payload: payload}); err != nil {
			refused = id
		} else {
			taken = append(taken, id)
		}
	}
	require.NotEmpty(t, taken)
	require.ErrorIs(t, n.Wait(t.Context()), domain.ErrStoreFull)
	code, _, _ := call(t, n, "GET", "/readyz", nil, "")
	require.Equal(t, 503, code)
	code, body, _ := call(t, n, "POST", "/channel/ch/broadcast", map[string]string{
		"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt",
	}, "x")
	require.Equal(t, 503, code)
	require.Contains(t, body, "the store is full")

	lift()
	stop()
	again := startNode(t, cfg)
	there := func(id string) bool {
		code, _, _ := call(t, again, "GET", "/channel/ch/message/"+id, nil, "")
		return code == 200
	}
	for _, id := range taken {
		require.True(t, there(id), id)
	}
	require.False(t, there(refused))
	broadcast(t, again, refused, "now there is space", nil)
	require.Len(t, claim(t, again, "k", "?limit=100&wait=5s"), len(taken)+1)
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
