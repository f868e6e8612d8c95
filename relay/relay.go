package relay

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/getsentry/sentry-go"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/jsstream"
	"github.com/jetpull/jetpull/internal/mask"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/webhook"
	"github.com/jetpull/jetpull/internal/service/webhook/events"
	"github.com/jetpull/jetpull/natsembed"
	"github.com/jetpull/jetpull/relay/internal/httpapi"
	"github.com/jetpull/jetpull/relay/internal/store"
	"github.com/jetpull/jetpull/relay/internal/work"
)

const (
	// startTimeout bounds everything before the listener opens.
	startTimeout = 2 * time.Minute
	// httpDrain bounds the wait for requests in progress at a stop.
	httpDrain = 10 * time.Second
	// readTimeout bounds the time in which a request must be received.
	readTimeout = time.Minute
	// writeTimeout bounds a request with its answer. It is longer than the longest request, its wait and its answer together.
	writeTimeout = 7 * time.Minute
	// eventTimeout bounds a request to the operator's URL.
	eventTimeout = 30 * time.Second
	// sentryFlush bounds the time in which a stop sends reports.
	sentryFlush = 2 * time.Second
)

// Node is a running relay process.
type Node struct {
	cfg      *Config
	log      *slog.Logger
	nc       *nats.Conn
	store    *store.Store
	workers  *work.Workers
	lacks    service.Permissions
	server   *httpserve.Server
	stopping context.Context
	endWaits context.CancelFunc // ends stopping
	stop     sync.Once
	stopped  error
	release  service.Closers                               // everything but the listener
	console  func(api http.Handler) (http.Handler, func()) // nil: none
	disk     jsstream.Disk                                 // of the embedded server with [nats] sync always; otherwise nil
	fsync    func(f *os.File) error                        // lets tests simulate a loss of power
	options  []nats.Option                                 // of the connection to an existing server
}

// Option changes how a node starts.
type Option func(*Node)

// NATSOptions adds options to the connection to an existing server. The credentials of the configuration are applied after them.
func NATSOptions(opts ...nats.Option) Option {
	return func(n *Node) { n.options = append(n.options, opts...) }
}

// Console serves the handler that open returns at /console/ on the relay's listener. The handler must check tokens: the relay does not do so there.
// api is the relay's HTTP interface, for requests from this process. [Node.Stop] calls stop.
func Console(open func(api http.Handler) (console http.Handler, stop func())) Option {
	return func(n *Node) { n.console = open }
}

// Start starts a relay. When it returns, the relay serves requests at [Node.Addr]. ctx bounds only the start; [Node.Stop] stops the relay. After an
// error, everything that Start started has been stopped.
func Start(ctx context.Context, cfg *Config, log *slog.Logger, opts ...Option) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, log: log}
	for _, option := range opts {
		option(n)
	}
	n.stopping, n.endWaits = context.WithCancel(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, step := range []func(context.Context) error{n.connect, n.startWork, n.listen} {
		if err := step(ctx); err != nil {
			n.endWaits()
			n.release.Close()
			return nil, err
		}
	}
	return n, nil
}

// connect starts the embedded server, or connects to the configured one.
func (n *Node) connect(ctx context.Context) (err error) {
	opts := service.NATSOptions("jetpull relay", n.log)
	if n.cfg.NATS.URL != "" {
		opts = append(append(opts, n.options...), n.lacks.Watch)
		if n.nc, err = service.Connect(n.cfg.NATS.URL, n.cfg.NATS.Creds, opts...); err == nil {
			n.release.Add(n.nc.Close)
		}
		return err
	}
	sync, _ := natsembed.ParseSync(n.cfg.NATS.Sync) // Validate has checked it
	embedded, err := natsembed.Start(ctx, natsembed.Options{
		Dir: n.cfg.NATS.StoreDir, Port: natsembed.NoPort, Name: "jetpull-relay", Sync: sync, Fsync: n.fsync,
		MaxPayload: int32(store.EntryOverhead + max(n.cfg.HTTP.MaxBodyBytes, work.MostJSON(n.cfg.Relay.MaxResponse))),
		Logger:     n.log.With("part", "nats"),
		// Nearly every message has its own subject, so the server would only fill and sweep its cache of subjects.
		Configure: func(o *server.Options) error { o.NoSublistCache = true; return nil },
	})
	if err != nil {
		return fmt.Errorf("[nats] store-dir %s: %w", n.cfg.NATS.StoreDir, err)
	}
	n.release.Add(embedded.Stop)
	if sync == natsembed.SyncGroup {
		n.disk = embedded
	}
	if n.nc, err = embedded.Connect(opts...); err != nil {
		return err
	}
	n.release.Add(n.nc.Close)
	js, err := jetstream.New(n.nc)
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	return service.CheckStore(ctx, js, n.cfg.NATS.StoreDir, "relay")
}

func (n *Node) startWork(ctx context.Context) error {
	reporter, err := newReporter(n.log, n.cfg.Sentry.DSN)
	if err != nil {
		return err
	}
	n.release.Add(reporter.close)
	n.store, err = store.Open(ctx, n.nc, store.Config{
		Name: n.cfg.NATS.Name, Replicas: n.cfg.NATS.Replicas, Embedded: n.cfg.NATS.URL == "", Tombstone: n.cfg.Relay.Tombstone, Disk: n.disk,
		Logger: n.log,
	})
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	n.release.Add(n.store.Close)
	policy, err := n.cfg.Relay.Policy("relay", n.cfg.HTTP.Listener)
	if err != nil {
		return err
	}
	client := webhook.NewClient(policy, n.cfg.Relay.CallbackTimeout)
	n.release.Add(client.Close)
	sender := events.Start(events.Config{URL: n.cfg.Relay.EventURL, UserAgent: "jetpull-relay", Way: policy, Timeout: eventTimeout, Log: n.log})
	n.release.Add(sender.Close)
	n.workers = work.Start(ctx, n.store, work.Config{
		Rules: n.cfg.Relay, Client: client, Logger: n.log, Reporter: reporter, Events: sender,
	})
	n.release.Add(n.workers.Close)
	return nil
}

func (n *Node) listen(ctx context.Context) (err error) {
	handler := httpapi.New(n.store, n.workers, httpapi.Options{
		HTTP: n.cfg.HTTP, Admin: n.cfg.Admin, Logger: n.log, Stopping: n.stopping, Permitted: n.lacks.Err,
	})
	if n.console != nil {
		console, stop := n.console(handler)
		n.release.Add(stop)
		handler = httpserve.Mount(n.stopping, "/console/", console, handler)
	}
	n.server, err = httpserve.Listen(ctx, httpserve.Config{
		Address: n.cfg.HTTP.Listener, Handler: handler, Read: readTimeout, Write: writeTimeout, PerAddress: n.cfg.HTTP.PerAddress,
		Proxies: n.cfg.HTTP.Proxies, Public: n.cfg.HTTP.PublicURL, Log: n.log,
	})
	return err
}

// Addr returns the address of the listener.
func (n *Node) Addr() string { return n.server.Addr() }

// URL returns Addr as a URL.
func (n *Node) URL() string { return "http://" + n.Addr() }

// Wait blocks until ctx ends, and then returns nil. It returns an error earlier if the listener fails. Call Stop in both cases.
func (n *Node) Wait(ctx context.Context) error { return n.server.Wait(ctx) }

// Stop shuts the relay down. It refuses new requests, and waits for those in progress until ctx ends, at most 10 s. It hands waiting messages over to
// other processes at once. It waits for POSTs in flight for the configured drain, 35 s by default, regardless of ctx.
func (n *Node) Stop(ctx context.Context) error {
	n.stop.Do(func() {
		n.endWaits()
		n.stopped = n.server.Stop(ctx, httpDrain)
		n.release.Close()
	})
	return n.stopped
}

// reporter writes errors to the log, and sends them to Sentry if there is a DSN.
type reporter struct {
	log *slog.Logger
	hub *sentry.Hub // without a DSN it sends nothing
}

func newReporter(log *slog.Logger, dsn string) (_ *reporter, err error) {
	var client *sentry.Client
	if dsn != "" {
		if client, err = sentry.NewClient(sentry.ClientOptions{Dsn: dsn}); err != nil {
			return nil, fmt.Errorf("[sentry] dsn: %w", mask.Error(err, dsn))
		}
	}
	return &reporter{log, sentry.NewHub(client, sentry.NewScope())}, nil
}

// Report implements work.Reporter.
func (r *reporter) Report(ctx context.Context, err error, about ...any) {
	r.log.ErrorContext(ctx, "error", append([]any{"error", err}, about...)...)
	hub := r.hub.Clone() // with a scope of its own
	for i := 0; i+1 < len(about); i += 2 {
		hub.Scope().SetTag(fmt.Sprint(about[i]), fmt.Sprint(about[i+1]))
	}
	hub.CaptureException(err)
}

func (r *reporter) close() { r.hub.Flush(sentryFlush) }
