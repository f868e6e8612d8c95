package natsembed

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A block that is removed between two syncs, or during one, is not a failure.
func TestRemovedBlocksAreNotMissed(t *testing.T) {
	remove := ""
	var folder string
	record, since := synced()
	g, f := testGroup(t, func(file *os.File) error {
		err := record(file)
		if remove != "" {
			require.NoError(t, os.Remove(filepath.Join(folder, remove)))
			remove = ""
		}
		return err
	})
	folder = f.blocks
	wantSynced := func(names ...string) {
		t.Helper()
		since()
		require.NoError(t, g.wait(t.Context()))
		require.Equal(t, names, since())
	}
	f.write("8.blk", "9.blk", "10.blk", "index.db", "7.new")
	wantSynced("10.blk", "8.blk", "9.blk")
	wantSynced("10.blk")
	f.write("12.blk", "15.blk")
	wantSynced("10.blk", "12.blk", "15.blk")
	require.NoError(t, os.Remove(filepath.Join(folder, "15.blk")))
	f.write("17.blk")
	wantSynced("17.blk")
	f.write("18.blk", "19.blk", "20.blk")
	remove = "19.blk"
	wantSynced("17.blk", "18.blk", "20.blk")
	f.grow("20.blk")
	f.write("21.blk")
	wantSynced("20.blk", "21.blk")
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
			require.Equal(t, numbers, got.numbers)
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
