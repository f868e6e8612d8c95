package journal

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A failed sync of the blocks' folder counts: without the folder a new block has no name.
func TestFailedSyncOfAFolderIsRemembered(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "blocks")
	require.NoError(t, os.Mkdir(folder, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "1.blk"), []byte("x"), 0o600))
	var failing atomic.Bool
	g := NewGroup("", "s", Disk{Fsync: func(f *os.File) error {
		if failing.Load() && f.Name() == folder {
			return syscall.EIO
		}
		return f.Sync()
	}}, slog.New(slog.DiscardHandler))
	g.blocks.dir = folder
	require.NoError(t, g.Wait(t.Context()))
	failing.Store(true)
	require.NoError(t, g.Wait(t.Context()), "nothing is new in the folder")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "2.blk"), []byte("x"), 0o600))
	require.ErrorIs(t, g.Wait(t.Context()), syscall.EIO)
	failing.Store(false)
	require.ErrorIs(t, g.Wait(t.Context()), syscall.EIO)
}

// A sync that did not begin has dropped nothing: the next one writes everything.
func TestSyncThatWasNotBegunIsTriedAgain(t *testing.T) {
	g := NewGroup(t.TempDir(), "s", Disk{}, slog.New(slog.DiscardHandler))
	require.Error(t, g.Wait(t.Context()), "there is no such folder")
	require.NoError(t, os.MkdirAll(g.blocks.dir, 0o700))
	require.NoError(t, os.WriteFile(g.blocks.path(1), []byte("x"), 0o600))
	require.NoError(t, g.Wait(t.Context()))
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
		_, failed := errors.AsType[*Failure](err)
		require.Equal(t, c.failed, failed, "%v", c.err)
		require.ErrorIs(t, err, c.err)
	}
}
