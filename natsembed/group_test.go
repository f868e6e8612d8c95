package natsembed

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// streamFolder is the folder of a stream without a server.
type streamFolder struct {
	t      *testing.T
	blocks string
}

// testGroup returns the group of a stream without a server, and its folder.
func testGroup(t *testing.T, fsync func(*os.File) error) (*group, streamFolder) {
	t.Helper()
	dir := t.TempDir()
	g := newGroup(dir, "s", &disk{fsync: fsync, log: slog.New(slog.DiscardHandler)})
	f := streamFolder{t, g.blocks.dir}
	require.NoError(t, os.MkdirAll(f.blocks, 0o700))
	f.configure()
	return g, f
}

func (f streamFolder) configure() {
	require.NoError(f.t, os.WriteFile(filepath.Join(filepath.Dir(f.blocks), metadataFile), nil, 0o600))
}

func (f streamFolder) write(names ...string) {
	for _, name := range names {
		require.NoError(f.t, os.WriteFile(filepath.Join(f.blocks, name), []byte(name), 0o600))
	}
}

func (f streamFolder) grow(name string) {
	file, err := os.OpenFile(filepath.Join(f.blocks, name), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(f.t, err)
	_, err = file.WriteString("more")
	require.NoError(f.t, err)
	require.NoError(f.t, file.Close())
}

// synced returns a function for a disk, and one that returns the blocks that were synced since its last call.
func synced() (fsync func(*os.File) error, since func() []string) {
	var names []string
	fsync = func(f *os.File) error {
		if filepath.Ext(f.Name()) == ".blk" {
			names = append(names, filepath.Base(f.Name()))
		}
		return f.Sync()
	}
	return fsync, func() []string {
		was := names
		names = nil
		return was
	}
}
