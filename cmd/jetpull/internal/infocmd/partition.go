package infocmd

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/partition"
)

// newPartition returns the command partition, which shows and deletes sets of partitions.
func newPartition(g *client.Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "partition",
		Short: "Show or delete a set of partitions: order per key over several processes",
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "ls SET",
		Short:   "List the partitions of a set: owner, since when, pending, unacknowledged",
		Example: `  jetpull partition ls billing`,
		RunE: withSet(g, func(ctx context.Context, set *partition.Set, cmd *cobra.Command, _ []string) error {
			rows, err := set.Status(ctx)
			if err != nil {
				return err
			}
			return cli.List(cmd, setColumns, cli.All(rows))
		}),
	}, newWatchSet(g), &cobra.Command{
		Use:   "rm SET",
		Short: "Delete a set: its consumers and its bucket, but no messages",
		Long: `rm deletes the consumers and the bucket of a set, but no messages. It is refused
while the set has members. What the consumers had acknowledged is forgotten: a
set that is opened again begins with the first message of its stream.`,
		Example: `  jetpull partition rm billing`,
		RunE: withSet(g, func(ctx context.Context, set *partition.Set, cmd *cobra.Command, args []string) error {
			if err := set.Delete(ctx); err != nil {
				return err
			}
			return cli.WriteJSON(cmd.OutOrStdout(), map[string]string{"deleted": args[0]})
		}),
	})
	return cmd
}

// newWatchSet returns the command watch. It prints all owners, then each partition whose owner has changed. On a terminal, it shows all, in place.
func newWatchSet(g *client.Globals) *cobra.Command {
	var interval time.Duration
	cmd := &cobra.Command{
		Use:     "watch SET",
		Short:   "Show the partitions in place on a terminal, or print each change of an owner, until interrupted",
		Example: `  jetpull partition watch billing --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var set *partition.Set
			inPlace := !cli.JSON(cmd) && progress.IsTerminal(cmd.OutOrStdout())
			owners := map[int]string{}
			return g.Watch(cmd, interval, func(ctx context.Context, l *client.Link) (err error) {
				if set == nil {
					if set, err = partition.Load(ctx, l.JS, args[0]); err != nil {
						return err
					}
				}
				rows, err := set.Status(ctx)
				if err != nil {
					return err
				}
				rows = slices.DeleteFunc(rows, func(p partition.Partition) bool {
					before, known := owners[p.Number]
					owners[p.Number] = p.Member
					return known && before == p.Member && !inPlace
				})
				if len(rows) == 0 {
					return nil
				}
				return cli.List(cmd, setColumns, cli.All(rows))
			})
		},
	}
	cli.Interval(cmd.Flags(), &interval)
	return cmd
}

// withSet returns the RunE of a command that calls f with the set that its first argument names. The timeout for requests applies to f.
func withSet(g *client.Globals, f func(context.Context, *partition.Set, *cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return g.With(func(ctx context.Context, l *client.Link, cmd *cobra.Command, args []string) error {
		set, err := partition.Load(ctx, l.JS, args[0])
		if err != nil {
			return err
		}
		return f(ctx, set, cmd, args)
	})
}

var setColumns = []string{">partition", "member", "since", ">pending", ">ack_pending"}
