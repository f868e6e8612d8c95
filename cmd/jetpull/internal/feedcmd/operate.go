package feedcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/appendfile"
	"github.com/jetpull/jetpull/internal/service"
)

// outcome is the result of a command. It is printed as a line of JSON.
type outcome struct {
	Partition string  `json:"partition"`
	Items     *int    `json:"items,omitempty"`  // the number of added or changed items
	Within    float64 `json:"within,omitempty"` // how long a cancelled attempt can continue, in seconds
}

// operations returns the commands that add items, and that change partitions and items.
func operations(t *db) []*cobra.Command {
	operation := func(use, short string, f func(ctx context.Context, s *feed.Store, args []string, o *outcome) error) *cobra.Command {
		return t.command(use, short, func(cmd *cobra.Command, s *feed.Store, args []string) error {
			o := outcome{Partition: args[0]}
			if err := f(cmd.Context(), s, args, &o); err != nil {
				return err
			}
			return cli.WriteJSON(cmd.OutOrStdout(), o)
		})
	}
	return []*cobra.Command{
		operation("advance PARTITION GATE", "Move a partition to a gate; all below it must be complete",
			func(ctx context.Context, s *feed.Store, args []string, _ *outcome) error {
				gate, err := strconv.Atoi(args[1])
				if err != nil {
					return cli.Usage(fmt.Errorf("gate %q is not a whole number", args[1]))
				}
				return s.Advance(ctx, args[0], gate)
			}),
		newAddCommand(t),
		newPruneCommand(t),
		operation("retry PARTITION [ITEM...]", "Make failed items available again: the named ones, or all",
			func(ctx context.Context, s *feed.Store, args []string, o *outcome) error {
				n, err := s.RetryFailed(ctx, args[0], args[1:]...)
				o.Items = &n
				return err
			}),
		operation("skip PARTITION [ITEM...]", "Make failed items complete: the named ones, or all",
			func(ctx context.Context, s *feed.Store, args []string, o *outcome) error {
				n, err := s.SkipFailed(ctx, args[0], args[1:]...)
				o.Items = &n
				return err
			}),
		operation("reopen PARTITION", "Make a complete or failed partition available, and unsealed",
			func(ctx context.Context, s *feed.Store, args []string, _ *outcome) error {
				return s.Reopen(ctx, args[0])
			}),
		operation("cancel PARTITION ITEM", "Cancel the attempt at an item that jetpull feed ps lists; it counts as failed",
			func(ctx context.Context, s *feed.Store, args []string, o *outcome) error {
				within, err := s.Cancel(ctx, args[0], args[1])
				o.Within = within.Seconds()
				return err
			}),
		operation("delete PARTITION ITEM...", "Delete items that wait, and that no watcher may have read",
			func(ctx context.Context, s *feed.Store, args []string, o *outcome) error {
				o.Items = new(len(args) - 1)
				return s.Delete(ctx, args[0], args[1:]...)
			}),
		operation("close PARTITION", "Complete a partition whose items are all complete",
			func(ctx context.Context, s *feed.Store, args []string, _ *outcome) error {
				return s.ClosePartition(ctx, args[0])
			}),
	}
}

func newAddCommand(t *db) *cobra.Command {
	var gate int
	var seal bool
	var at time.Time
	var after time.Duration
	cmd := &cobra.Command{
		Use: "add PARTITION", Short: "Add an item for each line of stdin; creates the partition if it does not exist",
		RunE: func(cmd *cobra.Command, args []string) error {
			var items []feed.Item
			if !at.IsZero() {
				items = append(items, feed.OpenAt(gate, at))
			}
			if after != 0 {
				items = append(items, feed.OpenAfter(gate, after))
			}
			opens := len(items) // these items keep the gate closed
			if opens > 0 && gate == 0 {
				return cli.Usage(errors.New("gate 0 is open from the beginning; give --open-at and --open-after with a --gate above it"))
			}
			text, err := cli.ArgumentOrInput(cmd, nil, 0)
			if err != nil {
				return err
			}
			for line := range bytes.Lines(text) { // an item is a whole line without its line end
				items = append(items, feed.Item{Gate: gate, Data: bytes.TrimSuffix(line, []byte("\n"))})
			}
			if err := t.with(cmd.Context(), func(s *feed.Store) error { return addItems(cmd.Context(), s, args[0], items, seal) }); err != nil {
				return err
			}
			return cli.WriteJSON(cmd.OutOrStdout(), outcome{Partition: args[0], Items: new(len(items) - opens)})
		},
	}
	cli.Int(cmd.Flags(), &gate, "gate", 0, 0, math.MaxInt, "gate of the items; gate 0 is the first")
	cmd.Flags().BoolVar(&seal, "seal", false, "seal the partition: it gets no more items")
	cli.Time(cmd.Flags(), &at, "open-at", "keep the gate closed until this")
	cli.Duration(cmd.Flags(), &after, "open-after", 0, 0, "keep the gate closed for this long after all items below the previous gate are complete")
	return cmd
}

func newPruneCommand(t *db) *cobra.Command {
	var age time.Duration
	var file string
	const short = "Delete partitions that were closed long ago, with their items"
	cmd := t.command("prune", short, func(cmd *cobra.Command, s *feed.Store, _ []string) error {
		var export func(feed.Partition, iter.Seq2[feed.Item, error]) error
		if file != "" {
			export = func(_ feed.Partition, items iter.Seq2[feed.Item, error]) error { return exportItems(file, items) }
		}
		done, err := s.Prune(cmd.Context(), age, export)
		return errors.Join(err, cli.WriteJSON(cmd.OutOrStdout(), map[string]int{"partitions": done.Partitions, "items": done.Items}))
	})
	cmd.Flags().DurationVar(&age, "older-than", 0, "for how long a partition has been closed, such as 720h")
	cli.Range(cmd.Flags(), "older-than", &age, 0, math.MaxInt64)
	_ = cmd.MarkFlagRequired("older-than") // the flag exists
	cmd.Flags().StringVar(&file, "export", "", "append the items to this `FILE` first, a JSON object a line, as ls --json prints them")
	cli.NotEmpty(cmd.Flags(), "export", "a file")
	return cmd
}

// exportItems appends the items of a partition to a file, and syncs the file before it returns.
func exportItems(file string, items iter.Seq2[feed.Item, error]) error {
	return service.Named("--export", appendfile.Append(file, 0o600, func(w io.Writer) error {
		for it, err := range items {
			if err == nil {
				err = cli.WriteJSON(w, shownItem(it))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
}

func addItems(ctx context.Context, s *feed.Store, partition string, items []feed.Item, seal bool) error {
	_, err := s.CreatePartition(ctx, feed.Partition{ID: partition, Sealed: seal}, items...)
	if !errors.Is(err, feed.ErrDuplicate) {
		return err
	}
	err = s.Insert(ctx, partition, items...)
	switch {
	case errors.Is(err, feed.ErrClosed):
		return fmt.Errorf("%w; jetpull feed reopen %s opens it", err, partition)
	case errors.Is(err, feed.ErrGatePassed):
		p, lookErr := s.Partition(ctx, partition)
		if lookErr != nil {
			return errors.Join(err, lookErr)
		}
		return fmt.Errorf("%w; give --gate %d or higher", err, p.Gate)
	case err != nil || !seal:
		return err
	}
	return s.Seal(ctx, partition)
}
