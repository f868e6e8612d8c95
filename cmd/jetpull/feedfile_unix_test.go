//go:build unix

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The feed's database and the files beside it are for their owner alone, whatever the umask allows.
func TestFeedFilesAreTheOwners(t *testing.T) {
	needShell(t)
	r := newFeedReader(t, []string{"", ""})
	r.do(t, "umask 0; seq 3 | jetpull feed add p")
	r.until(t, "sh -c 'umask 0; exec jetpull feed --exec true'", syscall.SIGTERM, func(out string) bool {
		modes := map[string]fs.FileMode{}
		files, err := filepath.Glob(filepath.Join(r.dir, "feed.db*"))
		require.NoError(t, err)
		for _, file := range files {
			if info, err := os.Stat(file); err == nil {
				modes[filepath.Base(file)] = info.Mode().Perm()
			}
		}
		for name, mode := range modes {
			require.Equal(t, fs.FileMode(0o600), mode, name)
		}
		return len(modes) == 3 && strings.Contains(out, "feed: watching") // with -wal and -shm, and past the start
	})
	left, err := filepath.Glob(filepath.Join(r.dir, ".feed*"))
	require.NoError(t, err)
	require.Empty(t, left)

	// A file that is there keeps its mode: an operator may share it.
	require.NoError(t, os.Chmod(filepath.Join(r.dir, "feed.db"), 0o640))
	r.do(t, "seq 3 | jetpull feed add q")
	info, err := os.Stat(filepath.Join(r.dir, "feed.db"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o640), info.Mode().Perm())
}
