package journal

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A block that is removed between two syncs, or during one, is not a failure.
func TestRemovedBlocksAreNotMissed(t *testing.T) {
	folder := t.TempDir()
	var synced []string
	remove := ""
	d := Disk{Note: func(path string, _ int64) {
		synced = append(synced, filepath.Base(path))
		if remove != "" {
			require.NoError(t, os.Remove(filepath.Join(folder, remove)))
			remove = ""
		}
	}}
	g := NewGroup("", "s", d, slog.New(slog.DiscardHandler))
	g.blocks.dir = folder
	write := func(names ...string) {
		for _, name := range names {
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte("x"), 0o600))
		}
	}
	wantSynced := func(names ...string) {
		t.Helper()
		synced = nil
		require.NoError(t, g.Wait(t.Context()))
		require.Equal(t, names, synced)
	}
	write("8.blk", "9.blk", "10.blk", "index.db", "7.new")
	wantSynced("8.blk", "9.blk", "10.blk")
	wantSynced("10.blk")
	write("12.blk", "15.blk")
	wantSynced("10.blk", "12.blk", "15.blk")
	require.NoError(t, os.Remove(filepath.Join(folder, "15.blk")))
	write("17.blk")
	wantSynced("17.blk")
	write("18.blk", "19.blk")
	remove = "18.blk"
	wantSynced("17.blk", "19.blk")
}

// A folder is listed again while its time could hide a change, and after that only when the time changes.
func TestFolderIsListedWhenItMayHaveChanged(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := blockFolder{dir: folder}
		at := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
		// write adds a file and leaves the folder's time unchanged.
		write := func(name string) {
			require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o600))
			require.NoError(t, os.Chtimes(folder, at, at))
		}
		want := func(numbers ...int) {
			t.Helper()
			got, err := b.look()
			require.NoError(t, err)
			require.Equal(t, numbers, got)
		}
		write("1.blk")
		want(1)
		write("2.blk")
		want(1, 2)
		time.Sleep(granularity)
		write("3.blk")
		want(1, 2, 3)
		time.Sleep(time.Nanosecond)
		want(1, 2, 3)
		write("4.blk") // no file system hides a change for that long
		want(1, 2, 3)
		at = at.Add(time.Nanosecond)
		write("5.blk")
		want(1, 2, 3, 4, 5)
		write("6.blk")
		want(1, 2, 3, 4, 5, 6)
	})
}
