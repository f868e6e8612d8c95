package broker

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One consumer has 200,000 dead jobs, beside 100 consumers with 100 each. The lists answer, the dead jobs of a small consumer are queued again and
// delivered while the large one has its own, and so are all others, after a restart.
func TestOneConsumerHasAlmostAllDeadJobs(t *testing.T) {
	large, small, each := 200_000, 100, 100
	if testing.Short() {
		large, small, each = 1000, 5, 10
	}
	var works atomic.Bool
	var delivered atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !works.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		delivered.Add(1)
	}))
	defer receiver.Close()
	cfg := testConfig(t)
	cfg.Dispatch.MaxRetry = 0
	cfg.NATS.Sync = "2m" // the duration of syncs is not tested here
	n := startNode(t, cfg)
	putConsumer(t, n, "large", receiver.URL, url.Values{"eventTypes": {"large"}})
	for k := range small {
		putConsumer(t, n, fmt.Sprint("s", k), receiver.URL, url.Values{"eventTypes": {fmt.Sprint("s", k)}})
	}
	var producers sync.WaitGroup
	var next atomic.Int64
	for range 32 {
		producers.Go(func() {
			for i := int(next.Add(1)) - 1; i < large+small*each; i = int(next.Add(1)) - 1 {
				eventType := "large"
				if i >= large {
					eventType = fmt.Sprint("s", (i-large)%small)
				}
				broadcast(t, n, fmt.Sprint(i), "x", map[string]string{"X-Broker-Event-Type": eventType})
			}
		})
	}
	producers.Wait()
	dead := func(consumer string) int {
		counts := n.store.Index.CountJobs(mustConsumer(t, n, consumer).Number)
		return counts[3].Count
	}
	comes := func(met func() bool, otherwise string) {
		t.Helper()
		require.Eventually(t, met, 10*time.Minute, 50*time.Millisecond, otherwise)
	}
	comes(func() bool {
		return dead("large") == large && dead("s0") == each && dead(fmt.Sprint("s", small-1)) == each
	}, "not all jobs are dead")

	show := func(path string) (page struct {
		Result []json.RawMessage
		Next   string
	},
	) {
		t.Helper()
		code, body, _ := call(t, n, "GET", path, nil, "")
		require.Equal(t, 200, code, body)
		require.NoError(t, json.Unmarshal([]byte(body), &page))
		return page
	}
	for until, pages := "", 0; pages < 20; pages++ {
		page := show("/dead-jobs?limit=100" + until)
		require.NotEmpty(t, page.Result)
		if page.Next == "" {
			break
		}
		until = "&until=" + url.QueryEscape(page.Next)
	}
	require.Len(t, show("/dead-jobs?limit=100&consumer=s1").Result, each)
	for _, path := range []string{
		"/channel/ch/consumer/large/dlq", "/channel/ch/consumer/s1/dlq", "/channel/ch/messages?limit=100", "/consumers", "/dlq-status", "/_status",
	} {
		code, body, _ := call(t, n, "GET", path, nil, "")
		require.Equal(t, 200, code, path+": "+body)
	}

	works.Store(true)
	code, body, _ := call(t, n, "POST", "/channel/ch/consumer/s0/dlq", asForm, "requeue=kt")
	require.Equal(t, 202, code, body)
	comes(func() bool { return delivered.Load() == int64(each) }, "the small consumer is not served")
	require.Equal(t, large, dead("large"))
	stopNode(t, n)

	n = startNode(t, cfg)
	require.Equal(t, large, dead("large"))
	require.Equal(t, each, dead("s1"))
	code, body, header := call(t, n, "POST", "/dead-jobs/requeue", map[string]string{"Content-Type": "application/json"},
		`{"Rate":100000}`)
	require.Equal(t, 202, code, body)
	comes(func() bool {
		var operation struct{ State string }
		_, body, _ := call(t, n, "GET", header.Get("Location"), nil, "")
		return json.Unmarshal([]byte(body), &operation) == nil && operation.State == "DONE"
	}, "the operation does not end")
	comes(func() bool { return delivered.Load() == int64(large+small*each) }, "not all are delivered")
}
