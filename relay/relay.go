package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/internal/webhook"
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
	// maxHeaderBytes bounds the headers of a request; more is a 431.
	maxHeaderBytes    = 64 << 10
	readHeaderTimeout = 10 * time.Second
	readTimeout       = time.Minute
	idleTimeout       = 2 * time.Minute
	reconnectWait     = 250 * time.Millisecond
	// entryRoom is what a message in a queue has beside its payload and response: record, history, headers.
	entryRoom = 256 << 10
)

// Node is a running relay process.
type Node struct {
	cfg      *Config
	log      *slog.Logger
	reporter *reporter
	embedded *natsembed.Server // nil with an external server
	nc       *nats.Conn
	store    *store.Store
	workers  *work.Workers
	client   *webhook.Client
	server   *http.Server
	listener net.Listener
	stopping chan struct{}
	served   chan error
}

// Start brings a relay up. When it returns, the relay serves, on the address of [Node.Addr]. What was started before
// an error is stopped again.
func Start(ctx context.Context, cfg *Config, log *slog.Logger) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, log: log, stopping: make(chan struct{}), served: make(chan error, 1)}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, step := range []func(context.Context) error{n.connect, n.startWork, n.listen} {
		if err := step(ctx); err != nil {
			n.release()
			return nil, err
		}
	}
	return n, nil
}

// connect starts the embedded server, or connects to the one that was named.
func (n *Node) connect(ctx context.Context) error {
	opts := []nats.Option{
		nats.Name("jetpull relay"), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait, reconnectWait),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { n.log.Warn("NATS connection", "error", err) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				n.log.Warn("NATS connection lost, reconnecting", "error", err)
			}
		}),
	}
	var err error
	if n.cfg.NATS.URL != "" {
		if n.cfg.NATS.Creds != "" {
			opts = append(opts, nats.UserCredentials(n.cfg.NATS.Creds))
		}
		if n.nc, err = nats.Connect(n.cfg.NATS.URL, opts...); err != nil {
			return fmt.Errorf("connect to [nats] url: %w", err)
		}
		return nil
	}
	each, every, err := n.cfg.NATS.parseSync()
	if err != nil {
		return err
	}
	n.embedded, err = natsembed.Start(ctx, natsembed.Options{
		Dir: n.cfg.NATS.StoreDir, Port: natsembed.NoPort, Name: "jetpull-relay", SyncAlways: each, SyncInterval: every,
		MaxPayload: int32(n.cfg.HTTP.MaxBodyBytes + n.cfg.Relay.MaxResponse*2 + entryRoom),
		Logger:     n.log.With("part", "nats"),
		// Nearly every message has a subject of its own, so the server's cache of subjects would only be filled and swept.
		Configure: func(o *server.Options) error { o.NoSublistCache = true; return nil },
	})
	if err != nil {
		return fmt.Errorf("[nats] store-dir %s: %w", n.cfg.NATS.StoreDir, err)
	}
	n.nc, err = n.embedded.Connect(opts...)
	return err
}

func (n *Node) startWork(ctx context.Context) error {
	var err error
	if n.reporter, err = newReporter(n.log, n.cfg.Sentry.DSN); err != nil {
		return err
	}
	n.store, err = store.Open(ctx, n.nc, store.Config{
		Name: n.cfg.NATS.Name, Replicas: n.cfg.NATS.Replicas, Embedded: n.embedded != nil, Tombstone: n.cfg.Relay.Tombstone, Logger: n.log,
	})
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	mode, allowed, err := parseNetworks(n.cfg.Relay.Networks)
	if err != nil {
		return err
	}
	loopback, err := n.cfg.HTTP.loopback()
	if err != nil {
		return err
	}
	n.client = webhook.NewClient(webhook.Policy{Any: mode == "any" || mode == "auto" && loopback, Allowed: allowed}, n.cfg.Relay.CallbackTimeout)
	n.workers, err = work.Start(ctx, n.store, n.nc, work.Config{
		Concurrency: n.cfg.Relay.Concurrency, Takeover: n.cfg.Relay.Takeover, Drain: n.cfg.Relay.Drain, MaxResponse: n.cfg.Relay.MaxResponse,
		PollDeadline: n.cfg.Relay.PollDeadline, CallbackDeadline: n.cfg.Relay.CallbackDeadline, AutoRedrive: n.cfg.Relay.AutoRedrive,
		Client: n.client, Logger: n.log, Reporter: n.reporter, Metrics: work.NewMetrics(),
	})
	if err != nil {
		return fmt.Errorf("start the workers: %w", err)
	}
	return nil
}

func (n *Node) listen(ctx context.Context) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", n.cfg.HTTP.Listener)
	if err != nil {
		return fmt.Errorf("listen: %w: free the address, or set [http] listener", err)
	}
	n.listener = listener
	n.server = &http.Server{
		Handler: httpapi.New(n.store, n.workers, httpapi.Options{
			AdminToken: n.cfg.Admin.Token, MaxBody: n.cfg.HTTP.MaxBodyBytes, Logger: n.log, Stopping: n.stopping,
		}),
		ReadTimeout: readTimeout, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(n.log.Handler(), slog.LevelDebug),
	}
	go func() { n.served <- n.server.Serve(listener) }()
	return nil
}

// Addr is the address that the relay listens on.
func (n *Node) Addr() string { return n.listener.Addr().String() }

// URL is Addr as a URL.
func (n *Node) URL() string { return "http://" + n.Addr() }

// Wait returns when ctx ends, with nil, or when the listener failed.
func (n *Node) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-n.served:
		n.served <- err
		return fmt.Errorf("serve: %w", err)
	}
}

// Stop shuts down in order: no new requests, requests in progress are answered, what waits is given to other
// processes at once, POSTs in flight finish within the configured drain. ctx bounds the requests only.
func (n *Node) Stop(ctx context.Context) error {
	close(n.stopping)
	drain, cancel := context.WithTimeout(ctx, httpDrain)
	defer cancel()
	err := n.server.Shutdown(drain)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests were cut: %w", err), n.server.Close())
	}
	n.release()
	return err
}

// release stops what is not the listener, in reverse order.
func (n *Node) release() {
	if n.workers != nil {
		n.workers.Close()
	}
	if n.store != nil {
		n.store.Close()
	}
	if n.client != nil {
		n.client.Close()
	}
	if n.nc != nil {
		n.nc.Close()
	}
	if n.embedded != nil {
		n.embedded.Stop()
	}
	if n.reporter != nil {
		n.reporter.close()
	}
}
