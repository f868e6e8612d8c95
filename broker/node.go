package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/backup"
	"github.com/jetpull/jetpull/broker/internal/httpapi"
	"github.com/jetpull/jetpull/broker/internal/journal"
	"github.com/jetpull/jetpull/broker/internal/work"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/internal/service/webhook/events"
	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/natsembed"
)

// httpDrain bounds the wait for requests in progress during a stop.
const httpDrain = 15 * time.Second

// Node is a running broker process.
type Node struct {
	cfg      *Config
	log      *slog.Logger
	embedded *natsembed.Server // nil with an external server
	nc       *nats.Conn
	store    *journal.Store
	broker   *work.Broker
	server   *httpserve.Server
	addr     string          // of the listener
	secure   bool            // the listener serves HTTPS
	stopping context.Context // ends when long polls must end
	endPolls context.CancelFunc
	stopOnce sync.Once
	stopped  error           // the result of Stop
	release  service.Closers // releases everything but the listener
	lacks    service.Permissions
	progress func() // reports that the start makes progress
	// handler serves all requests. It is nil until the broker has started.
	handler atomic.Pointer[http.Handler]
	// broken ends, with the cause, when the embedded server can no longer write.
	broken    context.Context
	breakDown context.CancelCauseFunc

	console     func(api http.Handler) (http.Handler, func()) // nil means none
	natsOptions []nats.Option
	notices     io.Writer // gets notices about the configuration that the log's level hides; nil means none
	// fsync replaces the system's, so that tests can simulate a power failure.
	fsync func(f *os.File) error
}

// Option changes how a node starts.
type Option func(*Node)

// NATSOptions adds options to the connection to an existing server, such as credentials that are not in a file. The options of the configuration are
// applied after them. An embedded server ignores them.
func NATSOptions(opts ...nats.Option) Option {
	return func(n *Node) { n.natsOptions = append(n.natsOptions, opts...) }
}

// Notices writes notices about the configuration, such as reduced values, also to w if the log's level hides them.
func Notices(w io.Writer) Option {
	return func(n *Node) { n.notices = w }
}

// Console also serves the handler that open returns, at /console/ on the broker's listener. The broker does not check tokens there, so the handler
// must. api is the broker's HTTP interface, for requests from this process. [Node.Stop] calls stop.
func Console(open func(api http.Handler) (console http.Handler, stop func())) Option {
	return func(n *Node) { n.console = open }
}

// Start starts a broker. When it returns, the broker serves requests at [Node.Addr]. Before that, it answers requests with 503, and /healthz with
// 200. ctx limits only the start; use [Node.Stop] to stop the broker. If Start returns an error, it has stopped everything that it started.
func Start(ctx context.Context, cfg *Config, log *slog.Logger, opts ...Option) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, log: log}
	n.stopping, n.endPolls = context.WithCancel(context.WithoutCancel(ctx))
	n.broken, n.breakDown = context.WithCancelCause(context.WithoutCancel(ctx))
	for _, option := range opts {
		option(n)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	// The limit starts with the first contact with a server. Before that, an embedded server may need a long time to read its blocks.
	wait := n.cfg.NATS.StartWait
	stall := time.AfterFunc(math.MaxInt64, func() {
		cancel(fmt.Errorf("the start has waited for %v ([nats] start-wait-in-seconds; 0: no limit): %w", wait, context.DeadlineExceeded))
	})
	defer func() { stall.Stop(); cancel(nil) }()
	n.progress = func() {
		if wait > 0 {
			stall.Reset(wait)
		}
	}
	for _, w := range slices.Concat(cfg.Warnings, cfg.Seed.Skipped) {
		n.notice(ctx, slog.LevelWarn, w)
	}
	level, text := notice(cfg.Prune.Retention)
	n.notice(ctx, level, text)
	for _, step := range []func(context.Context) error{n.listen, n.connect, n.startBroker} {
		if err := step(ctx); err != nil {
			if n.server != nil {
				_ = n.server.Stop(context.WithoutCancel(ctx), httpDrain)
			}
			n.endPolls()
			n.release.Close()
			return nil, err
		}
	}
	n.serve()
	return n, nil
}

func (n *Node) notice(ctx context.Context, level slog.Level, text string) {
	if n.notices == nil || n.log.Enabled(ctx, level) {
		n.log.Log(ctx, level, "configuration", "notice", text)
		return
	}
	if _, err := fmt.Fprintf(n.notices, "broker: %s\n", text); err != nil {
		n.log.Error("standard error", "error", err)
	}
}

func (n *Node) startBroker(ctx context.Context) error {
	n.progress()
	js, err := n.jetStream()
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	if n.embedded != nil {
		if err := service.CheckStore(ctx, js, n.cfg.NATS.StoreDir, "broker"); err != nil {
			return err
		}
	}
	cfg := journal.Config{
		Name: cmp.Or(n.cfg.NATS.Name, "broker"), Replicas: n.cfg.NATS.Replicas, Shared: n.embedded == nil,
		HashTokens: n.cfg.Admin.HashTokens, Logger: n.log, Progress: n.progress,
	}
	if n.embedded != nil && n.embedded.Sync() == natsembed.SyncGroup {
		cfg.Disk = n.embedded
	}
	n.store, err = journal.Open(ctx, js, cfg)
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	n.release.Add(n.store.Close)
	policy, err := n.cfg.Connection.Policy("consumer-connection", n.cfg.HTTP.Listener)
	if err != nil {
		return err
	}
	callbacks := webhook.NewClient(policy, n.cfg.Connection.Timeout)
	sender := events.Start(events.Config{
		URL: n.cfg.Breaker.EventURL, UserAgent: n.cfg.Connection.UserAgent, Way: policy, Timeout: n.cfg.Connection.Timeout, Log: n.log,
	})
	n.release.Add(callbacks.Close, sender.Close)
	s := n.store
	parts := work.Parts{
		Settings: s.Directory.Consumers, Messages: s.Messages, Records: s.Jobs,
		Index: s.Index, Replays: s.Replays, Shards: s.Shards, Health: s,
		Events: sender, Poster: callbacks, Log: n.log, Usage: accountUsage(js), Permitted: n.lacks.Err, Full: func() error { return nil },
		Rules: work.Rules{
			DispatchRules: n.cfg.Dispatch, BreakerRules: n.cfg.Breaker, CallbackRules: n.cfg.Connection, PruneRules: n.cfg.Prune,
			MinDelay: n.cfg.Scheduler.MinDelay, Shared: n.cfg.NATS.URL != "",
		},
	}
	producers, channels, consumers := n.cfg.Seed.objects()
	if err := s.Directory.Seed(ctx, producers, channels, consumers); err != nil {
		return fmt.Errorf("start the broker: %w", err)
	}
	if n.embedded != nil {
		parts.Full, parts.Usage = n.watchSpace(js)
	}
	n.broker = work.New(parts)
	n.broker.Start()
	return nil
}

// watchSpace checks the free space until the node releases its resources.
func (n *Node) watchSpace(js jetstream.JetStream) (full func() error, usage func(context.Context) (work.Usage, error)) {
	r := &spaceMonitor{dir: n.cfg.NATS.StoreDir, most: n.cfg.NATS.StoreMax, disk: diskSpace, used: accountUsage(js), log: n.log}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { watch.Every(ctx, spacePause, func() { r.look(ctx) }) })
	n.release.Add(func() { cancel(); running.Wait() })
	return func() error { return cmp.Or(context.Cause(n.broken), r.Err()) }, r.usage
}

func (n *Node) jetStream() (jetstream.JetStream, error) {
	if n.cfg.NATS.Domain != "" {
		return jetstream.NewWithDomain(n.nc, n.cfg.NATS.Domain)
	}
	return jetstream.New(n.nc)
}

func (n *Node) backup() *httpapi.Backup {
	if n.embedded == nil {
		return nil
	}
	return &httpapi.Backup{Streams: backup.Streams(n.cfg.NATS.Name), Copy: func(ctx context.Context, stream string, to io.Writer) error {
		return backup.Write(ctx, n.nc, stream, to)
	}}
}

// listen starts the listener before the broker can serve, so that health checks can observe a waiting start.
func (n *Node) listen(ctx context.Context) (err error) {
	starting := httpserve.Starting(true, func() string {
		if err := n.lacks.Err(); err != nil {
			return "the broker does not start: " + err.Error()
		}
		return "the broker starts: it waits for its NATS servers, or reads its store"
	})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if started := n.handler.Load(); started != nil {
			(*started).ServeHTTP(w, r)
		} else {
			starting.ServeHTTP(w, r)
		}
	})
	n.server, err = httpserve.Listen(ctx, httpserve.Config{
		Address: n.cfg.HTTP.Listener, Handler: handler, Cert: n.cfg.HTTP.TLSCert, Key: n.cfg.HTTP.TLSKey,
		Read: n.cfg.HTTP.ReadTimeout, Write: n.cfg.HTTP.WriteTimeout, PerAddress: n.cfg.HTTP.PerAddress, Proxies: n.cfg.HTTP.Proxies,
		Public: n.cfg.HTTP.PublicURL, Log: n.log,
	})
	if err == nil {
		n.addr, n.secure = n.server.Addr(), n.cfg.HTTP.TLSCert != ""
	}
	return err
}

// serve routes requests to the started broker.
func (n *Node) serve() {
	gateway, _ := n.cfg.Gateway.check() // Validate has checked it
	opts := httpapi.Options{
		HTTP: n.cfg.HTTP.HTTP, Admin: n.cfg.Admin.Admin, Logger: n.log, Stopping: n.stopping, Backup: n.backup(), Gateway: gateway,
		WriteTimeout: n.cfg.HTTP.WriteTimeout, Seed: n.cfg.Seed.shown(),
	}
	var handler http.Handler = httpapi.New(n.broker, n.store.Directory, opts)
	if n.console != nil {
		console, stop := n.console(handler)
		n.release.Add(stop)
		handler = httpserve.Mount(n.stopping, "/console/", console, handler)
	}
	n.handler.Store(&handler)
}

// Addr returns the address that the broker listens on.
func (n *Node) Addr() string { return n.addr }

// URL returns Addr as a URL.
func (n *Node) URL() string {
	if n.secure {
		return "https://" + n.Addr()
	}
	return "http://" + n.Addr()
}

// Wait blocks until ctx ends, and returns nil. It returns an error earlier if the listener fails, or if the embedded server can no longer write
// because the disk is full. In each case, the caller must stop the node.
func (n *Node) Wait(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.broken, cancel)()
	return errors.Join(n.server.Wait(ctx), context.Cause(n.broken))
}

// Stop shuts the broker down. It refuses new requests, ends long polls, answers requests in progress, waits for callbacks in progress, and returns
// waiting jobs to the queue. When ctx ends, Stop stops waiting. A concurrent call waits for the first one, whatever its own ctx.
func (n *Node) Stop(ctx context.Context) error {
	n.stopOnce.Do(func() {
		n.endPolls()
		n.stopped = n.server.Stop(ctx, httpDrain)
		if err := n.broker.Close(ctx); err != nil {
			n.stopped = errors.Join(n.stopped, fmt.Errorf("callbacks were cut: %w", err))
		}
		n.release.Close()
	})
	return n.stopped
}
