package broker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/bench/internal/child"
	"github.com/jetpull/jetpull/broker"
)

const (
	stopTimeout = 20 * time.Second
	// unsynced is the path of the bare handler's requests that it answers without a sync.
	unsynced = "/unsynced"
	// besideEnv is the variable with the URL of a running broker with the same contract (the original, or another build),
	// such as http://127.0.0.1:8080. It gets the same load in the same rounds. Its store must be empty. Each benchmark
	// registers its own producer and channel, and does not delete what it stored.
	besideEnv = "JETPULL_BENCH_BESIDE"
)

func TestMain(m *testing.M) {
	child.Main(serve)
	os.Exit(m.Run())
}

// serve runs the broker, the bare handler, or a cluster of three servers.
func serve(ctx context.Context, args []string, ready func(urls ...string)) error {
	kind, dir, sync := args[0], args[1], args[2]
	switch kind {
	case "bare":
		return serveBare(ctx, dir, ready)
	case "cluster":
		return serveCluster(ctx, dir, sync, ready)
	}
	cfg := broker.DefaultConfig()
	cfg.HTTP.Listener = "127.0.0.1:0"
	cfg.NATS.StoreDir = dir
	cfg.NATS.Sync = sync
	if len(args) > 3 {
		cfg.NATS.URL, cfg.NATS.StoreDir, cfg.NATS.Sync, cfg.NATS.Replicas = args[3], "", broker.DefaultConfig().NATS.Sync, clusterSize
	}
	n, err := broker.Start(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	if err != nil {
		return err
	}
	ready(n.URL())
	err = n.Wait(ctx)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return errors.Join(err, n.Stop(stopping))
}

// serveBare appends each body to a file, syncs it and responds. On one connection, no response that means "on disk" can be faster.
func serveBare(ctx context.Context, dir string, ready func(urls ...string)) error {
	file, err := os.Create(filepath.Join(dir, "bare"))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var mu sync.Mutex
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			_, err = file.Write(body)
		}
		if err == nil && r.URL.Path != unsynced {
			err = file.Sync()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	ready("http://" + listener.Addr().String())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// process is a broker under load.
type process struct {
	child *child.Process // nil if the benchmark did not start it
	url   string
	id    string // of its producer and its channel
}

// start starts a system with an empty store. nats is the URL of the broker's cluster, if it has one.
func start(b *testing.B, kind, sync string, nats ...string) *process {
	b.Helper()
	dir := b.TempDir()
	c, err := child.Start(append([]string{kind, dir, sync}, nats...)...)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, c.Stop()) })
	return &process{child: c, url: c.URLs[0]}
}

// register creates a producer and a channel.
func (p *process) register(b *testing.B) {
	b.Helper()
	p.id = "bench" + strconv.FormatInt(time.Now().UnixNano(), 36)
	p.put(b, "/producer/"+p.id, url.Values{})
	p.put(b, p.channel(), url.Values{})
}

// each runs a benchmark with each sync setting, and on the broker of besideEnv, if there is one.
func each(b *testing.B, name string, f func(*testing.B, *process)) {
	b.Helper()
	for _, sync := range []string{"always", "2m"} {
		b.Run(name+"/broker="+sync, func(b *testing.B) {
			p := start(b, "broker", sync)
			p.register(b)
			f(b, p)
		})
	}
	if beside := os.Getenv(besideEnv); beside != "" {
		b.Run(name+"/broker=beside", func(b *testing.B) {
			p := &process{url: beside}
			p.register(b)
			f(b, p)
		})
	}
}
