package feedcmd

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/feed"
)

// In 80 columns a line of watch has the rate, the beginning of the partition's name, and the number at the gate; in 40 the beginning of the name.
func TestWatchFitsEightyColumns(t *testing.T) {
	var out strings.Builder
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	require.NoError(t, cli.List(cmd, watched, cli.All([]progressJSON{{
		Partition: feed.Partition{ID: strings.Repeat("long-name-", 10), Status: "Available", Gate: 1, Owner: "0af3c0de-8a4e-4c3f-9d4e-2f1b5c7a9e10"},
		AtGate:    123_456, Above: 1000, Complete: 654_321, Failed: 12, Rate: 12_345.6,
	}, {Partition: feed.Partition{ID: "short", Status: "Complete"}}})))
	text := out.String()
	require.Regexp(t, `12345\.6 +654321 +12  long-name-`, text)
	for line := range strings.Lines(text) {
		if strings.Contains(line, "long-name-") {
			require.Contains(t, string([]rune(line)[:80]), " 123456")
			require.Contains(t, string([]rune(line)[:40]), "  long-name-")
		}
	}
}
