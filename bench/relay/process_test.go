package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/bench/internal/child"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/natsembed"
	"github.com/jetpull/jetpull/relay"
)

const (
	stopTimeout = 50 * time.Second
	waitTimeout = 20 * time.Minute
	// naiveWorkers is the number of workers of the naive path. Each handles one message at a time.
	naiveWorkers = 64
	batchSize    = 500
	connections  = 8
)

var payload = bytes.Repeat([]byte("x"), 480)

func TestMain(m *testing.M) {
	child.Main(serve)
	os.Exit(m.Run())
}

// serve runs the relay, its floor, or the naive path.
func serve(ctx context.Context, args []string, ready func(urls ...string)) error {
	dir := args[0]
	switch args[1] {
	case "naive":
		return serveNaive(ctx, dir, args[2], args[3], ready)
	case "floor":
		return serveFloor(ctx, dir, args[2], args[3], ready)
	}
	cfg := relay.DefaultConfig()
	cfg.HTTP.Listener, cfg.NATS.StoreDir = "127.0.0.1:0", dir
	if len(args) > 2 {
		cfg.NATS.Sync = args[2]
	}
	n, err := relay.Start(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	if err != nil {
		return err
	}
	ready(n.URL())
	err = n.Wait(ctx)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return errors.Join(err, n.Stop(stopping))
}

// embedded starts a server. stop stops it.
func embedded(ctx context.Context, o natsembed.Options, opts ...jetstream.JetStreamOpt) (js jetstream.JetStream, stop func(), err error) {
	srv, err := natsembed.Start(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	nc, err := srv.Connect()
	if err != nil {
		srv.Stop()
		return nil, nil, err
	}
	stop = func() { nc.Close(); srv.Stop() }
	if js, err = jetstream.New(nc, opts...); err != nil {
		stop()
	}
	return js, stop, err
}

func serveNaive(ctx context.Context, dir, target, messages string, ready func(urls ...string)) error {
	n, err := strconv.Atoi(messages)
	if err != nil {
		return err
	}
	js, stop, err := embedded(ctx, natsembed.Options{Dir: dir, Port: natsembed.NoPort})
	if err != nil {
		return err
	}
	defer stop()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "naive", Subjects: []string{"naive"},
		Retention: jetstream.WorkQueuePolicy,
	}); err != nil {
		return err
	}
	if _, err := js.CreateConsumer(ctx, "naive", jetstream.ConsumerConfig{Durable: "naive", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
		return err
	}
	sub, err := jetpull.Subscribe(ctx, js, "naive", "naive")
	if err != nil {
		return err
	}
	client := webhook.NewClient(webhook.Policy{Any: true}, time.Minute)
	ready()
	for range n {
		if _, err := js.PublishAsync("naive", payload); err != nil {
			return err
		}
	}
	return sub.Consume(ctx, func(ctx context.Context, m *jetpull.Msg) error {
		_, err := post(ctx, client, webhook.Request{URL: target, Body: m.Data()})
		return err
	}, jetpull.Concurrency(naiveWorkers))
}

// process is a system under load.
type process struct{ *child.Process }

// start starts a system with an empty store.
func start(b *testing.B, args ...string) *process {
	b.Helper()
	dir := b.TempDir()
	c, err := child.Start(append([]string{dir}, args...)...)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, c.Stop()) })
	return &process{c}
}

func (p *process) cpu(b *testing.B) time.Duration {
	b.Helper()
	cpu, err := p.CPU()
	require.NoError(b, err)
	return cpu
}

// errUnavailable is returned if the relay accepted only a part of a request, or nothing. The request must be repeated.
var errUnavailable = errors.New("the relay is not available")

// call makes a request that must succeed, and decodes the answer into value unless that is nil.
func (p *process) call(ctx context.Context, method, path string, body []byte, value any) error {
	req, err := http.NewRequestWithContext(ctx, method, p.URLs[0]+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if bytes.Contains(data, []byte(`"code":"unavailable"`)) {
		return errUnavailable
	}
	if resp.StatusCode >= http.StatusMultipleChoices || bytes.Contains(data, []byte(`"error":{`)) {
		return fmt.Errorf("%s %s: %d %.300s", method, path, resp.StatusCode, data)
	}
	if value == nil {
		return nil
	}
	return json.Unmarshal(data, value)
}

func (p *process) mustCall(b *testing.B, method, path string, body []byte, value any) {
	b.Helper()
	require.NoError(b, p.call(b.Context(), method, path, body, value))
}

// crowd is a set of sources and receivers among which messages are distributed.
type crowd struct {
	sources, receivers int
	name               string // the prefix of its receivers' names
}

func (c crowd) line(i int) []byte {
	return fmt.Appendf(nil, `{"source_id":"s%[1]d","message_id":"%[2]s%[3]d","receiver":"%[2]sr%[4]d","payload":{"text":%[5]q}}`+"\n",
		i%c.sources, c.name, i, i%c.receivers, payload)
}

// receivers creates the receivers of a crowd, all with the same URL.
func (p *process) receivers(b *testing.B, c crowd, url string, paused bool) {
	for i := range c.receivers {
		body := fmt.Appendf(nil, `{"post_endpoint":%q,"max_retries":0,"paused":%t}`, url, paused)
		p.mustCall(b, http.MethodPut, fmt.Sprintf("/v1/receivers/%sr%d", c.name, i), body, nil)
	}
}

// send submits the messages from..to-1 in batches, over several connections.
func (p *process) send(b *testing.B, c crowd, from, to int) {
	var next atomic.Int64
	next.Store(int64(from))
	load, ctx := errgroup.WithContext(b.Context())
	for range connections {
		load.Go(func() error {
			for {
				begin := int(next.Add(batchSize)) - batchSize
				if begin >= to {
					return nil
				}
				var body []byte
				for i := begin; i < min(to, begin+batchSize); i++ {
					body = append(body, c.line(i)...)
				}
				err := errUnavailable
				for errors.Is(err, errUnavailable) { // retry as a sender does: the relay knows the messages that it has
					err = p.call(ctx, http.MethodPost, "/v1/messages:batch", body, nil)
				}
				if err != nil {
					return err
				}
			}
		})
	}
	require.NoError(b, load.Wait())
}

// counter is an HTTP server that counts requests and responds at once.
type counter struct {
	*httptest.Server
	code atomic.Int64
	n    atomic.Int64
	want int64
	done chan struct{}
}

func newCounter(b *testing.B, want int) *counter {
	c := &counter{want: int64(want), done: make(chan struct{})}
	c.code.Store(http.StatusOK)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(int(c.code.Load()))
		_, _ = io.WriteString(w, `{"ok":true}`)
		if c.n.Add(1) == c.want {
			close(c.done)
		}
	}))
	b.Cleanup(c.Close)
	return c
}

func (c *counter) wait(b *testing.B) {
	b.Helper()
	select {
	case <-c.done:
	case <-b.Context().Done():
		b.Fatal("ended before all requests came")
	case <-time.After(waitTimeout):
		b.Fatalf("%d of %d requests came in %v", c.n.Load(), c.want, waitTimeout)
	}
}
