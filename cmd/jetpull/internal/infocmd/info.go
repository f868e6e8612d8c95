// Package infocmd is the commands that look at a consumer, and move its pin.
package infocmd

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/infocmd/consumer"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/infocmd/watch"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/names"
	"github.com/jetpull/jetpull/internal/progress"
)

// New returns the command info.
func New(g *client.Globals) *cobra.Command {
	var watching bool
	var terms watch.Terms
	cmd := &cobra.Command{
		Use:   "info STREAM CONSUMER",
		Short: "Show a consumer: pending, unacknowledged, redelivered, pins, rates",
		Long: `info shows what the server says of a consumer. With --watch it goes on showing
it, with rates and with each switch of a pin: in place on a terminal, and as
lines elsewhere.`,
		Example: `  jetpull info ORDERS worker
  jetpull info ORDERS worker --watch
  jetpull info ORDERS worker --watch --json --count 60 > minute.jsonl`,
		Args: names.StreamAndConsumer,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !watching && (cmd.Flags().Changed("interval") || cmd.Flags().Changed("count")) {
				return cli.Usage(errors.New("--interval and --count belong to --watch"))
			}
			return runInfo(cmd, g, watching, terms, args[0], args[1])
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&watching, "watch", "w", false, "go on until interrupted")
	flags.DurationVarP(&terms.Interval, "interval", "i", time.Second, "how often to ask, with --watch")
	flags.IntVarP(&terms.Count, "count", "n", 0, "end --watch after `N` times; 0 for never")
	cli.Lasting(flags, "interval", &terms.Interval, 100*time.Millisecond)
	cli.Range(flags, "count", &terms.Count, 0, math.MaxInt)
	return cmd
}

func runInfo(cmd *cobra.Command, g *client.Globals, watching bool, terms watch.Terms, stream, name string) error {
	errOut := cmd.ErrOrStderr()
	if watching && !g.JSON && progress.IsTerminal(cmd.OutOrStdout()) && progress.IsTerminal(errOut) {
		// The view says it when the connection is lost, and a line in between would
		// shift what is drawn.
		errOut = io.Discard
	}
	l, err := g.Target.OpenExisting(cmd.Context(), "info", errOut)
	if err != nil {
		return err
	}
	defer l.Close()
	if watching {
		return watch.Run(cmd.Context(), cmd.OutOrStdout(), g.JSON, terms, l, stream, name)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), l.Timeout)
	defer cancel()
	info, err := consumer.Info(ctx, l.JS, stream, name)
	if err != nil {
		return err
	}
	s := consumer.Observe(info, time.Now())
	if g.JSON {
		return cli.WriteJSON(cmd.OutOrStdout(), s)
	}
	return consumer.Print(cmd.OutOrStdout(), info, s)
}
