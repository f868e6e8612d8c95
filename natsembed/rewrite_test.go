package natsembed

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The server rewrites an old block under another name and renames the file. The next sync writes it to disk.
func TestRewrittenBlockIsSynced(t *testing.T) {
	fsync, since := synced()
	g, f := testGroup(t, fsync)
	f.write("1.blk", "2.blk", "3.blk", "4.blk")
	want := func(names ...string) {
		t.Helper()
		require.NoError(t, g.wait(t.Context()))
		require.Equal(t, names, since())
	}
	want("1.blk", "2.blk", "3.blk", "4.blk")
	want("4.blk")
	f.write("2.tmp")
	require.NoError(t, os.Rename(filepath.Join(f.blocks, "2.tmp"), filepath.Join(f.blocks, "2.blk")))
	want("2.blk", "4.blk")
	want("4.blk")
	require.NoError(t, os.Remove(filepath.Join(f.blocks, "1.blk")))
	want("4.blk")
}

// A stream that was purged, reconfigured or recreated counts as another stream: all of it is synced, and no earlier sync covers its
// messages.
func TestAnotherStreamIsSyncedAsAWhole(t *testing.T) {
	fsync, since := synced()
	g, f := testGroup(t, fsync)
	f.write("1.blk", "2.blk")
	require.NoError(t, g.waitAt(t.Context(), 7))
	since()
	require.NoError(t, g.waitAt(t.Context(), 7))
	require.Empty(t, since(), "it is on disk")
	for _, change := range []func(){
		func() { // purged
			require.NoError(t, os.Rename(f.blocks, f.blocks+"-purged"))
			require.NoError(t, os.Mkdir(f.blocks, 0o700))
		},
		func() { // created again
			require.NoError(t, os.Rename(filepath.Dir(f.blocks), filepath.Dir(f.blocks)+"-deleted"))
			require.NoError(t, os.MkdirAll(f.blocks, 0o700))
			f.configure()
		},
	} {
		change()
		f.write("1.blk", "2.blk")
		require.NoError(t, g.wait(t.Context()))
		require.Equal(t, []string{"1.blk", "2.blk"}, since())
		require.NoError(t, g.waitAt(t.Context(), 3))
		require.Equal(t, []string{"2.blk"}, since(), "an earlier stream had this sequence")
	}
}
