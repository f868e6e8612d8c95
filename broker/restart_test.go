package broker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker/client"
)

// A broker that is stopped in order, repeatedly and under full load, loses and repeats nothing, including jobs that it had read
// ahead.
func TestStopLosesAndRepeatsNothing(t *testing.T) {
	var pushed, pulled tally
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { pushed.add(r.Header.Get("X-Broker-Message-ID")) }))
	defer receiver.Close()
	cfg := testConfig(t)
	cfg.Connection.Timeout = 30 * time.Second // so that no claim ends while the broker is down
	n := startNode(t, cfg)
	cfg.HTTP.Listener = n.Addr()
	putConsumer(t, n, "push", receiver.URL, nil)
	putConsumer(t, n, "pull", "http://127.0.0.1:9/", url.Values{"type": {"pull"}})
	c := client.New(n.URL(), &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}})

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var accepted ids
	var producing atomic.Bool
	producing.Store(true)
	var producers, background sync.WaitGroup
	for p := range 8 {
		producers.Go(func() {
			for i := 0; producing.Load(); i++ {
				id := fmt.Sprintf("%d-%d", p, i)
				_, err := c.Broadcast(ctx, producer, client.Message{ID: id, Payload: []byte("x")})
				switch {
				case err == nil:
					accepted.add(id)
				case !errors.Is(err, client.ErrUnavailable):
					t.Errorf("broadcast %s: %v", id, err)
				}
			}
		})
	}
	background.Go(func() {
		err := c.Consumer("ch", "ct", "pull", "kt").Consume(ctx, func(_ context.Context, j *client.Job) error {
			pulled.add(j.MessageID)
			return nil
		}, client.Options{Concurrency: 8})
		if err != nil {
			t.Error(err)
		}
	})
	for range repetitions(5) {
		target := accepted.count() + fewer(200)
		waitUntil(t, func() bool { return accepted.count() >= target }, "broadcasts do not go on")
		stopNode(t, n)
		n = startNode(t, cfg)
	}
	producing.Store(false)
	producers.Wait()
	all := accepted.list()
	waitUntil(t, func() bool {
		missedPush, _ := pushed.missing(all)
		missedPull, _ := pulled.missing(all)
		return missedPush == 0 && missedPull == 0
	}, "messages that were accepted are not delivered")
	cancel()
	background.Wait()
	_, repeatedPush := pushed.missing(all)
	_, repeatedPull := pulled.missing(all)
	t.Logf("%d accepted", len(all))
	require.Zero(t, repeatedPush, "callbacks repeated")
	require.Zero(t, repeatedPull, "pulled jobs repeated")
}
