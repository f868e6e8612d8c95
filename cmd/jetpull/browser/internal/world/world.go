// Package world runs a stream with workers, a broker, a relay and a feed in this process. Some of their work fails. The demo of the
// console and the screenshots in the documentation show it.
package world

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/broker"
	brokerclient "github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/natsembed"
	"github.com/jetpull/jetpull/relay"
	"github.com/jetpull/jetpull/relay/client"
)

// World is a running world.
type World struct {
	// Console is the configuration of a console with all sources of the world.
	Console console.Config

	log     *slog.Logger
	js      jetstream.JetStream
	stop    context.CancelFunc
	running sync.WaitGroup
	closers service.Closers
}

// Start starts a world that stores its data in dir. The caller must stop it.
func Start(ctx context.Context, dir string, log *slog.Logger) (*World, error) {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &World{log: log, stop: stop, Console: console.Config{Loopback: true, Log: log}}
	for _, begin := range []func(context.Context, string) error{w.beginStream, w.beginBroker, w.beginRelay, w.beginFeed} {
		if err := begin(running, dir); err != nil {
			w.Stop()
			return nil, err
		}
	}
	return w, nil
}

// Stop ends all work and waits for it.
func (w *World) Stop() {
	w.stop()
	w.running.Wait()
	w.closers.Close()
}

// every calls do at intervals until ctx ends. n counts the calls, from 0.
func (w *World) every(ctx context.Context, pause time.Duration, do func(n int)) {
	n := 0
	w.running.Go(func() { watch.Every(ctx, pause, func() { do(n); n++ }) })
}

// warn logs an error after which the work continues.
func (w *World) warn(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		w.log.Warn("demo: work failed", "what", what, "error", err)
	}
}

// beginStream starts a NATS server with a stream of orders and five consumers: one works, one is slow, one fails, one has no worker, and
// one is paused.
func (w *World) beginStream(ctx context.Context, dir string) error {
	srv, err := natsembed.Start(ctx, natsembed.Options{Dir: filepath.Join(dir, "nats"), Port: natsembed.NoPort})
	if err != nil {
		return err
	}
	w.closers.Add(srv.Stop)
	nc, err := srv.Connect()
	if err != nil {
		return err
	}
	w.closers.Add(nc.Close)
	if w.js, err = jetstream.New(nc); err != nil {
		return err
	}
	w.Console.NATS = console.JetStream(w.js)
	for _, cfg := range []jetstream.StreamConfig{
		{Name: "ORDERS", Subjects: []string{"orders.>"}, AllowDirect: true, MaxMsgs: 100_000},
		{Name: "DEADLETTERS", Subjects: []string{"dead.>"}, AllowDirect: true},
	} {
		if _, err := w.js.CreateOrUpdateStream(ctx, cfg); err != nil {
			return err
		}
	}
	for _, cfg := range []jetstream.ConsumerConfig{
		{Durable: "billing", Description: "Charges the card of each order"},
		{Durable: "warehouse", Description: "Slow on purpose: more is delivered than acknowledged", MaxAckPending: 8, AckWait: time.Minute},
		{Durable: "mail", Description: "Fails on purpose, so that there are dead letters"},
		{Durable: "reports", Description: "Nobody works on it"},
		{
			Durable: "ledger", Description: "One client at a time", PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"main"},
			PinnedTTL: time.Minute,
		},
	} {
		cfg.AckPolicy = jetstream.AckExplicitPolicy
		if _, err := w.js.CreateOrUpdateConsumer(ctx, "ORDERS", cfg); err != nil {
			return err
		}
	}
	archive := jetstream.ConsumerConfig{Durable: "archive", AckPolicy: jetstream.AckExplicitPolicy, PauseUntil: new(time.Now().Add(4 * time.Hour))}
	if _, err := w.js.CreateOrUpdateConsumer(ctx, "DEADLETTERS", archive); err != nil {
		return err
	}
	kinds := []string{"new", "paid", "shipped"}
	w.every(ctx, 20*time.Millisecond, func(n int) {
		m := &nats.Msg{Subject: "orders." + kinds[n%3], Data: fmt.Appendf(nil, `{"order":%d,"total":%d,"currency":"EUR"}`, n, rand.IntN(20_000))}
		_, err := w.js.PublishMsg(ctx, m)
		w.warn(ctx, "publish", err)
	})
	w.work(ctx, "billing", func(context.Context, *jetpull.Msg) error { return nil }, jetpull.Concurrency(4))
	w.work(ctx, "warehouse", func(ctx context.Context, _ *jetpull.Msg) error { return watch.Sleep(ctx, 400*time.Millisecond) }, jetpull.Concurrency(8))
	w.work(ctx, "ledger", func(context.Context, *jetpull.Msg) error { return nil }, jetpull.Group("main"))
	w.work(ctx, "mail", func(_ context.Context, m *jetpull.Msg) error {
		if meta, err := m.Metadata(); err == nil && meta.Sequence.Stream%61 == 0 {
			return fmt.Errorf("smtp 550: mailbox of the customer is full (%s)", m.Subject())
		}
		return nil
	}, jetpull.Concurrency(4), jetpull.MaxAttempts(2), jetpull.RetryDelays(100*time.Millisecond), jetpull.DeadLetter("dead.mail"))
	return nil
}

func (w *World) work(ctx context.Context, consumer string, h jetpull.Handler, opts ...jetpull.SubscribeOption) {
	opts = append(opts, jetpull.Logger(slog.New(slog.DiscardHandler)))
	w.running.Go(func() {
		sub, err := jetpull.Subscribe(ctx, w.js, "ORDERS", consumer, opts...)
		if err != nil {
			w.warn(ctx, "subscribe", err)
			return
		}
		w.warn(ctx, "consume", sub.Consume(ctx, h))
	})
}

// token is used as the admin token and as every other token.
const token = "demo"

// settings returns the settings of a system in this process.
func settings(dir, system string) map[string]string {
	return map[string]string{"listen": "127.0.0.1:0", "store-dir": filepath.Join(dir, system), "admin-token": token}
}

// beginBroker starts a broker with a channel that has two push consumers: one takes everything, and one refuses some.
func (w *World) beginBroker(ctx context.Context, dir string) error {
	address, err := w.receivers(ctx)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "broker.cfg")
	config := fmt.Appendf(nil, `[broker]
max-retry=1
retry-backoff-delays-in-seconds=1
[initial-channels]
orders=Orders
[initial-channel-tokens]
orders=demo
[initial-producers]
shop=Shop
[initial-producer-tokens]
shop=demo
[initial-consumers]
crm=http://%[1]s/accounting
invoices=http://%[1]s/legacy
[crm]
token=demo
channel=orders
[invoices]
token=demo
channel=orders
`, address)
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return err
	}
	cfg, err := broker.LoadConfig(broker.Sources{File: file, Flags: settings(dir, "broker")})
	if err != nil {
		return err
	}
	node, err := broker.Start(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	w.closers.Add(func() { w.warn(context.Background(), "stop the broker", node.Stop(context.Background())) })
	w.Console.Broker = brokerclient.NewAdmin(node.URL(), token, nil)
	producer, sender := brokerclient.Producer{Channel: "orders", ChannelToken: token, ID: "shop", Token: token}, brokerclient.New(node.URL(), nil)
	w.every(ctx, 300*time.Millisecond, func(n int) {
		_, err := sender.Broadcast(ctx, producer, brokerclient.Message{ContentType: "application/json", Payload: fmt.Appendf(nil, `{"order":%d}`, n)})
		w.warn(ctx, "broadcast", err)
	})
	return nil
}

// beginRelay starts a relay with three receivers: one answers, one is slow with a rate limit, and one refuses some messages.
func (w *World) beginRelay(ctx context.Context, dir string) error {
	cfg, err := relay.LoadConfig(relay.Sources{Flags: settings(dir, "relay")})
	if err != nil {
		return err
	}
	node, err := relay.Start(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	w.closers.Add(func() { w.warn(context.Background(), "stop the relay", node.Stop(context.Background())) })
	address, err := w.receivers(ctx)
	if err != nil {
		return err
	}
	call := client.New(node.URL(), token, nil)
	w.Console.Relay = call
	for name, config := range map[string]map[string]any{
		"accounting": {},
		"partner":    {"rate_limit": 20, "window_size": 10},
		"legacy":     {"max_retries": 0},
	} {
		config["post_endpoint"] = "http://" + address + "/" + name
		if err := call.Call(ctx, http.MethodPut, "/v1/receivers/"+name, config, nil); err != nil {
			return err
		}
	}
	names := []string{"accounting", "partner", "legacy"}
	w.every(ctx, 150*time.Millisecond, func(n int) {
		_, err := call.Send(ctx, client.Message{
			Source: "shop", ID: fmt.Sprintf("%d-%d", time.Now().UnixNano(), n), Receiver: names[n%3],
			Payload: map[string]int{"order": n},
		})
		w.warn(ctx, "send", err)
	})
	return nil
}

// receivers serves the endpoints to which the broker and the relay deliver.
func (w *World) receivers(ctx context.Context) (address string, err error) {
	mux := http.NewServeMux()
	mux.HandleFunc("/accounting", func(rw http.ResponseWriter, _ *http.Request) { _, _ = rw.Write([]byte(`{"booked":true}`)) })
	mux.HandleFunc("/partner", func(rw http.ResponseWriter, r *http.Request) {
		_ = watch.Sleep(r.Context(), 200*time.Millisecond)
		_, _ = rw.Write([]byte(`{"accepted":true}`))
	})
	mux.HandleFunc("/legacy", func(rw http.ResponseWriter, _ *http.Request) {
		if rand.IntN(6) == 0 {
			http.Error(rw, "order has no customer number", http.StatusUnprocessableEntity)
			return
		}
		_, _ = rw.Write([]byte("ok"))
	})
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	w.running.Go(func() { _ = srv.Serve(l) })
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	return l.Addr().String(), nil
}

// beginFeed starts a feed on SQLite with partitions of items that go through three gates, and one that is held by failures.
func (w *World) beginFeed(ctx context.Context, dir string) error {
	store, err := feed.Open(ctx, "sqlite:"+filepath.Join(dir, "feed.db"))
	if err != nil {
		return err
	}
	w.closers.Add(func() { _ = store.Close() })
	w.Console.Feed = store
	run := time.Now().UTC().Format("0102-150405")
	for p := range 6 {
		items := make([]feed.Item, 200)
		for i := range items {
			items[i] = feed.Item{ID: fmt.Sprintf("resume-%03d", i), Data: fmt.Appendf(nil, `{"candidate":%d}`, i)}
		}
		if _, err := store.CreatePartition(ctx, feed.Partition{ID: fmt.Sprintf("applications-%s-%d", run, p), Sealed: true}, items...); err != nil {
			return err
		}
	}
	watcher := feed.NewWatcher(store, feed.ProcessorFunc(func(ctx context.Context, it feed.Item) (feed.Response, error) {
		if err := watch.Sleep(ctx, 200*time.Millisecond); err != nil {
			return feed.Response{}, err
		}
		if it.Partition == fmt.Sprintf("applications-%s-2", run) && it.ID < "resume-004" {
			return feed.Response{}, feed.Permanent(errors.New("the document has no text layer"))
		}
		next := it.Gate + 1
		return feed.Response{Gate: &next, Done: next == 3}, nil
	}), feed.Concurrency(6), feed.Logger(slog.New(slog.DiscardHandler)), feed.AutoClose())
	w.Console.FeedWatcher = watcher
	w.running.Go(func() { w.warn(ctx, "feed", watcher.Run(ctx)) })
	return nil
}
