package broker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/natsembed"
)

const (
	// payloadRoom is what the embedded server takes beyond a request's body.
	payloadRoom = 64 << 10
	minPayload  = 1 << 20
	// rewriteSync is how often the server syncs what it rewrites by itself, where the
	// broker syncs all the rest before it answers.
	rewriteSync = 2 * time.Second
)

// startEmbedded starts a NATS server in this process. It has no port: only this process reaches it.
func startEmbedded(ctx context.Context, cfg *Config, log *slog.Logger, said func(text string)) (*natsembed.Server, error) {
	mode, every, err := cfg.NATS.parseSync()
	if err != nil {
		return nil, err
	}
	if mode == syncGroups {
		every = rewriteSync
	}
	srv, err := natsembed.Start(ctx, natsembed.Options{
		Dir: cfg.NATS.StoreDir, Port: natsembed.NoPort, Name: "jetpull-broker",
		SyncAlways: mode == syncEach, SyncInterval: every,
		Configure: func(o *server.Options) error {
			// The broker has its own limit, which leaves room for what empties a full store.
			o.JetStreamMaxStore = 1 << 60
			return nil
		},
		MaxPayload: int32(max(minPayload, cfg.HTTP.MaxBodyBytes) + payloadRoom),
		Logger:     slog.New(overheard{log.With("part", "nats").Handler(), said}),
	})
	if err != nil {
		return nil, fmt.Errorf("[nats] store-dir %s: %w", cfg.NATS.StoreDir, err)
	}
	return srv, nil
}

// connect starts the embedded server, or connects to the one that was named.
func (n *Node) connect(ctx context.Context) error {
	opts := service.NATSOptions("jetpull broker", n.log)
	var err error
	if n.cfg.NATS.URL == "" {
		if err = n.awaitSpace(ctx); err != nil {
			return err
		}
		if n.embedded, err = startEmbedded(ctx, n.cfg, n.log, n.heard); err != nil {
			return err
		}
		n.release.Add(n.embedded.Stop)
		if n.nc, err = n.embedded.Connect(opts...); err != nil {
			return err
		}
		n.release.Add(n.nc.Close)
		n.log.Info("embedded NATS server", "store", n.cfg.NATS.StoreDir, "sync", n.cfg.NATS.Sync,
			"meaning of 201", meaning(n.cfg.NATS.Sync))
		return nil
	}
	n.progress()
	if err = n.dial(ctx, append(opts, n.natsOptions...)); err != nil {
		return err
	}
	n.release.Add(n.nc.Close)
	n.log.Info("external NATS server", "server", n.nc.ConnectedServerName(), "replicas", n.cfg.NATS.Replicas,
		"meaning of 201", fmt.Sprintf("accepted by a majority of %d servers; whether it is on their disks depends on their sync_interval", n.cfg.NATS.Replicas))
	return nil
}

func meaning(sync string) string {
	if sync == "always" || sync == "each" {
		return "on disk"
	}
	return "written, and on disk within " + sync + "; a power failure before loses it"
}
