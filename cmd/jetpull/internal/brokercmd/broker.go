// Package brokercmd is jetpull broker.
package brokercmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/node"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/natscontext"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/tracing"
)

// stopTime bounds the shutdown: callbacks in progress may take as long as
// their timeout, which is 30 s unless set.
const stopTime = 45 * time.Second

const help = `Run the webhook broker: producers broadcast messages to channels over HTTP, and
every consumer of a channel gets each of them, pushed to its callback or pulled
by its workers.

Without --nats it runs a NATS server in this process, which keeps everything in
--store-dir; a message that was answered with 201 is then on disk (--sync
always). With --nats, or with --context as the nats command has it, it uses an
existing server or cluster, and several broker processes on it share the work.
Neither NATS_URL nor a selected context counts here: where messages are kept is
not left to what a shell happens to have.

The configuration comes from an INI file (--config), then environment
variables, then flags. --print-config shows a sample file with every key.

` + tracing.Help

// New is jetpull broker.
func New() *cobra.Command {
	var file, natsContext string
	var sample, open bool
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run the webhook broker",
		Long:  help,
		Example: `  jetpull broker
  jetpull broker --config broker.cfg --listen 0.0.0.0:8080 --admin-token "$TOKEN"
  jetpull broker --nats nats://n1:4222,nats://n2:4222 --replicas 3`,
		Args: cobra.NoArgs,
	}
	values := map[string]*string{}
	for _, s := range broker.Settings() {
		if s.Ignored {
			continue
		}
		text := fmt.Sprintf("%s ([%s] %s, $%s)", s.Help, s.Section, s.Key, s.Env())
		values[s.Flag()] = cmd.Flags().String(s.Flag(), s.Default, text)
	}
	cmd.Flags().StringVar(&file, "config", "", "INI file to read")
	cmd.Flags().StringVar(&natsContext, "context", "", "`NAME` of a context of the nats command, or the path of its file, to connect with")
	cmd.Flags().BoolVar(&open, "open", false, "the same as --http-open true")
	cmd.Flags().BoolVar(&sample, "print-config", false, "print a sample configuration file and exit")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if sample {
			_, err := io.WriteString(cmd.OutOrStdout(), broker.SampleConfig())
			return err
		}
		given := map[string]string{}
		for flag, value := range values {
			if cmd.Flags().Changed(flag) {
				given[flag] = *value
			}
		}
		if open {
			given["http-open"] = "true"
		}
		var opts []node.Option
		if cmd.Flags().Changed("context") {
			option, err := brokerContext(natsContext, given)
			if err != nil {
				return err
			}
			opts = append(opts, option)
		}
		cfg, err := broker.LoadConfig(broker.Sources{File: file, Env: os.LookupEnv, Flags: given})
		if err != nil {
			return cli.Usage(err)
		}
		cfg.Warnings = append(cfg.Warnings, strayVariables(os.Environ())...)
		return run(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr(), opts...)
	}
	return cmd
}

// strayVariables warns of environment variables that look like the broker's and
// are none. They are not refused as a key of the file is: Kubernetes sets some
// for every service, and a service may well be called jetpull-broker.
func strayVariables(environ []string) []string {
	known := map[string]bool{}
	for _, s := range broker.Settings() {
		known[s.Env()] = true
	}
	var warnings []string
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "JETPULL_BROKER_") && !known[name] {
			warnings = append(warnings, "environment variable "+name+" is not known and has no effect")
		}
	}
	return warnings
}

// brokerContext lets a context of the nats command say which server to use: its
// address and domain as if they were given as flags, the rest as an option.
func brokerContext(name string, given map[string]string) (node.Option, error) {
	if url, ok := given["nats"]; ok {
		return nil, cli.Usage(fmt.Errorf("--nats %q and --context %q each say which server to use; give one of them", url, name))
	}
	c, err := natscontext.Load(name)
	if err != nil {
		return nil, err
	}
	if c.APIPrefix != "" {
		return nil, cli.Usage(fmt.Errorf("context %s has \"jetstream_api_prefix\": %q, with which the broker could not reach its own subjects; use a context without it", c.Path, c.APIPrefix))
	}
	opts, err := c.Options()
	if err != nil {
		return nil, err
	}
	given["nats"] = cmp.Or(c.URL, nats.DefaultURL)
	if _, ok := given["domain"]; !ok && c.Domain != "" {
		given["domain"] = c.Domain
	}
	return node.NATSOptions(opts...), nil
}

// run runs a broker until ctx ends.
func run(ctx context.Context, cfg *broker.Config, out, errOut io.Writer, opts ...node.Option) (err error) {
	log, closeLog, err := openLog(cfg, errOut)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	stopTracing, err := tracing.Start(ctx, "jetpull-broker", log)
	if err != nil {
		return err
	}
	defer func() { stopTracing(context.WithoutCancel(ctx)) }()
	n, err := node.Start(ctx, cfg, log, opts...)
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	if _, err := fmt.Fprintf(out, "broker: listening on %s\n", n.URL()); err != nil {
		log.Warn("standard output", "error", err)
	}
	failed := n.Wait(ctx)
	log.Info("shutting down")
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return errors.Join(failed, n.Stop(stopping))
}
