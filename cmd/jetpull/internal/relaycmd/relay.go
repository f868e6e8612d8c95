// Package relaycmd implements jetpull relay: a relay process, and the commands that are clients of one.
package relaycmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/consolecmd"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/remote"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/serve"
	"github.com/jetpull/jetpull/console"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/relay"
	"github.com/jetpull/jetpull/relay/client"
)

const help = `Run the webhook relay. Senders submit messages over HTTP or NATS. The relay POSTs
each message to its receiver, within the receiver's rate limit, and returns the
response to the sender.

Without --nats the relay runs a NATS server in this process, with its store in
--store-dir. A message is then on disk before the relay answers 202 (--sync). With
--nats, or with --context (a context of the nats command), it uses an existing server
or cluster, and several relay processes on it share the work.

` + serve.ConfigHelp + `
The subcommands are clients of a running relay. echo is a receiver for trying it out.`

// New returns the command relay.
func New() *cobra.Command {
	var withConsole bool
	cmd := serve.Command(&cobra.Command{
		Use:   "relay",
		Short: "Run the webhook relay",
		Long:  help,
		Example: `  jetpull relay
  jetpull relay --config relay.cfg --listen 0.0.0.0:8080 --admin-token "$TOKEN"
  jetpull relay --nats nats://n1:4222,nats://n2:4222 --replicas 3`,
	}, relay.Settings(), relay.SampleConfig(), func(_ *cobra.Command, from relay.Sources) (serve.Process, error) { return load(from, withConsole) })
	cmd.Flags().BoolVar(&withConsole, "console", true, "serve the console at /console/")
	cmd.AddCommand(clients()...)
	cmd.AddCommand(newEchoCommand())
	return cmd
}

func load(from relay.Sources, withConsole bool) (serve.Process, error) {
	cfg, err := relay.LoadConfig(from)
	if err != nil {
		return serve.Process{}, cli.Usage(err)
	}
	start := func(ctx context.Context, log *slog.Logger, fromContext []nats.Option) (serve.Node, error) {
		warnings := relay.StrayVariables(os.Environ(), remote.RelayURL, remote.RelayToken)
		if os.Getenv(remote.RelayToken) != "" && cfg.Admin.Token == "" {
			warnings = append(warnings, remote.RelayToken+" is for the clients of a relay: JETPULL_RELAY_ADMIN_TOKEN is what this one would require")
		}
		for _, warning := range warnings {
			log.Warn("configuration", "warning", warning)
		}
		opts := []relay.Option{relay.NATSOptions(fromContext...)}
		if withConsole {
			opts = append(opts, relay.Console(consolecmd.Beside(cfg.HTTP.Listener, cfg.Admin.Token, log, func(c *console.Config, inside *http.Client) {
				c.Relay = client.New("http://localhost", cfg.Admin.Token, inside)
			})))
		}
		return relay.Start(ctx, cfg, log, opts...)
	}
	return serve.Process{LogFile: cfg.Log.Filename, LogLevel: cfg.Log.Level, Start: start}, nil
}

// echoed is the maximum part of a message that is sent back, in bytes.
const echoed = 64 << 10

func newEchoCommand() *cobra.Command {
	var listen string
	var status int
	cmd := &cobra.Command{
		Use:   "echo",
		Short: "Run a receiver for trying out a relay: it prints each message, and returns it",
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9090", "`ADDRESS` to listen on, on loopback")
	cli.Int(cmd.Flags(), &status, "status", http.StatusOK, 200, 599, "HTTP status `CODE` of each answer, 200 to 599")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if loopback, err := service.Loopback(listen); err != nil || !loopback {
			return cli.Usage(fmt.Errorf("--listen %q is not an address of this machine only, such as 127.0.0.1:9090", listen))
		}
		return serve.HTTP(cmd, "", time.Second, httpserve.Config{
			Address: listen, Handler: echo(cmd.OutOrStdout(), status), Read: time.Minute, Write: time.Minute, Log: cli.Log(cmd.ErrOrStderr(), false),
		})
	}
	return cmd
}

// echo responds with the body of the request, as JSON if it is JSON.
func echo(out io.Writer, status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, echoed))
		if err != nil {
			return
		}
		// Respond even if nobody reads the lines.
		_, _ = fmt.Fprintf(out, "%s %s %s: %q\n", r.Method, progress.Readable(r.Header.Get("Webhook-Id")),
			progress.Readable(r.Header.Get("Relay-Attempt")), body)
		answer := map[string]any{"got": string(body)}
		if json.Valid(body) {
			answer["got"] = json.RawMessage(body)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = cli.WriteJSON(w, answer)
	})
}
