package feedcmd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/feed"
)

// db is the database of a command.
type db struct{ dsn string }

// register adds the flags to a command and its subcommands.
func (t *db) register(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&t.dsn, "db", "sqlite:feed.db", "`DSN` of the database: sqlite:FILE, postgres://… or sqlserver://…")
	cmd.PersistentFlags().Bool("json", false, "print JSON, one value per line; errors too")
}

// with opens the database and calls f.
func (t *db) with(ctx context.Context, f func(s *feed.Store) error) (err error) {
	s, err := feed.Open(ctx, t.dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return f(s)
}

// command returns a command that calls f with an existing database. It returns an error instead of creating a missing SQLite file.
func (t *db) command(use, short string, f func(cmd *cobra.Command, s *feed.Store, args []string) error) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		rest, isFile := strings.CutPrefix(t.dsn, "sqlite:")
		path, _, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "?")
		if isFile && path != "" && !strings.HasPrefix(path, ":memory:") {
			if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("no database at %s; jetpull feed add makes it", path)
			}
		}
		return t.with(cmd.Context(), func(s *feed.Store) error { return f(cmd, s, args) })
	}}
}

// item is an item as JSON, with the names of the columns.
type item struct {
	PartitionID string      `json:"partition_id"`
	ID          string      `json:"id"`
	Gate        int         `json:"gate"`
	Status      feed.Status `json:"status"`
	Attempt     int         `json:"attempt"`
	Errors      []string    `json:"errors,omitempty"`
	cli.Payload
	NotBefore time.Time      `json:"not_before,omitzero"`
	Version   int64          `json:"version"`
	History   []feed.Attempt `json:"history,omitempty"`
}

// shownItem returns an item as it is printed.
func shownItem(it feed.Item) item {
	return item{it.Partition, it.ID, it.Gate, it.Status, it.Attempt, it.Errors, cli.PayloadOf(it.Data), it.NotBefore, it.Version, it.History()}
}

func newList(t *db) *cobra.Command {
	var gate int
	var data bool
	var q feed.Query
	cmd := t.command("ls [PARTITION]", "List partitions, or the items of one, oldest first",
		func(cmd *cobra.Command, s *feed.Store, args []string) error {
			ctx := cmd.Context()
			if cmd.Flags().Changed("gate") {
				q.Gate = &gate
			}
			if len(args) == 0 {
				if q.Gate != nil || data {
					return cli.Usage(errors.New("--gate and --data are for the items of a partition: name one"))
				}
				all := pages(ctx, q, s.Partitions, func(p feed.Partition) string { return p.ID })
				return cli.List(cmd, []string{"id", "status", ">gate", "sealed", "owner"}, all)
			}
			q.Partition = args[0]
			if _, err := s.Partition(ctx, q.Partition); err != nil {
				return err
			}
			all := pages(ctx, q, s.Items, func(it feed.Item) string { return it.ID })
			if !data {
				return cli.List(cmd, []string{"id", "status", ">gate", ">attempt", "data"}, cli.Map(all, shownItem))
			}
			for it, err := range all {
				if err != nil {
					return err
				}
				if _, err := cmd.OutOrStdout().Write(append(it.Data, '\n')); err != nil {
					return err
				}
			}
			return nil
		})
	cmd.Flags().IntVar(&gate, "gate", 0, "list only the items at this gate")
	cmd.Flags().BoolVar(&data, "data", false, "print the items' data, each with a line's end, and nothing else")
	cmd.Flags().Func("status", "list only what has the `STATUS` Available, Complete or Failed", func(text string) error {
		for _, q.Status = range []feed.Status{feed.Available, feed.Complete, feed.Failed} {
			if strings.EqualFold(string(q.Status), text) {
				return nil
			}
		}
		return errors.New("give Available, Complete or Failed")
	})
	return cmd
}

// pages returns all objects of a list, page by page. Each page begins after the last ID of the previous one.
func pages[T any](ctx context.Context, q feed.Query, list func(context.Context, feed.Query) ([]T, error), id func(T) string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			page, err := list(ctx, q)
			if err != nil {
				yield(*new(T), err)
			}
			if err != nil || len(page) == 0 {
				return
			}
			for _, one := range page {
				if !yield(one, nil) {
					return
				}
			}
			q.After = id(page[len(page)-1])
		}
	}
}

func newShow(t *db) *cobra.Command {
	const short = "Show a partition with its counts by gate, or an item with its failed attempts"
	return t.command("show PARTITION [ITEM]", short, func(cmd *cobra.Command, s *feed.Store, args []string) error {
		ctx := cmd.Context()
		if len(args) == 2 {
			it, err := s.Item(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			return cli.Show(cmd, shownItem(it))
		}
		p, err := s.Partition(ctx, args[0])
		if err != nil {
			return err
		}
		counts, err := s.Counts(ctx, args[0])
		if err != nil {
			return err
		}
		shown := struct {
			feed.Partition
			Gates []gate `json:"gates,omitempty"`
		}{p, nil}
		for _, n := range slices.Sorted(maps.Keys(counts)) {
			shown.Gates = append(shown.Gates, gate{n, counts[n].Available, counts[n].Complete, counts[n].Failed})
		}
		return cli.Show(cmd, shown)
	})
}

type gate struct {
	Gate      int `json:"gate"`
	Available int `json:"available"`
	Complete  int `json:"complete"`
	Failed    int `json:"failed"`
}

func newPs(t *db) *cobra.Command {
	cmd := t.command("ps", "List the items that watchers process, and since when", func(cmd *cobra.Command, s *feed.Store, _ []string) error {
		found, err := s.Running(cmd.Context())
		if err != nil {
			return err
		}
		columns := []string{"partition", "item", ">gate", ">attempt", "since", "host", ">pid", "watcher:8"}
		return cli.ListOr(cmd, columns, cli.All(found), "no running items")
	})
	cmd.Long = `List the items that watchers process, those that have run longest first. A watcher
reports them three times in the length of --lease. jetpull feed cancel cancels one.`
	return cmd
}

// viewLimit is the maximum number of partitions in the view, so that it fits a screen.
const viewLimit = 40

type progressJSON struct {
	feed.Partition
	// of these, AtGate are at the partition's gate, Above are at later gates, and Below were inserted too late by another program
	Available int     `json:"available"`
	AtGate    int     `json:"at_gate"`
	Above     int     `json:"above"`
	Below     int     `json:"below"`
	Steps     int64   `json:"steps"` // completed: an item passed a gate, became Complete or was requeued
	Complete  int     `json:"complete"`
	Failed    int     `json:"failed"`
	Rate      float64 `json:"rate"` // steps per second
}

func newWatch(t *db) *cobra.Command {
	var every time.Duration
	cmd := t.command("watch", "Show the progress of partitions, until interrupted", func(cmd *cobra.Command, s *feed.Store, _ []string) error {
		before, at := map[string]int64{}, time.Now()
		return cli.Watch(cmd, every, func() error {
			lines, now, err := progressOf(cmd.Context(), s, before, time.Since(at))
			if err != nil {
				return err
			}
			before, at = now, time.Now()
			if len(lines) == 0 && !cli.JSON(cmd) {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "every partition is complete")
				return err
			}
			return cli.List(cmd, watched, cli.All(lines))
		})
	})
	cmd.Long = fmt.Sprintf(`Show the first %d partitions that are not complete, and what the last ones came to.
Items at the partition's gate are processed now; those above wait for it, and those
below were inserted too late by another program: nobody processes them. The rate is of
items that passed to a higher gate, were complete or are to be processed again.`, viewLimit)
	cli.Interval(cmd.Flags(), &every)
	return cmd
}

// progressOf counts the items of incomplete partitions, and of those that were incomplete at the previous call.
func progressOf(ctx context.Context, s *feed.Store, before map[string]int64, took time.Duration) (lines []progressJSON, now map[string]int64,
	err error,
) {
	var shown []feed.Partition
	for _, status := range []feed.Status{feed.Available, feed.Failed} {
		page, err := s.Partitions(ctx, feed.Query{Status: status, Limit: viewLimit})
		if err != nil {
			return nil, nil, err
		}
		shown = append(shown, page...)
	}
	for id := range before {
		if slices.ContainsFunc(shown, func(p feed.Partition) bool { return p.ID == id }) {
			continue
		}
		if p, err := s.Partition(ctx, id); err == nil {
			shown = append(shown, p)
		}
	}
	slices.SortFunc(shown, func(a, b feed.Partition) int { return strings.Compare(a.ID, b.ID) })
	now = map[string]int64{}
	for _, p := range shown[:min(len(shown), viewLimit)] {
		line, err := progressLine(ctx, s, p)
		if err != nil {
			return nil, nil, err
		}
		if was, ok := before[p.ID]; ok {
			line.Rate = math.Round(float64(max(0, line.Steps-was))/max(took.Seconds(), 0.001)*10) / 10
		}
		now[p.ID] = line.Steps
		lines = append(lines, line)
	}
	return lines, now, nil
}

func progressLine(ctx context.Context, s *feed.Store, p feed.Partition) (progressJSON, error) {
	line := progressJSON{Partition: p}
	counts, err := s.Counts(ctx, p.ID)
	if err != nil {
		return line, err
	}
	for gate, c := range counts {
		line.Available, line.Complete, line.Failed = line.Available+c.Available, line.Complete+c.Complete, line.Failed+c.Failed
		switch {
		case gate > p.Gate:
			line.Above += c.Available
		case gate < p.Gate:
			line.Below += c.Available
		}
	}
	line.AtGate = line.Available - line.Above - line.Below
	line.Steps, err = s.Steps(ctx, p.ID)
	return line, err
}

// watched are the columns of the view. A narrow terminal cuts off the last ones.
var watched = []string{">rate", ">complete", ">failed", "id:24", "status", ">gate", ">at_gate", ">above", ">below", "owner:9"}
