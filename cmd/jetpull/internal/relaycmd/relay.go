// Package relaycmd is jetpull relay: a relay process, and the commands that are clients of one.
package relaycmd

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
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

The configuration comes from an INI file (--config), then environment
variables, then flags. --print-config shows a sample file with every key.

The subcommands are clients of a relay that runs, and a receiver to try it with.

` + tracing.Help

// New makes the command jetpull relay. *asJSON is set where a subcommand is to print JSON.
func New(asJSON *bool) *cobra.Command {
	cmd := newServerCommand()
	t := &target{json: asJSON}
	for _, sub := range []*cobra.Command{
		newSendCommand(t), newStatusCommand(t), newFailedCommand(t), newOperationCommand(t, "redrive", "Have failed messages tried again"), newReceiversCommand(t),
	} {
		t.register(sub)
		for _, c := range append(sub.Commands(), sub) {
			c.Args = cli.UsageArgs(c.Args)
		}
		cmd.AddCommand(sub)
	}
	cmd.AddCommand(newEchoCommand())
	return cmd
}

// newServerCommand runs a relay.
func newServerCommand() *cobra.Command {
	var file string
	var sample bool
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Run the webhook relay",
		Long:  help,
		Example: `  jetpull relay
  jetpull relay --config relay.cfg --listen 0.0.0.0:8080 --admin-token "$TOKEN"
  jetpull relay --nats nats://n1:4222,nats://n2:4222 --replicas 3`,
		Args: cobra.NoArgs,
	}
	settings := serve.Flags(cmd, relay.Settings())
	cmd.Flags().StringVar(&file, "config", "", "INI file to read")
	cmd.Flags().BoolVar(&sample, "print-config", false, "print a sample configuration file and exit")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if sample {
			_, err := io.WriteString(cmd.OutOrStdout(), relay.SampleConfig())
			return err
		}
		cfg, err := relay.LoadConfig(relay.Sources{File: file, Env: os.LookupEnv, Flags: settings()})
		if err != nil {
			return cli.Usage(err)
		}
		return serve.Run(cmd.Context(), serve.Process{
			Name: "relay", LogFile: cfg.Log.Filename, LogLevel: cfg.Log.Level, Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
			Start: func(ctx context.Context, log *slog.Logger) (serve.Node, error) {
				for _, warning := range relay.StrayVariables(os.Environ(), envURL, envToken) {
					log.Warn("configuration", "warning", warning)
				}
				return relay.Start(ctx, cfg, log)
			},
		})
	}
	return cmd
}
