// Package view shows the progress of the partitions of a feed.
package view

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/feedcmd/tables"
	"github.com/jetpull/jetpull/feed"
)

// viewLimit is how many partitions the view has: what fits a screen.
const viewLimit = 40

// progressJSON is a line of the view.
type progressJSON struct {
	tables.Partition
	Available int     `json:"available"` // of which AtGate are at the partition's gate, and Above wait behind it
	AtGate    int     `json:"at_gate"`
	Above     int     `json:"above"`
	Steps     int64   `json:"steps"` // that are over: an item passed a gate, was Complete or was requeued
	Complete  int     `json:"complete"`
	Failed    int     `json:"failed"`
	Rate      float64 `json:"rate"` // steps in a second
}

// New is jetpull feed watch.
func New(t *tables.DB) *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use: "watch", Short: "Show the progress of partitions, until interrupted",
		Long: fmt.Sprintf(`Show the first %d partitions that are not complete, and what the last ones came to,
until interrupted. Items at the partition's gate are processed now; those above
wait for it. The rate is of steps: of items that passed to a higher gate, were
complete or are to be processed again, in a second. An owner is shown by the
first letters of its ID; --json has it whole.`, viewLimit),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.WithExisting(cmd.Context(), func(s *feed.Store) error { return watch(cmd, t.JSON, s, every) })
		},
	}
	cli.Interval(cmd.Flags(), &every)
	return cmd
}

func watch(cmd *cobra.Command, asJSON bool, s *feed.Store, every time.Duration) error {
	ctx := cmd.Context()
	before, at := map[string]int64{}, time.Now()
	return cli.Every(ctx, every, func() error {
		lines, now, err := progressOf(ctx, s, before, time.Since(at))
		if err != nil {
			return err
		}
		before, at = now, time.Now()
		return cli.Redraw(cmd, asJSON, func() error {
			if len(lines) == 0 && !asJSON {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "every partition is complete")
				return err
			}
			return cli.List(cmd, asJSON, columns, cli.All(lines))
		})
	})
}

// progressOf counts the items of the partitions that are not complete, and of those that were not the last time.
func progressOf(ctx context.Context, s *feed.Store, before map[string]int64, took time.Duration) (lines []progressJSON, now map[string]int64, err error) {
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

// progressLine is a partition with its counts.
func progressLine(ctx context.Context, s *feed.Store, p feed.Partition) (progressJSON, error) {
	line := progressJSON{Partition: tables.Shown(p)}
	counts, err := s.Counts(ctx, p.ID)
	if err != nil {
		return line, err
	}
	for gate, c := range counts {
		line.Available, line.Complete, line.Failed = line.Available+c.Available, line.Complete+c.Complete, line.Failed+c.Failed
		if gate > p.Gate {
			line.Above += c.Available
		}
	}
	line.AtGate = line.Available - line.Above
	line.Steps, err = s.Steps(ctx, p.ID)
	return line, err
}

// columns are those of the view. The name of a partition comes last, where a narrow terminal cuts it.
var columns = []string{"status", ">gate", ">at_gate", ">above", ">complete", ">failed", ">rate", "owner:9", "id"}
