package infocmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/infocmd/consumer"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/names"
)

// NewUnpin returns the command unpin.
func NewUnpin(g *client.Globals) *cobra.Command {
	var group string
	cmd := &cobra.Command{
		Use:   "unpin STREAM CONSUMER [GROUP]",
		Short: "Take the pin of a priority group from the client that holds it",
		Long: `unpin makes the server pin another client of a priority group with the
pinned_client policy, with the next message. Without a group it takes the
consumer's, if it has one only.`,
		Example: `  jetpull unpin ORDERS worker`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 3 {
				if cmd.Flags().Changed("group") && group != args[2] {
					return fmt.Errorf("the group is %q as an argument and %q by --group; give one", args[2], group)
				}
				group, args = args[2], args[:2]
				if err := names.CheckGroup(group); err != nil {
					return err
				}
			}
			return names.StreamAndConsumer(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runUnpin(cmd, g, args[0], args[1], group) },
	}
	cmd.Flags().StringVar(&group, "group", "", "the `GROUP`")
	cli.Checked(cmd.Flags(), "group", func() error { return names.CheckGroup(group) })
	return cmd
}

func runUnpin(cmd *cobra.Command, g *client.Globals, stream, name, group string) error {
	l, err := g.Target.OpenExisting(cmd.Context(), "unpin", cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(cmd.Context(), g.Target.Timeout)
	defer cancel()
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
	if g.JSON {
		return cli.WriteJSON(cmd.OutOrStdout(), struct {
			Stream   string `json:"stream"`
			Consumer string `json:"consumer"`
			Group    string `json:"group"`
			Unpinned string `json:"unpinned,omitempty"`
		}{stream, name, group, held})
	}
	text := "nobody was pinned"
	if held != "" {
		text = "the pin was " + held
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "Unpinned group %s of consumer %s on stream %s; %s.\n", group, name, stream, text)
	return err
}

// pinGroup checks the group to unpin, or finds the only one that there is.
func pinGroup(info *jetstream.ConsumerInfo, group string) (string, error) {
	groups := info.Config.PriorityGroups
	switch {
	case info.Config.PriorityPolicy != jetstream.PriorityPolicyPinned:
		return "", cli.Usage(fmt.Errorf("consumer %s has no pins: its priority policy is not pinned_client", info.Name))
	case group == "" && len(groups) == 1:
		return groups[0], nil
	case group == "":
		return "", cli.Usage(fmt.Errorf("consumer %s has the groups %s; name one with --group", info.Name, strings.Join(groups, ", ")))
	}
	if slices.Contains(groups, group) {
		return group, nil
	}
	return "", cli.Usage(fmt.Errorf("consumer %s has no group %q; it has %s", info.Name, group, strings.Join(groups, ", ")))
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
