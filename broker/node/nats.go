package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/jetpull/jetpull/broker"
)

const (
	reconnectWait = 250 * time.Millisecond
	// payloadRoom is what the embedded server takes beyond a request's body.
	payloadRoom = 64 << 10
	minPayload  = 1 << 20
)

// embedded is a NATS server in this process. It has no port: only this process
// reaches it.
type embedded struct {
	srv  *server.Server
	lock *os.File
}

func startEmbedded(ctx context.Context, cfg *broker.Config, log *slog.Logger) (e *embedded, err error) {
	mode, every, err := cfg.NATS.ParseSync()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.NATS.StoreDir, 0o750); err != nil {
		return nil, fmt.Errorf("make the store folder: %w", err)
	}
	e = &embedded{}
	if e.lock, err = lockFile(filepath.Join(cfg.NATS.StoreDir, "lock")); err != nil {
		return nil, fmt.Errorf("[nats] store-dir %s is in use by another process: %w", cfg.NATS.StoreDir, err)
	}
	defer func() {
		if err != nil {
			e.stop()
		}
	}()
	e.srv, err = server.NewServer(&server.Options{
		ServerName: "jetpull-broker", DontListen: true, NoSigs: true,
		JetStream: true, StoreDir: cfg.NATS.StoreDir, SyncAlways: mode == broker.SyncEach, SyncInterval: every,
		MaxPayload: int32(max(minPayload, cfg.HTTP.MaxBodyBytes) + payloadRoom),
	})
	if err != nil {
		return nil, fmt.Errorf("set up the embedded server: %w", err)
	}
	e.srv.SetLoggerV2(&natsLog{log.With("part", "nats")}, false, false, false)
	e.srv.Start()
	for !e.srv.ReadyForConnections(100 * time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("the embedded server did not get ready: %w", err)
		}
	}
	if !e.srv.JetStreamEnabled() {
		return nil, errors.New("the embedded server runs without JetStream: see its log above")
	}
	return e, nil
}

func (e *embedded) stop() {
	if e.srv != nil {
		e.srv.Shutdown()
		e.srv.WaitForShutdown()
	}
	// The lock goes with the file.
	_ = e.lock.Close()
}

// natsLog passes the server's warnings and errors on.
type natsLog struct{ log *slog.Logger }

func (l *natsLog) Noticef(string, ...any) {}
func (l *natsLog) Debugf(string, ...any)  {}
func (l *natsLog) Tracef(string, ...any)  {}
func (l *natsLog) Warnf(format string, v ...any) {
	l.log.Warn("NATS server", "message", fmt.Sprintf(format, v...))
}

func (l *natsLog) Errorf(format string, v ...any) {
	l.log.Error("NATS server", "message", fmt.Sprintf(format, v...))
}

func (l *natsLog) Fatalf(format string, v ...any) {
	l.log.Error("NATS server", "message", fmt.Sprintf(format, v...))
}

// connect starts the embedded server, or connects to the one that was named.
func (n *Node) connect(ctx context.Context) error {
	opts := []nats.Option{
		nats.Name("jetpull broker"), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(reconnectWait, reconnectWait),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			n.log.Warn("NATS connection", "subject", subject, "error", err)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				n.log.Warn("NATS connection lost, reconnecting", "error", err)
			}
		}),
	}
	var err error
	if n.cfg.NATS.URL == "" {
		if n.embedded, err = startEmbedded(ctx, n.cfg, n.log); err != nil {
			return err
		}
		n.nc, err = nats.Connect("", append(opts, nats.InProcessServer(n.embedded.srv))...)
		if err != nil {
			return fmt.Errorf("connect to the embedded server: %w", err)
		}
		n.log.Info("embedded NATS server", "store", n.cfg.NATS.StoreDir, "sync", n.cfg.NATS.Sync,
			"meaning of 201", meaning(n.cfg.NATS.Sync))
		return nil
	}
	opts = append(opts, n.natsOptions...)
	if n.cfg.NATS.Creds != "" {
		opts = append(opts, nats.UserCredentials(n.cfg.NATS.Creds))
	}
	if n.nc, err = nats.Connect(n.cfg.NATS.URL, opts...); err != nil {
		return fmt.Errorf("connect to NATS at %s: %w", withoutUsers(n.cfg.NATS.URL), err)
	}
	n.log.Info("external NATS server", "server", n.nc.ConnectedServerName(), "replicas", n.cfg.NATS.Replicas,
		"meaning of 201", fmt.Sprintf("accepted by a majority of %d servers; whether it is on their disks depends on their sync_interval", n.cfg.NATS.Replicas))
	return nil
}

// withoutUsers takes names and passwords out of a list of addresses.
func withoutUsers(urls string) string {
	shown := strings.Split(urls, ",")
	for i, u := range shown {
		scheme, rest, ok := strings.Cut(u, "://")
		if at := strings.LastIndex(rest, "@"); ok && at >= 0 {
			shown[i] = scheme + "://" + rest[at+1:]
		} else if at := strings.LastIndex(u, "@"); at >= 0 {
			shown[i] = u[at+1:]
		}
	}
	return strings.Join(shown, ",")
}

func meaning(sync string) string {
	if sync == "always" || sync == "each" {
		return "on disk"
	}
	return "written, and on disk within " + sync + "; a power failure before loses it"
}
