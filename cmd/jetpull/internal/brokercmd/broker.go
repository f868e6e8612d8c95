// Package brokercmd implements jetpull broker: a broker process, and the commands that are clients of one.
package brokercmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/backup"
	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consolecmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/serve"
	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/natsembed"
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

// New returns the command broker.
func New() *cobra.Command {
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
	addOriginalFlags(flags)
	api := newAPI()
	cmd.AddCommand(restoreCommand())
	for _, v := range []remote.Verb{backupVerb, healthVerb, broadcastVerb(), claimVerb()} {
		cmd.AddCommand(api.Command(v))
	}
	cmd.AddCommand(api.Commands(nouns)...)
	return cmd
}

func load(cmd *cobra.Command, from broker.Sources, withConsole bool) (serve.Process, error) {
	cfg, err := broker.LoadConfig(from)
	if err != nil {
		return serve.Process{}, cli.Usage(err)
	}
	cfg.Warnings = append(cfg.Warnings, broker.StrayVariables(os.Environ(), append(tokenVariables, remote.BrokerURL)...)...)
	for _, name := range withoutEffect {
		if cmd.Flags().Changed(name) {
			cfg.Warnings = append(cfg.Warnings, fmt.Sprintf("--%s has no effect: there is no database, and the configuration is read at the start", name))
		}
	}
	start := func(ctx context.Context, log *slog.Logger, fromContext []nats.Option) (serve.Node, error) {
		opts := []broker.Option{broker.Notices(cmd.ErrOrStderr()), broker.NATSOptions(fromContext...)}
		switch hashed := strings.HasPrefix(cfg.Admin.Token, "sha256:"); {
		case cfg.Gateway.Mode == "hmac" && cfg.Admin.Token == "": // the console cannot sign its requests, so the broker would refuse them
			log.Info("no console at /console/: requests must be signed, and there is no admin token: set admin-token")
		case hashed: // the console needs the token itself for its requests
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

// withoutEffect are flags of webhook-broker that are accepted and ignored, because its users have them in scripts.
var withoutEffect = []string{"migrate", "stop-on-conf-change", "do-not-watch-conf-change"}

func addOriginalFlags(flags *pflag.FlagSet) {
	flags.String("migrate", "", "")
	flags.Bool("stop-on-conf-change", false, "")
	flags.Bool("do-not-watch-conf-change", false, "")
	flags.Func("command", "", func(command string) error {
		if command != "broker" {
			return errors.New("only broker is known: this command runs a broker, which prunes by itself (--prune-message-retention-days)")
		}
		return nil
	})
	for _, name := range append(withoutEffect, "command") {
		_ = flags.MarkHidden(name) // the flag exists
	}
}

// WithOriginalFlags adds a second dash to the flags of webhook-broker if args run a broker. Its documentation writes them with one dash.
func WithOriginalFlags(root *cobra.Command, args []string) []string {
	changed := slices.Clone(args)
	for i, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && (name == "config" || name == "command" || slices.Contains(withoutEffect, name)) {
			changed[i] = "-" + arg
		}
	}
	if cmd, _, err := root.Find(changed); err != nil || cmd.CommandPath() != "jetpull broker" {
		return args
	}
	return changed
}

var backupVerb = remote.Verb{
	Use: "backup DIR", Short: "Copy the store of a running broker to a new or empty folder",
	Long: `backup copies the streams of a running broker to the folder DIR, which must be new
or empty. The broker must run its own server, not that of --nats. If backup fails,
the copy in DIR is not complete, and restore refuses it.`,
	Run: func(c *remote.Call) error {
		var list struct{ Streams []string }
		answer, err := c.Get(c.Cmd.Context(), "/backup", &list)
		if err != nil {
			return err
		}
		err = backup.Save(c.Cmd.Context(), c.Args[0], list.Streams, func(ctx context.Context, stream string) (io.ReadCloser, error) {
			return c.Stream(ctx, "/backup/"+url.PathEscape(stream))
		})
		if err != nil {
			return err
		}
		return cli.Answer(c.Cmd, answer, "backup of %s in %s\n", progress.Plural(len(list.Streams), "stream"), c.Args[0])
	},
}

func restoreCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "restore DIR", Short: "Create the store of a broker from a backup",
		Long: `restore creates the folder --store-dir from the backup in the folder DIR. The folder
must be new or empty. If restore fails, it creates nothing.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
				return fmt.Errorf("--store-dir %s is not empty: name another", dir)
			}
			// Restore into a folder beside dir, so that an incomplete restore is not taken for a store.
			unfinished := filepath.Clean(dir) + ".restoring"
			if err := restore(cmd.Context(), args[0], unfinished); err != nil {
				return errors.Join(err, os.RemoveAll(unfinished))
			}
			if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			if err := os.Rename(unfinished, dir); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "restored to %s\n", dir)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "store-dir", "broker-data", "`FOLDER` to create, for the --store-dir of a broker")
	return cmd
}

func restore(ctx context.Context, from, dir string) error {
	srv, err := natsembed.Start(ctx, natsembed.Options{
		Dir: dir, Port: natsembed.NoPort, Sync: natsembed.SyncEach, MaxPayload: 64 << 20,
		Configure: func(o *server.Options) error {
			// The server's default is three quarters of the free disk space. The broker sets its own limit later, by --store-max.
			o.JetStreamMaxStore = 1 << 60
			return nil
		},
	})
	if err != nil {
		return err
	}
	defer srv.Stop()
	nc, err := srv.Connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	return backup.Load(ctx, from, nc)
}

var healthVerb = remote.Verb{
	Use: "health", Short: "Exit with 0 if a broker is ready, and with 1 if it is not or does not answer",
	Run: func(c *remote.Call) error {
		_, err := c.Get(c.Cmd.Context(), "/readyz", nil)
		return err
	},
}
