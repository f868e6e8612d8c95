// Package view shows the progress of the partitions of a feed.
package view

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/feedcmd/tables"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/progress"
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
		Use: "watch", Short: "Show partitions as they are worked off, until interrupted", Args: cobra.NoArgs,
		Long: fmt.Sprintf(`Show the first %d partitions that are not complete, and what the last ones came to,
until interrupted. Items at the partition's gate are processed now; those above
wait for it. The rate is of steps: of items that passed to a higher gate, were
complete or are to be processed again, in a second. An owner is shown by the
first %d letters of its ID; --json has it whole.`, viewLimit, shownOwner),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.WithExisting(cmd.Context(), func(s *feed.Store) error { return watch(cmd.Context(), cmd.OutOrStdout(), t.JSON, s, every) })
		},
	}
	cmd.Flags().DurationVar(&every, "interval", time.Second, "time between two looks")
	cli.Lasting(cmd.Flags(), "interval", &every, 100*time.Millisecond)
	return cmd
}

func watch(ctx context.Context, out io.Writer, asJSON bool, s *feed.Store, every time.Duration) error {
	onScreen := progress.IsTerminal(out) && !asJSON
	before, at := map[string]int64{}, time.Now()
	return cli.Every(ctx, every, func() error {
		lines, now, err := progressOf(ctx, s, before, time.Since(at))
		if err != nil {
			return err
		}
		before, at = now, time.Now()
		return draw(out, lines, asJSON, onScreen)
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
			line.Rate = float64(max(0, line.Steps-was)) / max(took.Seconds(), 0.001)
		}
		now[p.ID] = line.Steps
		lines = append(lines, line)
	}
	return lines, now, nil
}

// progressLine is a partition with its counts.
func progressLine(ctx context.Context, s *feed.Store, p feed.Partition) (progressJSON, error) {
	line := progressJSON{Partition: tables.Shown(&p)}
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

func draw(out io.Writer, lines []progressJSON, asJSON, onScreen bool) error {
	var text string
	switch {
	case asJSON:
		var b bytes.Buffer
		for i := range lines {
			if err := cli.WriteJSON(&b, &lines[i]); err != nil {
				return err
			}
		}
		text = b.String()
	case onScreen:
		text = "\x1b[H\x1b[2J" + progress.Fit(out, table(lines))
	default:
		text = table(lines)
	}
	_, err := io.WriteString(out, text)
	return err
}

// shownOwner is how much of an owner's UUID is shown.
const shownOwner = 8

// table is the view as text. The name of a partition comes last, where a narrow terminal cuts it.
func table(lines []progressJSON) string {
	header := []string{"status", ">gate", ">at gate", ">above", ">complete", ">failed", ">rate", "owner", "partition"}
	rows := make([][]string, len(lines))
	for i := range lines {
		l := &lines[i]
		owner := []rune(tables.OneLine(l.Owner))
		rows[i] = []string{
			string(l.Status), strconv.Itoa(l.Gate), progress.Count(l.AtGate), progress.Count(l.Above), progress.Count(l.Complete), progress.Count(l.Failed),
			progress.Count(int64(math.Round(l.Rate))) + "/s", string(owner[:min(len(owner), shownOwner)]), tables.OneLine(l.ID),
		}
	}
	var b strings.Builder
	_ = progress.Table(&b, header, rows) // a row has as many cells as the header, and a Builder takes all
	return b.String()
}
