package test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
	brokerclient "github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/relay"
	"github.com/jetpull/jetpull/relay/client"
)

func TestRelay(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	cfg, err := relay.LoadConfig(relay.Sources{Flags: map[string]string{"listen": "127.0.0.1:0", "store-dir": t.TempDir(), "admin-token": "secret"}})
	require.NoError(t, err)
	node, err := relay.Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { _ = node.Stop(context.Background()) })
	var broken atomic.Bool
	broken.Store(true)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			http.Error(w, "<script>alert(1)</script>", http.StatusBadRequest)
			return
		}
		_, _ = w.Write([]byte(`{"paid":true}`))
	}))
	t.Cleanup(target.Close)
	call := client.New(node.URL(), "secret", nil)
	require.NoError(t, call.Call(t.Context(), http.MethodPut, "/v1/receivers/billing",
		map[string]any{
			"post_endpoint": target.URL + "/hook?token=hidden", "secrets": []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
			"rate_limit": 100, "window_size": 10,
		}, nil))
	for i := range 3 {
		_, err := call.Send(t.Context(), client.Message{Source: "shop/1", ID: fmt.Sprintf("m%d", i), Receiver: "billing", Payload: []byte(`{"order":1}`)})
		require.NoError(t, err)
	}
	b := openTab(t, serve(t, console.Config{Relay: call}), wide)
	b.open("")
	b.eventually("Overview", "Relay", "Receivers")
	b.open("relay")
	b.eventually("billing", "1 receiver")
	b.audit()
	b.shoot("relay")
	require.NotContains(t, b.text(), "hidden")
	b.press("billing")
	b.eventually("At most 100 POSTs in any 10 s", "signed with 1 secret")
	require.NotContains(t, b.text(), "whsec_")
	b.audit()
	b.shoot("receiver")
	b.press("Pause")
	b.eventually("Done. Paused. Messages to billing wait.", "It is paused by an operator")
	b.press("Resume")
	b.eventually("Done. Resumed.")

	b.open("overview")
	b.eventually("Failures to look at\n3", "Answers to this relay process in a second", "1 of 1 receiver")
	require.NotContains(t, b.text(), "Healthy")
	b.open("failed?receiver=billing")
	b.eventually("3 failures", "m0", "m1", "m2")
	b.audit()
	b.shoot("failed")
	b.press("m1")
	b.eventually("The message is FAILED", "attempt 1", "400", "Request: Payload as json", "eyJvcmRlciI6MX0=", "Answer to attempt 1", "Content-Type: text/plain",
		"<script>alert(1)</script>")
	b.audit()
	b.shoot("relaymessage")
	broken.Store(false)
	b.press("Requeue")
	b.eventually("Began to requeue 1 failed message of the relay.", "The message is DONE")
	b.eventually("without a callback", "The relay keeps the payload until a message is DONE")
	b.open("relaymessages?receiver=billing")
	b.eventually("3 messages", "m0", "m1", "m2", "DONE", "FAILED")
	b.audit()
	b.shoot("relaymessages")
	b.open("relaymessages?status=DONE")
	b.eventually("1 message")
	require.NotContains(t, b.text(), "m0")
	b.open("failed?receiver=billing")
	b.eventually("2 failures")
	b.press("Requeue all that match in the relay…")
	b.eventually("That is 2 failed messages of the relay at this moment.")
	b.audit()
	b.press("Requeue all that match in the relay")
	b.eventually("Began to requeue 2 failed messages of the relay.", "Ended: 2 objects are done")
	b.open("receiver?name=billing")
	b.eventually("p50", "p99")
	require.Regexp(t, `p99\n[\d.]+ [µm]?s\n`, b.text())
	b.open("failed?receiver=billing")
	b.eventually("No failure matches")
	b.open("relaymessage?source=shop/1&id=m1")
	b.eventually("The message is DONE", `"paid": true`)
	// Skipped items are no longer on the list. Operations that were started elsewhere are listed too, and can be cancelled.
	broken.Store(true)
	for _, id := range []string{"m3", "m4", "m5"} {
		_, err := call.Send(t.Context(), client.Message{Source: "shop/1", ID: id, Receiver: "billing", Payload: 1})
		require.NoError(t, err)
	}
	b.open("failed?receiver=billing")
	b.eventually("3 failures")
	b.open("relaymessage?source=shop/1&id=m3")
	b.press("Skip…")
	b.press("Skip")
	b.eventually("Began to skip 1 failed message of the relay.", "It is not on the list of failed messages")
	require.NoError(t, call.Call(t.Context(), http.MethodPost, "/v1/failed:purge",
		map[string]any{"filter": map[string]string{"receiver": "billing"}, "rate": 0.001}, nil))
	b.open("operations")
	b.eventually("purge", "running", "failed messages, receiver billing", "admin", "4 operations")
	b.audit()
	b.press("purge")
	b.press("Cancel the operation…")
	b.press("Cancel the operation")
	b.eventually("Cancelled:", "not touched")
	b.open("relaymessage?source=shop/1&id=none")
	b.eventually("Not found")
	b.open("receiver?name=none")
	b.eventually(`There is no receiver "none".`)

	away := client.New("http://127.0.0.1:1", "secret", nil)
	b.open("failed")
	b = openTab(t, serve(t, console.Config{Relay: away}), wide)
	for _, page := range []string{"overview", "relay", "failed"} {
		b.open(page)
		b.eventually("relay does not answer, so there is nothing to show here yet")
	}
}

func TestFeed(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	store, err := feed.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "feed.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	items := make([]feed.Item, 20)
	for i := range items {
		items[i] = feed.Item{ID: fmt.Sprintf("item-%02d", i), Data: []byte(`{"n":1}`)}
	}
	for _, id := range []string{"résumés <script>alert(1)</script>", "second", "third"} {
		_, err = store.CreatePartition(t.Context(), feed.Partition{ID: id}, items...)
		require.NoError(t, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	handled := atomic.Int32{}
	w := feed.NewWatcher(store, feed.ProcessorFunc(func(_ context.Context, it feed.Item) (feed.Response, error) {
		handled.Add(1)
		if it.ID < "item-03" {
			return feed.Response{}, feed.Permanent(errors.New("cannot read <b>page</b>"))
		}
		return feed.Response{Done: true}, nil
	}))
	go func() { done <- w.Run(ctx) }()
	b := openTab(t, serve(t, console.Config{Feed: store, FeedWatcher: w}), wide)
	b.open("overview")
	b.eventually("3 partitions are held by 9 failed items, until somebody requeues or skips them.", "Items completed by this process in a second")
	b.audit()
	b.open("feed")
	b.eventually("résumés <script>alert(1)</script>", "Failed", "3 partitions are held")
	b.audit()
	b.shoot("feed")
	stop()
	require.NoError(t, <-done)
	b.press("résumés <script>alert(1)</script>")
	b.eventually("1 partition is held by 3 failed items", "item-00", "cannot read <b>page</b>")
	b.audit()
	b.shoot("partition")
	b.press("item-00")
	b.eventually("The item failed after 1 attempt", "cannot read <b>page</b>", "Payload as json")
	b.audit()
	b.shoot("item")
	b.press("Requeue")
	b.eventually("1 item is available again.", "The item is Available at gate 0", "before a requeue, or an earlier one", "cannot read <b>page</b>")
	b.audit()
	b.shoot("item-retried")
	b.open("feed")
	b.press("résumés <script>alert(1)</script>")
	b.press("Close…")
	b.press("Close")
	b.eventually("The feed refused this, and nothing was changed")
	b.open("feed")
	b.press("résumés <script>alert(1)</script>")
	b.press("Requeue all failed…")
	b.press("Requeue all failed")
	b.eventually("2 items are available again.", "3 items are ready.")
	b.press("Seal…")
	b.press("Seal")
	b.eventually("Sealed. No more items will come.")
	b.press("Advance…")
	b.press("Advance")
	b.eventually("The feed refused this")
	b.open("feed?status=Failed")
	b.eventually("2 partitions are held by 6 failed items")
	b.press("Skip the failed items of all that match…")
	b.eventually("The whole feed has 6 failed items in 2 blocked partitions.", "That is 2 partitions at this moment:")
	b.press("Skip the failed items of all that match")
	b.eventually("Began to skip the failed items of partitions: 2 objects.", "Ended: 2 objects are done, 0 objects are skipped.")
	b.open("feed?status=Failed")
	b.eventually("No partition matches.")
	b.open("partition?id=none")
	b.eventually(`The feed has no partition "none"`)
}

func TestBroker(t *testing.T) {
	t.Parallel()
	startBrowser(t)
	var broken atomic.Bool
	broken.Store(true)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			http.Error(w, "<script>alert(1)</script>", http.StatusInternalServerError)
		}
	}))
	t.Cleanup(target.Close)
	dir := t.TempDir()
	file := filepath.Join(dir, "broker.cfg")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, `[broker]
max-retry=1
retry-backoff-delays-in-seconds=1
[initial-channels]
orders=Orders
[initial-producers]
shop=Shop
[initial-consumers]
billing=%s/hook?token=hidden
[initial-channel-tokens]
orders=channel-token
[initial-producer-tokens]
shop=producer-token
[billing]
token=consumer-token
channel=orders
`, target.URL), 0o600))
	cfg, err := broker.LoadConfig(broker.Sources{File: file, Flags: map[string]string{
		"listen":    "127.0.0.1:0",
		"store-dir": filepath.Join(dir, "store"), "admin-token": "secret",
	}})
	require.NoError(t, err)
	node, err := broker.Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { _ = node.Stop(context.Background()) })
	producer := brokerclient.Producer{Channel: "orders", ChannelToken: "channel-token", ID: "shop", Token: "producer-token"}
	for i := range 3 {
		_, err := brokerclient.New(node.URL(), nil).Broadcast(t.Context(), producer,
			brokerclient.Message{ID: fmt.Sprintf("m%d", i), Payload: []byte(`{"order":1}`)})
		require.NoError(t, err)
	}
	call := brokerclient.NewAdmin(node.URL(), "secret", nil)
	b := openTab(t, serve(t, console.Config{Broker: call}), wide)
	b.open("broker")
	b.eventually("billing", "1 consumer")
	b.audit()
	b.shoot("broker")
	// An open list shows what somebody else does.
	consumer := "/channel/orders/consumer/billing/"
	require.NoError(t, call.Call(t.Context(), http.MethodPost, consumer+"pause", nil, nil))
	b.eventually("Resume all that match…")
	require.NoError(t, call.Call(t.Context(), http.MethodPost, consumer+"resume", nil, nil))
	b.gone("Resume all that match…")
	b.open("brokerconsumer?channel=orders&consumer=billing")
	b.eventually("3 dead jobs. Requeue them")
	require.NotContains(t, b.text(), "hidden")
	require.NotContains(t, b.text(), "consumer-token")
	b.audit()
	b.shoot("brokerconsumer")
	b.press("3")
	b.eventually("m0", "m1", "m2")
	b.press("m1")
	b.eventually("1 job, 1 DEAD.", "attempt 1", "500", "became DEAD", `"order": 1`)
	b.audit()
	b.shoot("brokermessage")
	b.open("brokerconsumer?channel=orders&consumer=billing")
	b.press("Pause")
	b.eventually("Done. Paused.", "Paused by an operator")
	b.open("broker")
	b.eventually("Resume all that match…")
	b.open("brokerconsumer?channel=orders&consumer=billing")
	b.press("Resume")
	b.eventually("Done. Resumed.")
	broken.Store(false)
	b.open("brokermessage?channel=orders&id=m1")
	b.press("Requeue")
	b.eventually("Requeued for billing (dead).", "1 job, 1 DELIVERED.")
	b.open("brokerconsumer?channel=orders&consumer=billing")
	b.eventually("2 dead jobs. Requeue them")
	b.press("Requeue delivered jobs…")
	b.eventually("That is 1 job of the broker at this moment")
	// The preview counts what the form selects.
	since := func(at string) {
		evaluate[string](b, fmt.Sprintf(`document.querySelector("main [name=since]").value = %q`, at))
		b.press("Count again")
	}
	since("2100-01-01T00:00")
	b.eventually("That is 0 jobs of the broker at this moment")
	require.Equal(t, "2100-01-01T00:00", evaluate[string](b, `document.querySelector("main [name=since]").value`))
	since("")
	b.eventually("That is 1 job of the broker at this moment")
	b.audit()
	b.press("Go back")
	b.press("2")
	b.press("Requeue all that match in the broker…")
	b.eventually("That is 2 dead jobs of the broker at this moment")
	b.press("Requeue all that match in the broker")
	b.eventually("Began to requeue 2 dead jobs of the broker.", "Ended: 2 objects are done")
	// A replay that was begun elsewhere is listed too.
	require.NoError(t, call.Call(t.Context(), http.MethodPost, "/channel/orders/consumer/billing/replay",
		map[string]any{"Status": "DELIVERED", "Rate": 1}, nil))
	b.open("operations")
	b.eventually("requeue", "delivered jobs of orders/billing", "3 operations")
	broadcast := func(channelToken string) { // it needs the tokens of a producer and of the channel
		b.open("channel?name=orders")
		b.press("Broadcast a test message…")
		for _, field := range [][2]string{{"producer", "shop"}, {"producertoken", "producer-token"}, {"channeltoken", channelToken}} {
			fillField(b, field[0], field[1])
		}
		b.press("Broadcast a test message")
	}
	broadcast("wrong")
	b.eventually("The broker did not do this.", "channel token does not match")
	broadcast("channel-token")
	b.eventually("Done. Broadcast message", `"test": true`, "1 job, 1 DELIVERED.")
	b.audit()
	b.open("channel?name=orders")
	b.eventually("4 messages shown", "Next scheduled")
	b.audit()
	// A scheduled message is cancelled before its time.
	_, err = brokerclient.New(node.URL(), nil).Broadcast(t.Context(), producer,
		brokerclient.Message{ID: "later", Payload: []byte(`{"order":7}`), At: time.Now().Add(time.Hour)})
	require.NoError(t, err)
	b.open("channel?name=orders")
	b.eventually("Scheduled\n1")
	b.click(`//main//div[dt="Scheduled"]//a`)
	b.eventually("1 message shown", "Scheduled messages")
	b.audit()
	b.press("later")
	b.eventually("The broker broadcasts this message in ", "SCHEDULED", `"order": 7`)
	b.audit()
	b.press("Cancel the message…")
	b.press("Cancel the message")
	b.eventually("Done. Cancelled message later. Nobody gets it.", "Scheduled\n0", "0 messages shown")
	b.open("brokermessage?channel=orders&id=later&status=scheduled")
	b.eventually("Not found")
	b.open("brokerconsumer?channel=orders&consumer=billing")
	b.eventually("Failed\n0")
	b.open("overview")
	b.eventually("Broker", "Healthy")
	b.audit()
	b.open("brokerconsumer?channel=orders&consumer=none")
	b.eventually("Not found")
}
