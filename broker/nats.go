package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/broker/internal/journal"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/watch"
	"github.com/jetpull/jetpull/natsembed"
)

const (
	// payloadOverhead is how much larger than its request's body a message may be, in bytes.
	payloadOverhead = 64 << 10
	minPayload      = 1 << 20
	// startPause is the interval between attempts to connect during the start. startReminder is the interval between log lines about it.
	startPause    = 250 * time.Millisecond
	startReminder = 30 * time.Second
)

func (n *Node) connect(ctx context.Context) (err error) {
	opts := service.NATSOptions("jetpull broker", n.log)
	if n.cfg.NATS.URL == "" {
		return n.startEmbedded(ctx, opts)
	}
	n.progress()
	if err = n.dial(ctx, slices.Concat(opts, n.natsOptions, []nats.Option{n.lacks.Watch})); err != nil {
		return err
	}
	n.release.Add(n.nc.Close)
	n.log.Info("external NATS server", "server", n.nc.ConnectedServerName(), "replicas", n.cfg.NATS.Replicas,
		"meaning of 201", fmt.Sprintf("accepted by a majority of %d servers; whether it is on their disks depends on their sync_interval",
			n.cfg.NATS.Replicas))
	return nil
}

// startEmbedded starts a NATS server in this process and connects to it. It has no port, so only this process can reach it.
func (n *Node) startEmbedded(ctx context.Context, opts []nats.Option) (err error) {
	sync, _ := natsembed.ParseSync(n.cfg.NATS.Sync) // Validate has checked it
	n.embedded, err = natsembed.Start(ctx, natsembed.Options{
		Dir: n.cfg.NATS.StoreDir, Port: natsembed.NoPort, Name: "jetpull-broker", Sync: sync, Fsync: n.fsync,
		Configure: func(o *server.Options) error {
			// The broker enforces its own limit, which leaves space for the deletes and acknowledgements that empty a full store.
			o.JetStreamMaxStore = 1 << 60
			return nil
		},
		MaxPayload: int32(max(minPayload, n.cfg.HTTP.MaxBodyBytes) + payloadOverhead),
		Logger:     slog.New(captureHandler{n.log.With("part", "nats").Handler(), n.heard}),
	})
	if err != nil {
		return fmt.Errorf("[nats] store-dir %s: %w", n.cfg.NATS.StoreDir, err)
	}
	n.release.Add(n.embedded.Stop)
	if n.nc, err = n.embedded.Connect(opts...); err != nil {
		return err
	}
	n.release.Add(n.nc.Close)
	n.log.Info("embedded NATS server", "store", n.cfg.NATS.StoreDir, "sync", n.cfg.NATS.Sync, "meaning of 201", meaning(n.embedded.Sync()))
	return nil
}

func meaning(sync natsembed.Sync) string {
	if sync == natsembed.SyncGroup || sync == natsembed.SyncEach {
		return "on disk"
	}
	return fmt.Sprintf("written, and on disk within %v; a power failure before loses it", time.Duration(sync))
}

// dial connects to the servers in url. It waits for a server that is not reachable, but not for one that refuses. It logs the reason. /readyz does
// not show it, because it may contain addresses.
func (n *Node) dial(ctx context.Context, opts []nats.Option) (err error) {
	for said := (time.Time{}); ; {
		if n.nc, err = service.Connect(n.cfg.NATS.URL, n.cfg.NATS.Creds, opts...); err == nil || !unreached(err) {
			return err
		}
		if time.Since(said) > startReminder {
			said = time.Now()
			n.log.Warn("the start waits for its NATS servers", "reason", err)
		}
		if ended := watch.Sleep(ctx, startPause); ended != nil {
			return fmt.Errorf("%w: %w", ended, err)
		}
	}
}

// unreached reports whether a connection failed because no server was reachable or answered.
func unreached(err error) bool {
	_, network := errors.AsType[*net.OpError](err)
	_, unknown := errors.AsType[*net.DNSError](err)
	return network || unknown || errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, io.EOF)
}

// captureHandler passes each log record of the embedded server on. It also passes the record's text to said.
type captureHandler struct {
	slog.Handler
	said func(text string)
}

func (h captureHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "text" {
			h.said(a.Value.String())
		}
		return true
	})
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h captureHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return captureHandler{h.Handler.WithAttrs(attrs), h.said}
}

// Enabled implements slog.Handler. It returns true, so that records below the log's level are captured too.
func (h captureHandler) Enabled(context.Context, slog.Level) bool { return true }

// heard handles a line of the embedded server's log. If the system has no space for a write, the server (nats-server 2.15.2) answers neither that
// write nor any later one. Only its log gives the reason. After a restart the server still has everything that it acknowledged, so heard ends the
// node.
func (n *Node) heard(text string) {
	if journal.NoSpace(text) && n.broken.Err() == nil {
		n.log.Error("the broker ends, because its disk is full: start it again when there is space", "reason", text)
		n.breakDown(fmt.Errorf("%w: %s", domain.ErrStoreFull, text))
	}
}
