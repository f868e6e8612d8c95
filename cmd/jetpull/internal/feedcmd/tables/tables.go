// Package tables opens the database of a feed, and implements the commands that show its contents.
package tables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/feed"
)

// DB is the database of a command, and how it prints.
type DB struct {
	JSON bool

	dsn string
}

// Flags adds the flags to a command and those below it.
func (t *DB) Flags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&t.dsn, "db", "sqlite:feed.db", "`DSN` of the database: sqlite:FILE, postgres://… or sqlserver://…")
	cmd.PersistentFlags().BoolVar(&t.JSON, "json", false, "print JSON, an object a line")
}

// With runs f on the opened database.
func (t *DB) With(ctx context.Context, f func(s *feed.Store) error) (err error) {
	s, err := feed.Open(ctx, t.dsn)
	if err != nil {
		return UsageOf(err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return f(s)
}

// WithExisting is With, but makes no file of SQLite: in one that is not there, nothing can be found.
func (t *DB) WithExisting(ctx context.Context, f func(s *feed.Store) error) error {
	rest, isFile := strings.CutPrefix(t.dsn, "sqlite:")
	path, _, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
	if isFile && path != "" && !strings.HasPrefix(path, ":memory:") {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("no database at %s; jetpull feed add makes it", path)
		}
	}
	return t.With(ctx, f)
}

// UsageOf makes an error of an option, or of the DSN, one of the command line.
func UsageOf(err error) error {
	if errors.Is(err, feed.ErrInvalid) {
		return cli.Usage(err)
	}
	return err
}

// Partition is a partition with the columns' names.
type Partition struct {
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

// Shown is a partition as it is shown.
func Shown(p *feed.Partition) Partition {
	return Partition{p.ID, p.Gate, p.Status, p.Owner, timeOrNil(p.Until), p.Epoch, p.Sealed, p.Version}
}

func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// A list can be longer than memory, so its columns have fixed widths.
const (
	partitionLine = "%-30s  %-9s  %4v  %-6s  %s\n"
	itemLine      = "%-30s  %-9s  %4v  %7v  %s\n"
)

func (t *DB) printPartition(out io.Writer, p feed.Partition) error {
	if t.JSON {
		return cli.WriteJSON(out, Shown(&p))
	}
	sealed := "open"
	if p.Sealed {
		sealed = "sealed"
	}
	_, err := fmt.Fprintf(out, partitionLine, OneLine(p.ID), p.Status, p.Gate, sealed, OneLine(cmp.Or(p.Owner, "–")))
	return err
}

func (t *DB) printItem(out io.Writer, it feed.Item) error {
	if t.JSON {
		return WriteItem(out, it)
	}
	_, err := fmt.Fprintf(out, itemLine, OneLine(it.ID), it.Status, it.Gate, it.Attempt, OneLine(string(it.Data)))
	return err
}

// WriteItem prints an item as a line of JSON.
func WriteItem(out io.Writer, it feed.Item) error {
	line := itemJSON{
		PartitionID: it.Partition, ID: it.ID, Gate: it.Gate, Status: it.Status, Attempt: it.Attempt, Errors: append([]string{}, it.Errors...),
		Data: append([]byte{}, it.Data...), NotBefore: timeOrNil(it.NotBefore), Version: it.Version, History: append([]feed.Attempt{}, it.History()...),
	}
	if utf8.Valid(it.Data) {
		line.Text = new(string(it.Data))
	}
	return cli.WriteJSON(out, line)
}

// header prints the names of what printPartition and printItem print, where that is text.
func (t *DB) header(out io.Writer, items bool) error {
	if t.JSON {
		return nil
	}
	if items {
		_, err := fmt.Fprintf(out, itemLine, "item", "status", "gate", "attempt", "data")
		return err
	}
	_, err := fmt.Fprintf(out, partitionLine, "partition", "status", "gate", "sealed", "owner")
	return err
}

// OneLine shows text of users on one line of a terminal, without its control characters.
func OneLine(text string) string {
	const most = 100
	quoted := strconv.Quote(text)
	quoted = quoted[1 : len(quoted)-1]
	if runes := []rune(quoted); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return quoted
}

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
