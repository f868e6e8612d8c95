package relay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One receiver has 200,000 failed messages, beside 100 receivers with 100 each. The list answers by pages and filters, the messages of a small
// receiver are redriven while the large one has its own, and so are those of the large one, after a restart.
func TestOneReceiverHasAlmostAllFailedMessages(t *testing.T) {
	t.Parallel()
	large, small, each := 200_000, 100, 100
	if testing.Short() {
		large, small, each = 300, 5, 10
	}
	var works atomic.Bool
	r := newPeer(t, func(int, seen) (int, string) {
		if works.Load() {
			return 200, ""
		}
		return 422, ""
	})
	cfg := testConfig(t.TempDir())
	n, err := Start(t.Context(), cfg, testLog())
	require.NoError(t, err)
	s := &site{t, n.URL()}
	comes := func(met func() bool, otherwise string) {
		t.Helper()
		within(t, 20*time.Minute, met, otherwise)
	}
	fill := func(receiver string, count int) {
		s.receiver(receiver, r.URL, nil)
		const batch = 1000
		for first := 0; first < count; first += batch {
			s.batch(fmt.Sprint(receiver, "-", first/batch), receiver, min(batch, count-first))
		}
	}
	fill("large", large)
	var filling sync.WaitGroup
	for k := range small {
		filling.Go(func() { fill(fmt.Sprint("s", k), each) })
	}
	filling.Wait()
	comes(func() bool { return n.store.CountFailed() == large+small*each }, "not all are on the list")

	cursor, ids := "", map[string]bool{}
	for range 20 {
		page := s.want(200, "GET", "/v1/failed?limit=1000"+cursor, adminToken, nil)
		for _, item := range page["items"].([]any) {
			ids[item.(object)["id"].(string)] = true
		}
		if page["cursor"] == "" {
			break
		}
		cursor = "&cursor=" + page["cursor"].(string)
	}
	require.Len(t, ids, min(20_000, large+small*each))
	require.Len(t, s.failed("receiver=s1&limit=1000"), each)
	s.want(200, "GET", "/v1/receivers/large", adminToken, nil)

	works.Store(true)
	require.EqualValues(t, each, s.operate("redrive", object{"filter": object{"receiver": "s0"}})["done"])
	s.awaitStatus("s0-0", "0", "DONE")
	comes(func() bool { return n.store.CountFailed() == large+(small-1)*each }, "the small receiver's are still on the list")
	require.NoError(t, n.Stop(context.Background()))

	n, err = Start(t.Context(), cfg, testLog())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Stop(context.Background())) })
	s = &site{t, n.URL()}
	require.Equal(t, large+(small-1)*each, n.store.CountFailed())
	op := s.want(202, "POST", "/v1/failed:redrive", adminToken, object{"filter": object{"receiver": "large"}})
	comes(func() bool {
		op = s.want(200, "GET", "/v1/operations/"+op["id"].(string), adminToken, nil)
		return op["state"] != "running"
	}, "the operation does not end")
	require.EqualValues(t, large, op["done"])
	require.Equal(t, (small-1)*each, n.store.CountFailed())
	s.awaitStatus("large-0", "0", "DONE")
}
