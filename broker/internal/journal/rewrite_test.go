package journal

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The server rewrites an old block under another name and renames the file. The next sync writes it to disk.
func TestRewrittenBlockIsSynced(t *testing.T) {
	dir := t.TempDir()
	blocks := filepath.Join(dir, "jetstream", "$G", "streams", "s", "msgs")
	require.NoError(t, os.MkdirAll(blocks, 0o700))
	write := func(name string) {
		require.NoError(t, os.WriteFile(filepath.Join(blocks, name), []byte(name), 0o600))
	}
	for n := 1; n <= 4; n++ {
		write(fmt.Sprintf("%d.blk", n))
	}
	var synced []string
	g := NewGroup(dir, "s", Disk{Note: func(path string, _ int64) { synced = append(synced, filepath.Base(path)) }}, slog.New(slog.DiscardHandler))
	g.StartAt(0)
	require.NoError(t, g.Wait(t.Context()))
	require.Equal(t, []string{"4.blk"}, synced)

	synced = nil
	write("2.tmp")
	require.NoError(t, os.Rename(filepath.Join(blocks, "2.tmp"), filepath.Join(blocks, "2.blk")))
	require.NoError(t, g.Wait(t.Context()))
	require.Equal(t, []string{"4.blk", "2.blk"}, synced)
	synced = nil
	require.NoError(t, g.Wait(t.Context()))
	require.Equal(t, []string{"4.blk"}, synced, "once")
	require.NoError(t, os.Remove(filepath.Join(blocks, "1.blk")))
	require.NoError(t, g.Wait(t.Context()))
}
