package view

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/feedcmd/tables"
)

// On a terminal of 80 columns a line of watch has its rate and owner in full.
func TestWatchFitsEightyColumns(t *testing.T) {
	lines := []progressJSON{{
		Partition: tables.Partition{ID: strings.Repeat("long-name-", 10), Status: "Available", Gate: 1, Owner: "0af3c0de-8a4e-4c3f-9d4e-2f1b5c7a9e10"},
		AtGate:    123_456, Above: 1000, Complete: 654_321, Failed: 12, Rate: 12_345.6,
	}, {Partition: tables.Partition{ID: "short", Status: "Complete"}}}
	for _, width := range []int{80, 120, 0} {
		text := watchText(lines, width)
		require.Contains(t, text, "12,346/s  0af3c0de\n")
		require.Contains(t, text, "123,456")
		require.Contains(t, text, "long-na")
		for line := range strings.Lines(text) {
			if width > 0 {
				require.LessOrEqual(t, len([]rune(strings.TrimSuffix(line, "\n"))), width, line)
			}
		}
	}
	require.Contains(t, watchText(lines, 0), strings.Repeat("long-name-", 10), "not on a terminal a name is whole")
}
