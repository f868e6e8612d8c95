package feedcmd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/feed"
)

// An export that fails leaves the file as it was, and one after a crash begins on a line of its own.
func TestExportItems(t *testing.T) {
	large, broken := strings.Repeat("x", 10<<10), errors.New("the database is away") // larger than what is buffered
	items := func(end error) func(func(feed.Item, error) bool) {
		return func(yield func(feed.Item, error) bool) {
			if yield(feed.Item{Partition: "p", ID: "1", Data: []byte(large)}, nil) && end != nil {
				yield(feed.Item{}, end)
			}
		}
	}
	for before, lines := range map[string]int{"": 1, "{}\n": 2, "{}\n{\"id": 3} {
		name := filepath.Join(t.TempDir(), "closed.ndjson")
		require.NoError(t, os.WriteFile(name, []byte(before), 0o600))
		require.ErrorIs(t, exportItems(name, items(broken)), broken)
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, before, string(text))
		require.NoError(t, exportItems(name, items(nil)))
		text, err = os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, lines, strings.Count(string(text), "\n"))
		last := strings.TrimPrefix(string(text), before)
		require.Contains(t, last, large)
		require.Equal(t, lines == 3, strings.HasPrefix(last, "\n"))
	}
}
