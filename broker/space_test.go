package broker

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/jobindex"
	"github.com/jetpull/jetpull/broker/internal/work"
	"github.com/jetpull/jetpull/test/servertest"
)

func TestBroadcastsFollowTheSpace(t *testing.T) {
	var used, free int64
	var failed error
	var log servertest.Log
	r := &spaceMonitor{
		most: 1000, log: slog.New(slog.NewTextHandler(&log, nil)),
		used: func(context.Context) (work.Usage, error) { return work.Usage{Bytes: used}, failed },
		disk: func(string) (int64, int64, error) { return free, 100 << 30, failed },
	}
	look := func(wantUsed, wantFree int64, want string) {
		t.Helper()
		used, free = wantUsed, wantFree
		r.look(t.Context())
		if want == "" {
			require.NoError(t, r.Err())
		} else {
			require.ErrorIs(t, r.Err(), domain.ErrStoreFull)
			require.ErrorContains(t, r.Err(), want)
		}
	}
	look(999, 10<<30, "")
	look(1000, 10<<30, "it has 1000 bytes, and its limit is 1000")
	look(2000, 10<<30, "it has 2000 bytes")
	failed = errors.New("not now")
	look(0, 10<<30, "it has 2000 bytes")
	failed = nil
	look(0, 10<<30, "")
	look(0, 1<<30, "it has 0 bytes, and its limit is 1")
	look(0, 3<<30, "")
	r.most = 0
	look(1<<30, 2<<30, "its limit is 1073741824")
	look(1<<30, 2<<30+1, "")
	require.Equal(t, 3, strings.Count(log.String(), "broadcasts are refused"))
	require.Equal(t, 3, strings.Count(log.String(), "space again"))
}

// A broker whose store is full says so to producers and in /readyz. Its jobs can be worked off. Then it accepts messages again
// without a restart.
func TestAFullStoreIsWorkedEmpty(t *testing.T) {
	cfg := testConfig(t)
	cfg.NATS.StoreMax = 200 << 10
	n := startNode(t, cfg)
	putConsumer(t, n, "k", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	tokens := map[string]string{"X-Broker-Channel-Token": "ct", "X-Broker-Producer-ID": "pr", "X-Broker-Producer-Token": "pt"}
	payload := strings.Repeat("x", 10<<10)
	accepted, text := 0, ""
	waitUntil(t, func() bool {
		code, body, answer := call(t, n, "POST", "/channel/ch/broadcast", tokens, payload)
		if code == 201 {
			accepted++
			return false
		}
		require.Equal(t, 503, code, body)
		require.Equal(t, "1", answer.Get("Retry-After"))
		text = body
		return true
	}, "never full")
	require.Contains(t, text, "the store is full")
	code, body, _ := call(t, n, "GET", "/readyz", nil, "")
	require.Equal(t, 503, code)
	require.Contains(t, body, "the store is full")
	done := 0
	for done < accepted {
		jobs := claim(t, n, "k", "?limit=100")
		require.NotEmpty(t, jobs)
		for _, c := range jobs {
			deliver(t, n, "k", c)
			done++
		}
	}
	seqs := n.store.Index.Finished(func(string) bool { return true }, jobindex.Ages{Before: time.Now().Add(time.Hour)}, 1<<20)
	require.Len(t, seqs, accepted)
	pruned, err := n.store.Messages.Prune(t.Context(), seqs)
	require.NoError(t, err)
	require.Equal(t, accepted, pruned)
	waitUntil(t, func() bool {
		code, _, _ := call(t, n, "GET", "/readyz", nil, "")
		return code == 200
	}, "still full")
	broadcast(t, n, "again", "x", nil)
}
