package cli

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"1d": day, "1w": 7 * day, "1.5d": 36 * time.Hour, "1w2d3h4m": 9*day + 3*time.Hour + 4*time.Minute, "30s": 30 * time.Second, "-1d": -day, "0": 0,
	} {
		got, err := ParseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"d", "1", "1day", "one", ""} {
		_, err := ParseDuration(text)
		require.Error(t, err, text)
	}
}

func TestDurationFlagsTakeDays(t *testing.T) {
	var one, bounded time.Duration
	var list []time.Duration
	cmd := &cobra.Command{}
	cmd.Flags().DurationVar(&one, "one", 0, "")
	Duration(cmd.Flags(), &bounded, "bounded", 0, time.Second, "")
	cmd.PersistentFlags().DurationSliceVar(&list, "list", nil, "")
	prepare(cmd, func() {})
	require.NoError(t, cmd.ParseFlags([]string{"--one", "1d", "--bounded", "1w", "--list", "1d,2w"}))
	require.Equal(t, []time.Duration{24 * time.Hour, 7 * 24 * time.Hour, 24 * time.Hour, 14 * 24 * time.Hour}, append([]time.Duration{one, bounded}, list...))
	got, err := cmd.Flags().GetDuration("bounded")
	require.NoError(t, err)
	require.Equal(t, bounded, got)
	require.ErrorContains(t, cmd.ParseFlags([]string{"--bounded", "60w"}), "is not in 1s..")
}

func TestNearest(t *testing.T) {
	cmd := &cobra.Command{}
	for _, name := range []string{"count", "concurrency", "wait", "no-wait"} {
		cmd.Flags().Bool(name, false, "")
	}
	for typed, want := range map[string]string{"cuont": "count", "concurency": "concurrency", "wiat": "wait", "nowait": "no-wait", "x": "", "subject": ""} {
		require.Equal(t, want, nearest(cmd.Flags(), typed), typed)
	}
}
