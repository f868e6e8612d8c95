// Package brokercmd implements jetpull broker.
package brokercmd

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd/admin"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consolecmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/serve"
	"github.com/jetpull/jetpull/console"
)

const help = `Run the webhook broker: producers broadcast messages to channels over HTTP, and
every consumer of a channel gets each message, pushed to its callback or pulled
by its workers.

Without --nats the broker runs a NATS server in this process, with its store in
--store-dir. When the broker answers 201, the message is then on disk (--sync
always). With --nats, or with --context (a context of the nats command), it uses
an existing server or cluster, and several broker processes on it share the work.
The broker ignores NATS_URL and the selected context, so that the environment of
a shell does not determine where messages are stored.

` + serve.ConfigHelp

// New is jetpull broker. *asJSON is set where a subcommand is to print JSON.
func New(asJSON *bool) *cobra.Command {
	var withConsole bool
	cmd := serve.Command(&cobra.Command{
		Use:   "broker",
		Short: "Run the webhook broker",
		Long:  help,
		Example: `  jetpull broker
  jetpull broker --config broker.cfg --listen 0.0.0.0:8080 --admin-token "$TOKEN"
  jetpull broker --nats nats://n1:4222,nats://n2:4222 --replicas 3`,
	}, broker.Settings(), broker.SampleConfig(), func(cmd *cobra.Command, from broker.Sources) (serve.Process, error) {
		return load(cmd, from, withConsole)
	})
	flags := cmd.Flags()
	flags.BoolFunc("open", "the same as --http-open true", func(on string) error { return flags.Set("http-open", on) })
	flags.BoolVar(&withConsole, "console", true, "serve the console at /console/")
	api := admin.API(asJSON)
	cmd.AddCommand(restoreCommand())
	for _, v := range []remote.Verb{backupVerb, healthVerb, admin.Broadcast(), admin.Claim()} {
		cmd.AddCommand(api.Command(v))
	}
	cmd.AddCommand(api.Commands(admin.Nouns)...)
	return cmd
}

func load(cmd *cobra.Command, from broker.Sources, withConsole bool) (serve.Process, error) {
	cfg, err := broker.LoadConfig(from)
	if err != nil {
		return serve.Process{}, cli.Usage(err)
	}
	cfg.Warnings = append(cfg.Warnings, broker.StrayVariables(os.Environ(), append(admin.TokenVariables, remote.BrokerURL)...)...)
	start := func(ctx context.Context, log *slog.Logger, fromContext []nats.Option) (serve.Node, error) {
		opts := []broker.Option{broker.Notices(cmd.ErrOrStderr()), broker.NATSOptions(fromContext...)}
		switch hashed := strings.HasPrefix(cfg.Admin.Token, "sha256:"); {
		case cfg.Gateway.Mode == "hmac" && cfg.Admin.Token == "": // the console has no key to sign its requests, and the broker refuses them
			log.Info("no console at /console/: requests must be signed, and there is no admin token: set admin-token")
		case hashed: // the console makes requests with the token itself
			log.Info("no console at /console/: the configuration has only a hash of the admin token; jetpull console --broker serves it")
		case withConsole:
			opts = append(opts, broker.Console(consolecmd.Beside(cfg.HTTP.Listener, cfg.Admin.Token, log, func(c *console.Config, inside *http.Client) {
				c.Broker = client.NewAdmin("http://localhost", cfg.Admin.Token, inside)
			})))
		}
		return broker.Start(ctx, cfg, log, opts...)
	}
	return serve.Process{LogFile: cfg.Log.Filename, LogLevel: cfg.Log.Level, Start: start}, nil
}
