package feedcmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/feed"
	"github.com/jetpull/jetpull/internal/progress"
)

// viewLimit is how many partitions the view has: what fits a screen.
const viewLimit = 40

func sortedGates(counts map[int]feed.Counts) []int { return slices.Sorted(maps.Keys(counts)) }

// progressJSON is a line of the view.
type progressJSON struct {
	partitionJSON
	Available int     `json:"available"`
	Complete  int     `json:"complete"`
	Failed    int     `json:"failed"`
	Rate      float64 `json:"rate"` // items completed in a second
}

func newWatchCommand(t *target) *cobra.Command {
	var every time.Duration
	cmd := &cobra.Command{
		Use: "watch", Short: "Show partitions as they are worked off, until interrupted", Args: cobra.NoArgs,
		Long: fmt.Sprintf("Show the first %d partitions that are not complete, and what the last ones came to, until interrupted.", viewLimit),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond {
				return cli.Usage(fmt.Errorf("--interval %v is below 100ms", every))
			}
			return t.withExisting(cmd.Context(), func(s *feed.Store) error { return t.watch(cmd.Context(), cmd.OutOrStdout(), s, every) })
		},
	}
	cmd.Flags().DurationVar(&every, "interval", time.Second, "time between two looks")
	return cmd
}

func (t *target) watch(ctx context.Context, out io.Writer, s *feed.Store, every time.Duration) error {
	onScreen := progress.IsTerminal(out) && !t.json
	before, at := map[string]int{}, time.Now()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		lines, now, err := progressOf(ctx, s, before, time.Since(at))
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		before, at = now, time.Now()
		if err := t.draw(out, lines, onScreen); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// progressOf counts the items of the partitions that are not complete, and of those that were not the last time.
func progressOf(ctx context.Context, s *feed.Store, before map[string]int, took time.Duration) (lines []progressJSON, now map[string]int, err error) {
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
	slices.SortFunc(shown, func(a, b feed.Partition) int { return bytes.Compare([]byte(a.ID), []byte(b.ID)) })
	now = map[string]int{}
	for _, p := range shown[:min(len(shown), viewLimit)] {
		counts, err := s.Counts(ctx, p.ID)
		if err != nil {
			return nil, nil, err
		}
		line := progressJSON{partitionJSON: partitionJSON{p.ID, p.Gate, p.Status, p.Owner, timeOrNil(p.Until), p.Epoch, p.Sealed, p.Version}}
		for _, c := range counts {
			line.Available, line.Complete, line.Failed = line.Available+c.Available, line.Complete+c.Complete, line.Failed+c.Failed
		}
		if was, ok := before[p.ID]; ok {
			line.Rate = float64(line.Complete-was) / max(took.Seconds(), 0.001)
		}
		now[p.ID] = line.Complete
		lines = append(lines, line)
	}
	return lines, now, nil
}

func (t *target) draw(out io.Writer, lines []progressJSON, onScreen bool) error {
	var b bytes.Buffer
	if !t.json {
		fmt.Fprintf(&b, "%-30s  %-9s  %4s  %9s  %9s  %6s  %8s  %s\n", "partition", "status", "gate", "available", "complete", "failed", "rate", "owner")
	}
	for i := range lines {
		l := &lines[i]
		if t.json {
			if err := cli.WriteJSON(&b, l); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(&b, "%-30s  %-9s  %4d  %9d  %9d  %6d  %6.0f/s  %s\n", oneLine(l.ID), l.Status, l.Gate, l.Available, l.Complete, l.Failed, l.Rate, oneLine(l.Owner))
	}
	text := b.String()
	if onScreen {
		text = "\x1b[H\x1b[2J" + progress.Fit(out, text)
	}
	_, err := io.WriteString(out, text)
	return err
}
