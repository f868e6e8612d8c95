package tables

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/feed"
)

// NewList is jetpull feed ls.
func NewList(t *DB) *cobra.Command {
	var gate int
	var data bool
	var status string
	cmd := &cobra.Command{
		Use: "ls [PARTITION]", Short: "List partitions, or the items of one, oldest first", Args: cobra.MaximumNArgs(1),
	}
	cmd.Flags().IntVar(&gate, "gate", 0, "list only the items at this gate")
	cmd.Flags().StringVar(&status, "status", "", "list only what is Available, Complete or Failed")
	cmd.Flags().BoolVar(&data, "data", false, "print the items' data, each with a line's end, and nothing else")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, out, atGate := cmd.Context(), cmd.OutOrStdout(), cmd.Flags().Changed("gate")
		if len(args) == 0 && (atGate || data) {
			return cli.Usage(errors.New("--gate and --data are for the items of a partition: name one"))
		}
		of, err := statusOf(status)
		if err != nil {
			return cli.Usage(err)
		}
		q := feed.Query{Status: of}
		if atGate {
			q.Gate = &gate
		}
		return t.WithExisting(ctx, func(s *feed.Store) error {
			if len(args) == 0 {
				if err := t.header(out, false); err != nil {
					return err
				}
				behind := func(q *feed.Query, p feed.Partition) { q.After = p.ID }
				return each(ctx, q, s.Partitions, behind, func(p feed.Partition) error { return t.printPartition(out, p) })
			}
			if _, err := s.Partition(ctx, args[0]); err != nil {
				return err
			}
			q.Partition = args[0]
			if !data {
				if err := t.header(out, true); err != nil {
					return err
				}
			}
			behind := func(q *feed.Query, it feed.Item) { q.After = it.ID }
			return each(ctx, q, s.Items, behind, func(it feed.Item) error {
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

// statusOf reads --status, in any case of letters.
func statusOf(text string) (feed.Status, error) {
	all := []feed.Status{"", feed.Available, feed.Complete, feed.Failed}
	i := slices.IndexFunc(all, func(s feed.Status) bool { return strings.EqualFold(string(s), text) })
	if i < 0 {
		return "", fmt.Errorf("--status %q: give Available, Complete or Failed", text)
	}
	return all[i], nil
}

type lister[T any] func(context.Context, feed.Query) ([]T, error)

// each calls do with what list returns, a page at a time. next has the query go on behind one.
func each[T any](ctx context.Context, q feed.Query, list lister[T], next func(*feed.Query, T), do func(T) error) error {
	for {
		page, err := list(ctx, q)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, one := range page {
			if err := do(one); err != nil {
				return err
			}
			next(&q, one)
		}
	}
}

// NewShow is jetpull feed show.
func NewShow(t *DB) *cobra.Command {
	return &cobra.Command{
		Use: "show PARTITION [ITEM]", Short: "Show a partition with its counts by gate, or an item with its failed attempts",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, out := cmd.Context(), cmd.OutOrStdout()
			return t.WithExisting(ctx, func(s *feed.Store) error {
				if len(args) == 2 {
					return t.showItem(ctx, out, s, args[0], args[1])
				}
				return t.showPartition(ctx, out, s, args[0])
			})
		},
	}
}

func (t *DB) showItem(ctx context.Context, out io.Writer, s *feed.Store, partition, id string) error {
	it, err := s.Item(ctx, partition, id)
	if err != nil {
		return err
	}
	if err := errors.Join(t.header(out, true), t.printItem(out, it)); err != nil || t.JSON {
		return err
	}
	history := it.History()
	if len(history) == 0 { // of a version before there was one
		for i, text := range it.Errors {
			if _, err := fmt.Fprintf(out, "  failed  attempt %d: %s\n", i+1, OneLine(text)); err != nil {
				return err
			}
		}
	}
	for _, a := range history {
		at := a.At.UTC().Format("2006-01-02 15:04:05 UTC")
		if _, err := fmt.Fprintf(out, "  failed %s  gate %d  attempt %d: %s\n", at, a.Gate, a.Attempt, OneLine(a.Error)); err != nil {
			return err
		}
	}
	return nil
}

func (t *DB) showPartition(ctx context.Context, out io.Writer, s *feed.Store, id string) error {
	p, err := s.Partition(ctx, id)
	if err != nil {
		return err
	}
	if err := errors.Join(t.header(out, false), t.printPartition(out, p)); err != nil || t.JSON {
		return err
	}
	counts, err := s.Counts(ctx, id)
	if err != nil {
		return err
	}
	for _, gate := range slices.Sorted(maps.Keys(counts)) {
		c := counts[gate]
		if _, err := fmt.Fprintf(out, "  gate %-4d  available %d, complete %d, failed %d\n", gate, c.Available, c.Complete, c.Failed); err != nil {
			return err
		}
	}
	return nil
}
