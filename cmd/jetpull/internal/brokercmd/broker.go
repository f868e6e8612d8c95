// Package brokercmd implements jetpull broker.
package brokercmd

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd/admin"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consolecmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/natscontext"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/serve"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/tracing"
	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/internal/mask"
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

` + serve.ConfigHelp + `
` + tracing.Help

// New is jetpull broker. *asJSON is set where a subcommand is to print JSON.
func New(asJSON *bool) *cobra.Command {
	p := &process{}
	cmd := serve.Command(&cobra.Command{
		Use:   "broker",
		Short: "Run the webhook broker",
		Long:  help,
		Example: `  jetpull broker
  jetpull broker --config broker.cfg --listen 0.0.0.0:8080 --admin-token "$TOKEN"
  jetpull broker --nats nats://n1:4222,nats://n2:4222 --replicas 3`,
	}, broker.Settings(), broker.SampleConfig(), p.load)
	flags := cmd.Flags()
	flags.StringVar(&p.context, "context", "", "connect to the server of a context of the nats command: its `NAME`, or the path of its file")
	flags.BoolFunc("open", "the same as --http-open true", func(on string) error { return flags.Set("http-open", on) })
	flags.BoolVar(&p.console, "console", true, "serve the console at /console/")
	addOriginalFlags(flags, &p.warnings)
	api := admin.API(asJSON)
	backup := api.Command(backupVerb)
	backup.ValidArgsFunction = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs) // DIR is no name of the broker's
	cmd.AddCommand(backup, restoreCommand(), api.Command(healthVerb), api.Command(admin.Broadcast()), api.Command(admin.Claim()))
	cmd.AddCommand(api.Commands(admin.Nouns)...)
	return cmd
}

// process has the values of the flags that are no settings of the broker.
type process struct {
	context  string
	console  bool
	warnings []string // about flags of webhook-broker that have no effect
}

func (p *process) load(cmd *cobra.Command, from broker.Sources) (serve.Process, error) {
	opts := []broker.Option{broker.Notices(cmd.ErrOrStderr())}
	if cmd.Flags().Changed("context") {
		option, err := brokerContext(cmd.Context(), p.context, from.Flags)
		if err != nil {
			return serve.Process{}, err
		}
		opts = append(opts, option)
	}
	cfg, err := broker.LoadConfig(from)
	if err != nil {
		return serve.Process{}, cli.Usage(err)
	}
	cfg.Warnings = slices.Concat(cfg.Warnings, p.warnings, broker.StrayVariables(os.Environ(), append(admin.TokenVariables, remote.BrokerURL)...))
	return serve.Process{LogFile: cfg.Log.Filename, LogLevel: cfg.Log.Level, Start: func(ctx context.Context, log *slog.Logger) (serve.Node, error) {
		switch hashed := strings.HasPrefix(cfg.Admin.Token, "sha256:"); {
		case cfg.Gateway.Mode == "hmac" && cfg.Admin.Token == "": // the console has no key to sign its requests, and the broker refuses them
			log.Info("no console at /console/: requests must be signed, and there is no admin token: set admin-token")
		case hashed: // the console makes requests with the token itself
			log.Info("no console at /console/: the configuration has only a hash of the admin token; jetpull console --broker serves it")
		case p.console:
			opts = append(opts, broker.Console(consolecmd.Beside(cfg.HTTP.Listener, cfg.Admin.Token, log, func(c *console.Config, inside *http.Client) {
				c.Broker = client.NewAdmin("http://localhost", cfg.Admin.Token, inside)
			})))
		}
		return broker.Start(ctx, cfg, log, opts...)
	}}, nil
}

// brokerContext lets a context of the nats command say which server to use: its
// address and domain as if they were given as flags, the rest as an option.
func brokerContext(ctx context.Context, name string, given map[string]string) (broker.Option, error) {
	if url, ok := given["nats"]; ok {
		return nil, cli.Usage(fmt.Errorf("--nats %q and --context %q each say which server to use; give one of them", mask.URL(url), name))
	}
	c, err := natscontext.Load(ctx, name)
	if err != nil {
		return nil, err
	}
	if c.APIPrefix != "" {
		return nil, cli.Usage(fmt.Errorf("context %s has \"jetstream_api_prefix\": %q, with which the broker could not reach its own subjects; use a "+
			"context without it", c.Path, c.APIPrefix))
	}
	opts, err := c.Options()
	if err != nil {
		return nil, err
	}
	given["nats"] = cmp.Or(c.URL, nats.DefaultURL)
	if _, ok := given["domain"]; !ok && c.Domain != "" {
		given["domain"] = c.Domain
	}
	return broker.NATSOptions(opts...), nil
}

// originalFlags are the flags of webhook-broker, which have one dash in its documents.
var originalFlags = []string{"config", "migrate", "command", "stop-on-conf-change", "do-not-watch-conf-change"}

// WithOriginalFlags gives the flags of webhook-broker that follow the name of the broker's command a second dash.
func WithOriginalFlags(args []string) []string {
	if len(args) == 0 || args[0] != "broker" {
		return args
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if strings.HasPrefix(arg, "-") && slices.Contains(originalFlags, name) {
			args[i] = "-" + arg
		}
	}
	return args
}

// addOriginalFlags adds those of its flags that have no use here. Given ones add a warning that they have no effect.
func addOriginalFlags(flags *pflag.FlagSet, warnings *[]string) {
	noEffect := func(format string) func(string) error {
		return func(value string) error {
			*warnings = append(*warnings, fmt.Sprintf(format, value))
			return nil
		}
	}
	flags.Func("migrate", "", noEffect("--migrate %q has no effect: there is no database"))
	flags.BoolFunc("stop-on-conf-change", "", noEffect("--stop-on-conf-change=%s has no effect: the configuration is read at the start alone"))
	flags.Bool("do-not-watch-conf-change", false, "")
	flags.Func("command", "", func(command string) error {
		if command != "broker" {
			return fmt.Errorf("--command %q is not known: a broker is all that this command runs, and it prunes by itself (--prune-message-retention-days)",
				command)
		}
		return nil
	})
	for _, name := range originalFlags[1:] {
		_ = flags.MarkHidden(name) // it exists
	}
}
