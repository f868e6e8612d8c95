package feedcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/feed"
)

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

// itemJSON is an item with the columns' names, and its data as text.
type itemJSON struct {
	PartitionID string      `json:"partition_id"`
	ID          string      `json:"id"`
	Gate        int         `json:"gate"`
	Status      feed.Status `json:"status"`
	Attempt     int         `json:"attempt"`
	Errors      []string    `json:"errors"`
	Data        []byte      `json:"data"` // base64
	// Text is Data where that is UTF-8, and null elsewhere.
	Text      *string        `json:"text"`
	NotBefore *time.Time     `json:"not_before"`
	Version   int64          `json:"version"`
	History   []feed.Attempt `json:"history"`
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
	_, err := fmt.Fprintf(out, "%-30s  %-9s  %4d  %-6s  %s\n", oneLine(p.ID), p.Status, p.Gate, sealed, oneLine(cmp.Or(p.Owner, "–")))
	return err
}

func (t *target) printItem(out io.Writer, it feed.Item) error {
	if t.json {
		line := itemJSON{
			PartitionID: it.Partition, ID: it.ID, Gate: it.Gate, Status: it.Status, Attempt: it.Attempt, Errors: append([]string{}, it.Errors...),
			Data: append([]byte{}, it.Data...), NotBefore: timeOrNil(it.NotBefore), Version: it.Version, History: append([]feed.Attempt{}, it.History()...),
		}
		if utf8.Valid(it.Data) {
			line.Text = new(string(it.Data))
		}
		return cli.WriteJSON(out, line)
	}
	_, err := fmt.Fprintf(out, "%-30s  %-9s  %4d  %7d  %s\n", oneLine(it.ID), it.Status, it.Gate, it.Attempt, oneLine(string(it.Data)))
	return err
}

// header prints the names of what printPartition and printItem print, where that is text.
func (t *target) header(out io.Writer, items bool) error {
	if t.json {
		return nil
	}
	line := fmt.Sprintf("%-30s  %-9s  %4s  %-6s  %s\n", "partition", "status", "gate", "sealed", "owner")
	if items {
		line = fmt.Sprintf("%-30s  %-9s  %4s  %7s  %s\n", "item", "status", "gate", "attempt", "data")
	}
	_, err := io.WriteString(out, line)
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
		return t.withExisting(ctx, func(s *feed.Store) error {
			if len(args) == 0 {
				if err := t.header(out, false); err != nil {
					return err
				}
				return eachPartition(ctx, s, q, func(p feed.Partition) error { return t.printPartition(out, p) })
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

// statusOf reads --status, in any case of letters.
func statusOf(text string) (feed.Status, error) {
	all := []feed.Status{"", feed.Available, feed.Complete, feed.Failed}
	i := slices.IndexFunc(all, func(s feed.Status) bool { return strings.EqualFold(string(s), text) })
	if i < 0 {
		return "", fmt.Errorf("--status %q: give Available, Complete or Failed", text)
	}
	return all[i], nil
}

func eachPartition(ctx context.Context, s *feed.Store, q feed.Query, f func(feed.Partition) error) error {
	for {
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
		Use: "show PARTITION [ITEM]", Short: "Show a partition with its counts by gate, or an item with its failed attempts",
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
	if err := errors.Join(t.header(out, true), t.printItem(out, it)); err != nil || t.json {
		return err
	}
	history := it.History()
	if len(history) == 0 { // of a version before there was one
		for i, text := range it.Errors {
			if _, err := fmt.Fprintf(out, "  failed  attempt %d: %s\n", i+1, oneLine(text)); err != nil {
				return err
			}
		}
	}
	for _, a := range history {
		at := a.At.UTC().Format("2006-01-02 15:04:05 UTC")
		if _, err := fmt.Fprintf(out, "  failed %s  gate %d  attempt %d: %s\n", at, a.Gate, a.Attempt, oneLine(a.Error)); err != nil {
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
	if err := errors.Join(t.header(out, false), t.printPartition(out, p)); err != nil || t.json {
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
