package dlqcmd

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/deadletters"
)

func newCapture(g *client.Globals) *cobra.Command {
	var subject string
	var idle time.Duration
	cmd := &cobra.Command{
		Use:   "capture STREAM [ORIGIN...]",
		Short: "Store dead letters of messages that were delivered MaxDeliver times",
		Long: `capture makes STREAM keep the server's advisories of messages that were delivered
MaxDeliver times, of the streams ORIGIN, or of all. It creates STREAM if there is none.
Then it stores a dead letter for each advisory in STREAM, until it is interrupted or
--idle ends it. Several processes share the work. An advisory that does not fit its
consumer and its message is dropped, with a line in the log. Nothing is deleted.`,
		Example: `  jetpull dlq capture DEAD --dead-letter dead.orders
  jetpull dlq capture DEAD ORDERS --dead-letter dead.orders --idle 2s`,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, origin := range args[1:] {
				if err := cli.CheckName("stream", origin); err != nil {
					return cli.Usage(err)
				}
			}
			link, err := g.OpenExisting(cmd)
			if err != nil {
				return err
			}
			defer link.Close()
			if err := keep(cmd, g, link, subject, args); err != nil {
				return err
			}
			cfg := deadletters.Config{Stream: args[0], Subject: subject, Idle: idle, Logger: cli.Log(cmd.ErrOrStderr(), g.JSON)}
			return link.Explain(cmd.Context(), deadletters.Capture(cmd.Context(), link.JS, cfg))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&subject, "dead-letter", "", "`SUBJECT` of the dead letters; a stream must have it")
	cli.Duration(flags, &idle, "idle", 0, 0, "end when no advisory was handled for this `DURATION`, such as 10s; 0 for never")
	cli.Subject(flags, "dead-letter", &subject, false)
	_ = cmd.MarkFlagRequired("dead-letter") // it exists
	return cmd
}

// keep has the stream keep the advisories, and states what it has changed.
func keep(cmd *cobra.Command, g *client.Globals, link *client.Link, subject string, args []string) error {
	ctx, stream, did := cmd.Context(), args[0], "created stream"
	added := append(deadletters.Subjects(args[1:]...), subject)
	existing, err := link.EnsureStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: added})
	if err == nil && existing != nil {
		did = "added to stream"
		added, err = deadletters.Keep(ctx, link.JS, stream, args[1:]...)
	}
	switch {
	case err != nil:
		return link.Explain(ctx, err)
	case len(added) > 0 && !g.Quiet && !g.JSON:
		cli.Notice(cmd.ErrOrStderr(), "%s %s: %s\n", did, stream, strings.Join(added, ", "))
	}
	return nil
}
