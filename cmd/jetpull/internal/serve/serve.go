// Package serve runs a system as a process: it reads the configuration, opens the log, and starts and stops the system. It also implements jetpull
// server.
package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/natscontext"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/natsembed"
)

// ConfigHelp is the part of a system's help about its configuration.
const ConfigHelp = `The configuration comes from an INI file (--config), then environment
variables, then flags. --print-config shows a sample file with every key.
`

// Process is a process of a system that can be started. opts are the options for a connection to an existing NATS server.
type Process struct {
	LogFile, LogLevel string
	Start             func(ctx context.Context, log *slog.Logger, opts []nats.Option) (Node, error)
}

// Node is a running process of a system.
type Node interface {
	URL() string
	// Wait returns nil when ctx ends, or an error when the node fails.
	Wait(ctx context.Context) error
	Stop(ctx context.Context) error
}

// Command makes cmd run the process that load returns until its context ends. cmd gets a flag for each setting of a system with the configuration
// C. sample is a configuration file.
func Command[C any](cmd *cobra.Command, settings []service.Setting[C], sample string,
	load func(*cobra.Command, service.Sources) (Process, error),
) *cobra.Command {
	flags := cmd.Flags()
	for _, one := range settings {
		if !one.Ignored {
			flags.String(one.Flag(), one.Default, fmt.Sprintf("%s ([%s] %s, $%s)", one.Help, one.Section, one.Key, one.Env()))
		}
	}
	file := flags.String("config", "", "INI `FILE` with the configuration; without it, no file is read")
	natsContext := flags.String("context", "", "connect to the server of a context of the nats command: its `NAME`, or the absolute path of its file")
	cli.Exclusive(cmd, "nats", "context")
	printSample := flags.Bool("print-config", false, "print a sample configuration file and exit")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *printSample {
			_, err := io.WriteString(cmd.OutOrStdout(), sample)
			return err
		}
		values := map[string]string{}
		for _, one := range settings {
			if f := flags.Lookup(one.Flag()); f != nil && f.Changed {
				values[f.Name] = f.Value.String()
			}
		}
		opts, err := fromContext(cmd.Context(), flags, *natsContext, values)
		if err != nil {
			return err
		}
		p, err := load(cmd, service.Sources{File: *file, Env: os.LookupEnv, Flags: values})
		if err != nil {
			return err
		}
		log, closeLog, err := service.OpenLog(p.LogFile, p.LogLevel, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		return errors.Join(p.run(cmd, log, opts), closeLog())
	}
	return cmd
}

// fromContext reads the context of the nats command that --context names, if any. It adds the server's URL and domain to given, as if they were
// flags, and returns the rest as options.
func fromContext(ctx context.Context, flags *pflag.FlagSet, name string, given map[string]string) ([]nats.Option, error) {
	if !flags.Changed("context") {
		return nil, nil
	}
	c, err := natscontext.Load(ctx, name)
	if err != nil {
		return nil, err
	}
	if c.APIPrefix != "" || c.Domain != "" && flags.Lookup("domain") == nil {
		return nil, cli.Usage(fmt.Errorf("context %s has \"jetstream_api_prefix\": %q and \"jetstream_domain\": %q, which would hide the system's own "+
			"subjects; use a context without them", c.Path, c.APIPrefix, c.Domain))
	}
	given["nats"] = cmp.Or(c.URL, nats.DefaultURL)
	if _, ok := given["domain"]; !ok && c.Domain != "" {
		given["domain"] = c.Domain
	}
	return c.Options()
}

// stopTime limits the shutdown. Requests in progress may take as long as their timeout, which is 30 s by default.
const stopTime = 45 * time.Second

func (p Process) run(cmd *cobra.Command, log *slog.Logger, opts []nats.Option) error {
	ctx := cmd.Context()
	n, err := p.Start(ctx, log, opts)
	if err != nil {
		return fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: listening on %s\n", cmd.Name(), n.URL()); err != nil {
		log.Warn("standard output", "error", err)
	}
	failed := n.Wait(ctx)
	log.Info("shutting down")
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return errors.Join(failed, n.Stop(stopping))
}

// HTTP serves over HTTP until the context of cmd ends, and prints the URL with a path. After that, requests in progress may continue for drain.
func HTTP(cmd *cobra.Command, path string, drain time.Duration, cfg httpserve.Config) error {
	ctx := cmd.Context()
	srv, err := httpserve.Listen(ctx, cfg)
	if err != nil {
		return err
	}
	at := "http://" + srv.Addr() + path
	if err := cli.Answer(cmd, map[string]string{"url": at}, "%s: listening on %s\n", cmd.Name(), at); err != nil {
		cfg.Log.Warn("standard output", "error", err)
	}
	failed := srv.Wait(ctx)
	return errors.Join(failed, srv.Stop(context.WithoutCancel(ctx), drain))
}

// NewServer returns the command server.
func NewServer() *cobra.Command {
	var o natsembed.Options
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a NATS server with JetStream on this machine, for experiments",
		Long: `server runs a NATS server with JetStream on 127.0.0.1 until it is interrupted. It has
no authentication: each user and process of this machine can use it. With the default
port, other commands find it without a flag. It acknowledges a message before it is on
disk, so a power failure loses the messages since the last sync, unless --sync is each.
In production, use nats-server.`,
		Example: `  jetpull server
  jetpull publish orders.new two --create ORDERS`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Logger = cli.Log(cmd.ErrOrStderr(), false)
			srv, err := natsembed.Start(cmd.Context(), o)
			if err != nil {
				return fmt.Errorf("%w; choose another --port, or 0 for any that is free, and a --dir that no other server uses", err)
			}
			defer srv.Stop()
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "server: listening on %s, store in %s. %s\n", srv.URL(), srv.Dir(), cli.Synced(o.Sync)); err != nil {
				return err
			}
			<-cmd.Context().Done()
			return nil
		},
	}
	cli.Int(cmd.Flags(), &o.Port, "port", 4222, 0, math.MaxUint16, "`PORT` on 127.0.0.1; 0 for any free port")
	cmd.Flags().StringVar(&o.Dir, "dir", "nats-data", "folder `DIR` of the store; empty for a temporary one")
	cli.Sync(cmd.Flags(), &o.Sync)
	return cmd
}
