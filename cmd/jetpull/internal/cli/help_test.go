package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestWrap(t *testing.T) {
	const text = "Handle messages until it is interrupted\n\nExamples:\n  jetpull consume ORDERS worker --create 'orders.>'\n\nFlags:\n" +
		"  -n, --count N   end after N messages; 0 for never\n      --very-long-name-of-a-flag VALUE   how long it takes\n"
	require.Equal(t, "Handle messages until it is\ninterrupted\n\nExamples:\n  jetpull consume ORDERS worker --create 'orders.>'\n\nFlags:\n"+
		"  -n, --count N   end after N\n          messages; 0 for\n          never\n      --very-long-name-of-a-flag VALUE   how long it takes\n", wrap(text, 30), "a name is not broken")
	require.Equal(t, text, wrap(text, 100))
	require.Equal(t, strings.Repeat("x", 50)+"\n", wrap(strings.Repeat("x", 50)+"\n", 20))
	for line := range strings.Lines(wrap("  --flag TEXT   "+strings.Repeat("wörter ", 100), 40)) {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 40)
	}
}
