package feedcmd

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/progress"
)

// subcommands are the subcommands of jetpull feed.
func subcommands(t *target) []*cobra.Command {
	operation := func(use, short string, args cobra.PositionalArgs, f func(context.Context, *feed.Store, []string) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
			return t.withExisting(cmd.Context(), func(s *feed.Store) error { return f(cmd.Context(), s, args) })
		}}
	}
	var gate int // to advance to
	atLeastOne, one := cobra.MinimumNArgs(1), cobra.ExactArgs(1)
	return []*cobra.Command{
		newAddCommand(t), newListCommand(t), newShowCommand(t), newWatchCommand(t),
		operation("retry PARTITION [ITEM…]", "Make failed items available again; all unless some are named", atLeastOne,
			func(ctx context.Context, s *feed.Store, args []string) error {
				return s.Retry(ctx, args[0], args[1:]...)
			}),
		operation("skip PARTITION [ITEM…]", "Make failed items complete; all unless some are named", atLeastOne,
			func(ctx context.Context, s *feed.Store, args []string) error {
				return s.Skip(ctx, args[0], args[1:]...)
			}),
		operation("reopen PARTITION", "Make a complete or failed partition available, and unsealed", one,
			func(ctx context.Context, s *feed.Store, args []string) error { return s.Reopen(ctx, args[0]) }),
		operation("close PARTITION", "Make a partition complete whose items all are", one,
			func(ctx context.Context, s *feed.Store, args []string) error { return s.ClosePartition(ctx, args[0]) }),
		operation("advance PARTITION GATE", "Move a partition to a gate; all below it must be complete",
			func(cmd *cobra.Command, args []string) (err error) {
				if err := cobra.ExactArgs(2)(cmd, args); err != nil {
					return err
				}
				if gate, err = strconv.Atoi(args[1]); err != nil {
					return fmt.Errorf("gate %q is not a whole number", args[1])
				}
				return nil
			},
			func(ctx context.Context, s *feed.Store, args []string) error { return s.Advance(ctx, args[0], gate) }),
	}
}

func newAddCommand(t *target) *cobra.Command {
	var gate int
	var seal bool
	cmd := &cobra.Command{
		Use: "add PARTITION", Short: "Add an item for each line of stdin; creates the partition if it is not there",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return cli.Usage(errors.New("PARTITION is empty; name the partition to add to"))
			}
			if gate < 0 {
				return cli.Usage(fmt.Errorf("--gate %d is below 0, the first gate", gate))
			}
			items, err := readItems(cmd.InOrStdin(), gate)
			if err != nil {
				return err
			}
			err = t.with(cmd.Context(), func(s *feed.Store) error { return addItems(cmd.Context(), s, args[0], items, seal) })
			if err == nil && !t.json {
				cli.Tell(cmd.ErrOrStderr(), "%s items added to %s\n", progress.Count(len(items)), oneLine(args[0]))
			}
			return err
		},
	}
	cmd.Flags().IntVar(&gate, "gate", 0, "gate of the items")
	cmd.Flags().BoolVar(&seal, "seal", false, "say that no more items will come")
	return cmd
}

// readItems reads an item a line. Only the line's end is not part of it.
func readItems(in io.Reader, gate int) (items []feed.Item, err error) {
	for r := bufio.NewReader(in); ; {
		line, err := r.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read stdin: %w", err)
		}
		if len(line) > 0 {
			items = append(items, feed.Item{Gate: gate, Data: bytes.TrimSuffix(line, []byte("\n"))})
		}
		if err != nil {
			return items, nil //nolint:nilerr // the end of the input
		}
	}
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

// partitionJSON is a partition with the columns' names.
type partitionJSON struct {
	ID      string      `json:"id"`
	Gate    int         `json:"gate"`
	Status  feed.Status `json:"status"`
	Owner   string      `json:"owner"`
	Until   *time.Time  `json:"until"`
	Epoch   int64       `json:"epoch"`
	Sealed  bool        `json:"sealed"`
	Version int64       `json:"version"`
}

// itemJSON is an item with the columns' names.
type itemJSON struct {
	PartitionID string      `json:"partition_id"`
	ID          string      `json:"id"`
	Gate        int         `json:"gate"`
	Status      feed.Status `json:"status"`
	Attempt     int         `json:"attempt"`
	Errors      []string    `json:"errors"`
	Data        []byte      `json:"data"` // base64
	NotBefore   *time.Time  `json:"not_before"`
	Version     int64       `json:"version"`
}

func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

func (t *target) printPartition(out io.Writer, p feed.Partition) error {
	if t.json {
		return cli.WriteJSON(out, partitionJSON{p.ID, p.Gate, p.Status, p.Owner, timeOrNil(p.Until), p.Epoch, p.Sealed, p.Version})
	}
	sealed := "open"
	if p.Sealed {
		sealed = "sealed"
	}
	_, err := fmt.Fprintf(out, "%-30s  %-9s  gate %-4d  %-6s  %s\n", oneLine(p.ID), p.Status, p.Gate, sealed, oneLine(cmp.Or(p.Owner, "–")))
	return err
}

func (t *target) printItem(out io.Writer, it feed.Item) error {
	if t.json {
		line := itemJSON{it.Partition, it.ID, it.Gate, it.Status, it.Attempt, it.Errors, it.Data, timeOrNil(it.NotBefore), it.Version}
		if line.Errors == nil {
			line.Errors = []string{}
		}
		if line.Data == nil {
			line.Data = []byte{}
		}
		return cli.WriteJSON(out, line)
	}
	_, err := fmt.Fprintf(out, "%-30s  %-9s  gate %-4d  attempt %-3d  %s\n", oneLine(it.ID), it.Status, it.Gate, it.Attempt, oneLine(string(it.Data)))
	return err
}

// oneLine shows text of users on one line of a terminal, without its control characters.
func oneLine(text string) string {
	const most = 100
	quoted := strconv.Quote(text)
	quoted = quoted[1 : len(quoted)-1]
	if runes := []rune(quoted); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return quoted
}

func newListCommand(t *target) *cobra.Command {
	var gate int
	var data bool
	cmd := &cobra.Command{
		Use: "ls [PARTITION]", Short: "List partitions, or the items of one, oldest first", Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().IntVar(&gate, "gate", 0, "list only the items at this gate")
	cmd.Flags().BoolVar(&data, "data", false, "print the items' data, each with a line's end, and nothing else")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, out, atGate := cmd.Context(), cmd.OutOrStdout(), cmd.Flags().Changed("gate")
		if len(args) == 0 && (atGate || data) {
			return cli.Usage(errors.New("--gate and --data are for the items of a partition: name one"))
		}
		return t.withExisting(ctx, func(s *feed.Store) error {
			if len(args) == 0 {
				return eachPartition(ctx, s, func(p feed.Partition) error { return t.printPartition(out, p) })
			}
			if _, err := s.Partition(ctx, args[0]); err != nil {
				return err
			}
			q := feed.Query{Partition: args[0]}
			if atGate {
				q.Gate = &gate
			}
			return eachItem(ctx, s, q, func(it feed.Item) error {
				if data {
					_, err := out.Write(append(it.Data, '\n'))
					return err
				}
				return t.printItem(out, it)
			})
		})
	}
	return cmd
}

func eachPartition(ctx context.Context, s *feed.Store, f func(feed.Partition) error) error {
	for q := (feed.Query{}); ; {
		page, err := s.Partitions(ctx, q)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, p := range page {
			if err := f(p); err != nil {
				return err
			}
			q.After = p.ID
		}
	}
}

func eachItem(ctx context.Context, s *feed.Store, q feed.Query, f func(feed.Item) error) error {
	for {
		page, err := s.Items(ctx, q)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, it := range page {
			if err := f(it); err != nil {
				return err
			}
			q.After = it.ID
		}
	}
}

func newShowCommand(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "show PARTITION [ITEM]", Short: "Show a partition with its counts by gate, or an item with its errors",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, out := cmd.Context(), cmd.OutOrStdout()
			return t.withExisting(ctx, func(s *feed.Store) error {
				if len(args) == 2 {
					return t.showItem(ctx, out, s, args[0], args[1])
				}
				return t.showPartition(ctx, out, s, args[0])
			})
		},
	}
}

func (t *target) showItem(ctx context.Context, out io.Writer, s *feed.Store, partition, id string) error {
	it, err := s.Item(ctx, partition, id)
	if err != nil {
		return err
	}
	if err := t.printItem(out, it); err != nil || t.json {
		return err
	}
	for i, text := range it.Errors {
		if _, err := fmt.Fprintf(out, "  error %d: %s\n", i+1, oneLine(text)); err != nil {
			return err
		}
	}
	return nil
}

func (t *target) showPartition(ctx context.Context, out io.Writer, s *feed.Store, id string) error {
	p, err := s.Partition(ctx, id)
	if err != nil {
		return err
	}
	if err := t.printPartition(out, p); err != nil || t.json {
		return err
	}
	counts, err := s.Counts(ctx, id)
	if err != nil {
		return err
	}
	for _, gate := range sortedGates(counts) {
		c := counts[gate]
		if _, err := fmt.Fprintf(out, "  gate %-4d  available %d, complete %d, failed %d\n", gate, c.Available, c.Complete, c.Failed); err != nil {
			return err
		}
	}
	return nil
}
