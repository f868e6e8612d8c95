package natsembed

import (
	"errors"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A failed sync of the blocks' folder counts: without the folder a new block has no name.
func TestFailedSyncOfAFolderIsRemembered(t *testing.T) {
	var failing atomic.Bool
	var folder string
	g, blocks := testGroup(t, func(f *os.File) error {
		if failing.Load() && f.Name() == folder {
			return syscall.EIO
		}
		return f.Sync()
	})
	folder = blocks.blocks
	blocks.write("1.blk")
	require.NoError(t, g.wait(t.Context()))
	failing.Store(true)
	require.NoError(t, g.wait(t.Context()), "nothing is new in the folder")
	blocks.write("2.blk")
	require.ErrorIs(t, g.wait(t.Context()), syscall.EIO)
	failing.Store(false)
	require.ErrorIs(t, g.wait(t.Context()), syscall.EIO)
}

// A sync that did not begin has dropped nothing, so the next sync writes everything.
func TestSyncThatWasNotBegunIsTriedAgain(t *testing.T) {
	g, blocks := testGroup(t, (*os.File).Sync)
	require.Error(t, g.wait(t.Context()), "there is no block")
	blocks.write("1.blk")
	require.NoError(t, g.wait(t.Context()))
	require.NoError(t, g.disk.failure())
}

// A disk that became read-only has failed, even if no sync has begun.
func TestUnopenedFileOfAFailedDisk(t *testing.T) {
	for _, c := range []struct {
		err    error
		failed bool
	}{
		{syscall.EROFS, true}, {syscall.EIO, true}, {syscall.EMFILE, false}, {syscall.ENFILE, false}, {fs.ErrNotExist, false},
	} {
		err := unopened("1.blk", &os.PathError{Op: "open", Path: "1.blk", Err: c.err})
		_, failed := errors.AsType[*failure](err)
		require.Equal(t, c.failed, failed, "%v", c.err)
		require.ErrorIs(t, err, c.err)
	}
}
