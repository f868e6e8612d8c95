// Package infocmd implements the commands that show a consumer and move its pin.
package infocmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/infocmd/consumer"
	"github.com/jetpull/jetpull/internal/progress"
)

// New returns the command info.
func New(g *client.Globals) *cobra.Command {
	var watching bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "info STREAM CONSUMER",
		Short: "Show a consumer: pending, unacknowledged, redelivered, pins, rates",
		Long: `info shows the state of a consumer, as the server reports it. With --watch it
repeats this every --interval until it is interrupted, with rates per second: in
place on a terminal, and as lines elsewhere. While the server does not answer it
reports that and goes on. It ends when the consumer is deleted.`,
		Example: `  jetpull info ORDERS worker
  jetpull info ORDERS worker --watch
  jetpull info ORDERS worker --watch --json > states.jsonl`,
		Args: cli.StreamAndConsumer,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !watching && cmd.Flags().Changed("interval") {
				return cli.Usage(errors.New("--interval belongs to --watch"))
			}
			if watching {
				return watch(cmd, g, interval, args)
			}
			return g.With(cmd, func(ctx context.Context, l *client.Link) error {
				s, err := look(ctx, l, args)
				if err != nil {
					return err
				}
				return cli.Show(cmd.OutOrStdout(), g.JSON, s)
			})
		},
	}
	cmd.Flags().BoolVarP(&watching, "watch", "w", false, "show the state every --interval, until interrupted")
	cli.Interval(cmd.Flags(), &interval)
	return cmd
}

// look asks for the state of a consumer.
func look(ctx context.Context, l *client.Link, args []string) (*consumer.State, error) {
	info, err := consumer.Info(ctx, l.JS, args[0], args[1])
	if err != nil {
		return nil, err
	}
	return new(consumer.Observe(info, time.Now())), nil
}

// watch shows a consumer at every interval until interrupted: in place on a terminal, and as lines elsewhere.
func watch(cmd *cobra.Command, g *client.Globals, interval time.Duration, args []string) error {
	var before *consumer.State
	return g.Watch(cmd, interval, func(ctx context.Context, l *client.Link) (show func() error, err error) {
		s, err := look(ctx, l, args)
		if err != nil {
			return nil, err
		}
		if before != nil {
			s.Rates = consumer.Between(*before, *s)
		}
		before = s
		return func() error {
			if out := cmd.OutOrStdout(); !g.JSON && !progress.IsTerminal(out) {
				_, err := fmt.Fprintln(out, s.Line())
				return err
			}
			return cli.Redraw(cmd, g.JSON, func() error { return cli.Show(cmd.OutOrStdout(), g.JSON, s) })
		}, nil
	})
}

// NewUnpin returns the command unpin.
func NewUnpin(g *client.Globals) *cobra.Command {
	var group string
	cmd := &cobra.Command{
		Use:   "unpin STREAM CONSUMER [GROUP]",
		Short: "Take the pin of a priority group from the client that holds it",
		Long: `unpin takes the pin of a priority group with the pinned_client policy from the
client that holds it, and prints the id of the pin. The server pins another client
with the next message. GROUP can be left out if the consumer has only one group.
With another policy, or without such a group, the command fails and changes nothing.`,
		Example: `  jetpull unpin ORDERS worker
  jetpull unpin ORDERS worker primary`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 3 {
				return cli.StreamAndConsumer(cmd, args)
			}
			return cmp.Or(cmd.Flags().Set("group", args[2]), cli.StreamAndConsumer(cmd, args[:2]))
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runUnpin(cmd, g, args[0], args[1], group) },
	}
	cmd.Flags().StringVar(&group, "group", "", "priority `GROUP` whose pin is taken; the same as the argument")
	cli.Checked(cmd.Flags(), "group", func() error { return cli.CheckGroup(group) })
	return cmd
}

func runUnpin(cmd *cobra.Command, g *client.Globals, stream, name, group string) error {
	return g.With(cmd, func(ctx context.Context, l *client.Link) error {
		info, err := consumer.Info(ctx, l.JS, stream, name)
		if err != nil {
			return err
		}
		if group, err = pinGroup(info, group); err != nil {
			return err
		}
		held := pinOf(info, group)
		if err := jetpull.Unpin(ctx, l.JS, stream, name, group); err != nil {
			return err
		}
		text := "nobody was pinned"
		if held != "" {
			text = "the pin was " + held
		}
		return cli.Answer(cmd, g.JSON, struct {
			Stream   string `json:"stream"`
			Consumer string `json:"consumer"`
			Group    string `json:"group"`
			Unpinned string `json:"unpinned,omitempty"`
		}{stream, name, group, held}, "Unpinned group %s of consumer %s on stream %s; %s.\n", group, name, stream, text)
	})
}

// pinGroup checks the group to unpin, or finds the only one that there is.
func pinGroup(info *jetstream.ConsumerInfo, group string) (string, error) {
	groups := info.Config.PriorityGroups
	switch {
	case info.Config.PriorityPolicy != jetstream.PriorityPolicyPinned:
		return "", cli.Usage(fmt.Errorf("consumer %s has no pins: its priority policy is not pinned_client", info.Name))
	case group == "" && len(groups) > 1:
		return "", cli.Usage(fmt.Errorf("consumer %s has the groups %s; name one with --group", info.Name, strings.Join(groups, ", ")))
	case group != "" && !slices.Contains(groups, group):
		return "", cli.Usage(fmt.Errorf("consumer %s has no group %q; it has %s", info.Name, group, strings.Join(groups, ", ")))
	}
	return cmp.Or(group, groups[0]), nil
}

// pinOf is the pin id that the server has for a group, or "".
func pinOf(info *jetstream.ConsumerInfo, group string) string {
	for _, s := range info.PriorityGroups {
		if s.Group == group {
			return s.PinnedClientID
		}
	}
	return ""
}
