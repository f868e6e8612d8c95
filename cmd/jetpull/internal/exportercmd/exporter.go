// Package exportercmd implements jetpull exporter.
package exportercmd

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/serve"
	"github.com/jetpull/jetpull/internal/service"
	"github.com/jetpull/jetpull/internal/service/exporter"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/tokens"
)

const envToken = "JETPULL_EXPORTER_TOKEN"

const (
	failedLogins = 10 // per address and minute
	connections  = 64 // per address: Prometheus, an autoscaler and probes need few
	requestTime  = time.Minute
	drain        = 5 * time.Second // how long requests may continue after a signal
)

// New returns the command.
func New(g *client.Globals) *cobra.Command {
	var listen, token string
	cmd := &cobra.Command{
		Use:   "exporter",
		Short: "Serve metrics of consumers for Prometheus, and how many processes each needs for KEDA",
		Long: `Serve the state of the consumers of an account: /metrics for Prometheus, and
/v1/scale/STREAM/CONSUMER?per=N&max=M for the scaler metrics-api of KEDA. That divides
the messages that wait, or are handled, by N: the number of messages that one process
handles within the time that you want. jetpull console serves the same.`,
		Example: `  jetpull exporter
  jetpull exporter --nats nats://n1:4222 --listen 0.0.0.0:9091 --exporter-token secret`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd, g, listen, cmp.Or(token, os.Getenv(envToken)))
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9091", "`ADDRESS` to serve on")
	cmd.Flags().StringVar(&token, "exporter-token", "", "`TOKEN` that requests need, as Authorization: Bearer; $"+envToken)
	return cmd
}

func run(cmd *cobra.Command, g *client.Globals, listen, token string) error {
	loopback, err := service.Loopback(listen)
	switch {
	case err != nil:
		return cli.Usage(fmt.Errorf("--listen %q is not host:port, such as 127.0.0.1:9091", listen))
	case token == "" && !loopback:
		return cli.Usage(errors.New("--listen " + listen + " can be reached from other machines, and anybody could read the names and counts of " +
			"consumers: add --exporter-token or $" + envToken + ", or listen on 127.0.0.1"))
	}
	g.Target.NoWait = true
	l, err := g.Target.Open(cmd.Context(), "exporter", cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer l.Close()
	log := service.NewLog(cmd.ErrOrStderr(), slog.LevelInfo)
	cfg := exporter.Config{JS: l.JS, Loopback: loopback, Log: log}
	if token != "" {
		cfg.Valid = func(given string) bool { return tokens.Same(given, token) }
		cfg.Logins = httpserve.NewLogins(failedLogins, log, func() {})
	}
	return serve.HTTP(cmd, "/", drain, httpserve.Config{
		Address: listen, Handler: exporter.Handler(cfg), Read: requestTime, Write: requestTime, PerAddress: connections, Log: log,
	})
}
