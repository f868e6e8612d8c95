// Package relaycmd is jetpull relay: a relay process, and the commands that are clients of one.
package relaycmd

import (
	"context"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd/failed"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd/receivers"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd/remote"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/relaycmd/send"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/serve"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/tracing"
	"github.com/jetpull/jetpull/relay"
)

const help = `Run the webhook relay: senders hand in messages over HTTP or NATS, the relay POSTs
each to its receiver within the receiver's rate limit, and carries the response
back.

Without --nats it runs a NATS server in this process, which keeps everything in
--store-dir. With --nats it uses an existing server or cluster, and several relay
processes on it share the work.

` + serve.ConfigHelp + `
The subcommands are clients of a relay that runs, and a receiver to try it with.

` + tracing.Help

// New makes the command jetpull relay. *asJSON is set where a subcommand is to print JSON.
func New(asJSON *bool) *cobra.Command {
	cmd := serve.System[relay.Config]{
		Settings: relay.Settings(),
		Sample:   relay.SampleConfig,
		Load:     relay.LoadConfig,
		Log:      func(cfg *relay.Config) (file, level string) { return cfg.Log.Filename, cfg.Log.Level },
		Start: func(ctx context.Context, cfg *relay.Config, log *slog.Logger) (serve.Node, error) {
			for _, warning := range relay.StrayVariables(os.Environ(), remote.EnvURL, remote.EnvToken) {
				log.Warn("configuration", "warning", warning)
			}
			return relay.Start(ctx, cfg, log)
		},
	}.Command(&cobra.Command{
		Use:   "relay",
		Short: "Run the webhook relay",
		Long:  help,
		Example: `  jetpull relay
  jetpull relay --config relay.cfg --listen 0.0.0.0:8080 --admin-token "$TOKEN"
  jetpull relay --nats nats://n1:4222,nats://n2:4222 --replicas 3`,
	})
	r := &remote.Relay{JSON: asJSON}
	for _, sub := range []*cobra.Command{
		send.New(r), send.NewStatus(r), failed.New(r), failed.NewOperation(r, "redrive", "Have failed messages tried again"), receivers.New(r),
	} {
		r.Flags(sub)
		cmd.AddCommand(sub)
	}
	cmd.AddCommand(newEchoCommand())
	return cmd
}
