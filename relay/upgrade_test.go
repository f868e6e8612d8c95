package relay

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/test/servertest"
)

// earlierStores are stores that the builds of these commits have written with writeStore. They have messages that wait for a paused
// receiver, for one that is down and for a sender that is down, failed messages, and an operation in progress. This build does not
// know the operations of the first.
var earlierStores = map[string]bool{
	"testdata/store-7f96690.zip": false, "testdata/store-4b166d2.zip": true, "testdata/store-74250ac.zip": true,
}

const (
	inOrder = 5 // messages for the paused receiver
	skipped = 8 // messages of the operation
	// retainedFailed is how long the store keeps failed messages and operations. Those of the archive expire after that.
	retainedFailed = 30 * 24 * time.Hour
)

func upgradeConfig(dir string) *Config {
	cfg := testConfig(dir)
	cfg.Relay.CallbackDeadline, cfg.Relay.AutoRedrive = 100*365*24*time.Hour, nil // the store gets older every day
	return cfg
}

// TestWriteStore writes the archive, in the checkout of a build, if JETPULL_WRITE_STORE names it.
func TestWriteStore(t *testing.T) {
	servertest.WriteStore(t, func(dir string) { writeStore(t, dir) })
}

func writeStore(t *testing.T, dir string) {
	n, err := Start(t.Context(), upgradeConfig(dir), testLog())
	require.NoError(t, err)
	s := &site{t, n.URL()}
	answers := newPeer(t, func(_ int, got seen) (int, string) {
		if strings.Contains(got.Body, "wanted") {
			return 200, "the response"
		}
		return 400, ""
	})
	const nobody = "http://127.0.0.1:1/"
	s.receiver("paused", nobody, object{"order": "source", "paused": true})
	s.receiver("down", nobody, object{"max_retries": 10_000, "retry_after": 60})
	s.receiver("refuses", answers.URL, nil)
	s.sender("git", nobody, "told")
	s.sender("ci", nobody, "other")
	s.batch("ordered", "paused", inOrder)
	s.batch("a", "down", 2)
	s.want(202, "POST", "/v1/messages", adminToken, message("told", "wanted", "refuses"))
	s.awaitStatus("told", "wanted", "RESPONSE_RECEIVED_FROM_RECEIVER")
	s.batch("failed", "refuses", 2)
	s.batch("skipped", "refuses", skipped)
	eventually(t, func() bool { return len(s.failed("")) == 2+skipped }, "not all are on the list")
	op := s.want(202, "POST", "/v1/failed:skip", adminToken, object{"filter": object{"source": "skipped"}, "rate": 2})
	eventually(t, func() bool {
		return s.want(200, "GET", "/v1/operations/"+op["id"].(string), adminToken, nil)["done"].(float64) >= 1
	}, "the operation does not begin")
	require.NoError(t, n.Stop(context.Background()))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "operation"), []byte(op["id"].(string)), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "written"), []byte(time.Now().UTC().Format(time.RFC3339)), 0o600))
}

// A relay starts on the store of an earlier build, delivers the messages that wait, and completes the operation in progress.
func TestStoreOfAnEarlierBuild(t *testing.T) {
	for path, operations := range earlierStores {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			startOn(t, path, operations)
		})
	}
}

func startOn(t *testing.T, path string, operations bool) {
	dir := t.TempDir()
	servertest.ExtractStore(t, path, dir)
	id, err := os.ReadFile(filepath.Join(dir, "operation"))
	require.NoError(t, err)
	stamp, err := os.ReadFile(filepath.Join(dir, "written"))
	require.NoError(t, err)
	written, err := time.Parse(time.RFC3339, string(stamp))
	require.NoError(t, err)
	n, err := Start(t.Context(), upgradeConfig(dir), testLog())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Stop(context.Background())) })
	s := &site{t, n.URL()}

	receiver, callback := newPeer(t, nil), newPeer(t, nil)
	for name, paused := range map[string]bool{"paused": true, "down": false, "refuses": false} {
		require.Equal(t, paused, s.want(200, "GET", "/v1/receivers/"+name, adminToken, nil)["paused"])
	}
	require.Equal(t, []any{"told"}, s.want(200, "GET", "/v1/senders/git", adminToken, nil)["sources"])

	s.receiver("paused", receiver.URL, object{"order": "source"})
	for _, id := range []string{"0", "1", "2", "3", "4"} {
		s.awaitStatus("ordered", id, "DONE")
	}
	require.Equal(t, inOrder, receiver.count())
	for i, got := range receiver.list() {
		require.Contains(t, got.Body, `"`+string(rune('0'+i))+`"`, "in the order of the source")
	}
	require.NotEqual(t, "FAILED", s.status("a", "0")["status"], "it waits for its next attempt")
	s.sender("git", callback.URL, "told")
	s.awaitStatus("told", "wanted", "DONE")
	require.Contains(t, callback.list()[0].Header.Get("Webhook-Id"), "told/wanted")

	if time.Since(written) > retainedFailed {
		return
	}
	if operations {
		op := s.ended(object{"id": string(id)})
		require.Equal(t, "done", op["state"])
		require.EqualValues(t, skipped, op["done"])
		require.EqualValues(t, skipped, op["matched"])
		require.Len(t, s.failed(""), 2)
	} else {
		s.want(404, "GET", "/v1/operations/"+string(id), adminToken, nil)
	}
	require.Len(t, s.failed("source=failed"), 2)
	s.receiver("refuses", receiver.URL, nil)
	require.EqualValues(t, 2, s.operate("redrive", object{"filter": object{"source": "failed"}})["done"])
	s.awaitStatus("failed", "0", "DONE")
	s.awaitStatus("failed", "1", "DONE")
}
