package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/broker"
	"github.com/jetpull/jetpull/broker/node"
)

// brokerStop bounds the shutdown: callbacks in progress may take as long as
// their timeout, which is 30 s unless set.
const brokerStop = 45 * time.Second

const brokerHelp = `Run the webhook broker: producers broadcast messages to channels over HTTP, and
every consumer of a channel gets each of them, pushed to its callback or pulled
by its workers.

Without --nats it runs a NATS server in this process, which keeps everything in
--store-dir; a message that was answered with 201 is then on disk (--sync
always). With --nats it uses an existing server or cluster, and several broker
processes on it share the work.

The configuration comes from an INI file (--config), then environment
variables, then flags. --print-config shows a sample file with every key.

` + traceHelp

// newBrokerCommand is jetpull broker.
func newBrokerCommand() *cobra.Command {
	var file string
	var sample bool
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run the webhook broker",
		Long:  brokerHelp,
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
		help := fmt.Sprintf("%s ([%s] %s, $%s)", s.Help, s.Section, s.Key, s.Env())
		values[s.Flag()] = cmd.Flags().String(s.Flag(), s.Default, help)
	}
	cmd.Flags().StringVar(&file, "config", "", "INI file to read")
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
		cfg, err := broker.LoadConfig(broker.Sources{File: file, Env: os.LookupEnv, Flags: given})
		if err != nil {
			return usageError{err}
		}
		return runBroker(cmd.Context(), cfg, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// runBroker runs a broker until ctx ends.
func runBroker(ctx context.Context, cfg *broker.Config, out, errOut io.Writer) (err error) {
	log, closeLog, err := openBrokerLog(cfg, errOut)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	stopTracing, err := startTracing(ctx, "jetpull-broker", log)
	if err != nil {
		return err
	}
	defer func() { stopTracing(context.WithoutCancel(ctx)) }()
	n, err := node.Start(ctx, cfg, log)
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	if _, err := fmt.Fprintf(out, "broker: listening on %s\n", n.URL()); err != nil {
		log.Warn("standard output", "error", err)
	}
	failed := n.Wait(ctx)
	log.Info("shutting down")
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), brokerStop)
	defer cancel()
	return errors.Join(failed, n.Stop(stopping))
}

// openBrokerLog opens the log where the configuration wants it.
func openBrokerLog(cfg *broker.Config, errOut io.Writer) (*slog.Logger, func() error, error) {
	level := slog.LevelError
	if cfg.Log.Level != "fatal" {
		if err := level.UnmarshalText([]byte(cfg.Log.Level)); err != nil {
			return nil, nil, fmt.Errorf("[log] log-level: %w", err)
		}
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
