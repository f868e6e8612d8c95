// Package relaycmd is jetpull relay: a relay process, and the commands that are clients of one.
package relaycmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/tracing"
	"github.com/jetpull/jetpull/relay"
)

// stopTimeout bounds the wait for HTTP requests at a stop; POSTs in flight have [relay] drain-in-seconds.
const stopTimeout = 45 * time.Second

const help = `Run the webhook relay: senders hand in messages over HTTP or NATS, the relay POSTs
each to its receiver within the receiver's rate limit, and carries the response
back.

Without --nats it runs a NATS server in this process, which keeps everything in
--store-dir. With --nats it uses an existing server or cluster, and several relay
processes on it share the work.

The configuration comes from an INI file (--config), then environment
variables, then flags. --print-config shows a sample file with every key.

The subcommands are clients of a relay that runs.

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
	values := map[string]*string{}
	for _, s := range relay.Settings() {
		help := fmt.Sprintf("%s ([%s] %s, $%s)", s.Help, s.Section, s.Key, s.Env())
		values[s.Flag()] = cmd.Flags().String(s.Flag(), s.Default, help)
	}
	cmd.Flags().StringVar(&file, "config", "", "INI file to read")
	cmd.Flags().BoolVar(&sample, "print-config", false, "print a sample configuration file and exit")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if sample {
			_, err := io.WriteString(cmd.OutOrStdout(), relay.SampleConfig())
			return err
		}
		given := map[string]string{}
		for flag, value := range values {
			if cmd.Flags().Changed(flag) {
				given[flag] = *value
			}
		}
		cfg, err := relay.LoadConfig(relay.Sources{File: file, Env: os.LookupEnv, Flags: given})
		if err != nil {
			return cli.Usage(err)
		}
		return run(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// run runs a relay until ctx ends.
func run(ctx context.Context, cfg *relay.Config, out, errOut io.Writer) (err error) {
	log, closeLog, err := openLog(cfg, errOut)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	for _, variable := range strayVariables(os.Environ()) {
		log.Warn("configuration", "warning", "environment variable "+variable+" is not known and has no effect")
	}
	stopTracing, err := tracing.Start(ctx, "jetpull-relay", log)
	if err != nil {
		return err
	}
	defer func() { stopTracing(context.WithoutCancel(ctx)) }()
	n, err := relay.Start(ctx, cfg, log)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	if _, err := fmt.Fprintf(out, "relay: listening on %s\n", n.URL()); err != nil {
		log.Warn("standard output", "error", err)
	}
	failed := n.Wait(ctx)
	log.Info("shutting down")
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return errors.Join(failed, n.Stop(stopping))
}

// strayVariables finds environment variables that look like the relay's and are none.
func strayVariables(environ []string) []string {
	known := map[string]bool{envURL: true, envToken: true}
	for _, s := range relay.Settings() {
		known[s.Env()] = true
	}
	var stray []string
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "JETPULL_RELAY_") && !known[name] {
			stray = append(stray, name)
		}
	}
	return stray
}

// openLog opens the log where the configuration wants it.
func openLog(cfg *relay.Config, errOut io.Writer) (*slog.Logger, func() error, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
		return nil, nil, fmt.Errorf("[log] log-level: %w", err)
	}
	w, closeLog := errOut, func() error { return nil }
	if cfg.Log.Filename != "" {
		file, err := os.OpenFile(cfg.Log.Filename, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
		if err != nil {
			return nil, nil, fmt.Errorf("[log] filename: %w", err)
		}
		w, closeLog = file, file.Close
	}
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})), closeLog, nil
}
