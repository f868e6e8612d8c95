package servertest

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeStore is the environment variable that names the archive to write.
const writeStore = "JETPULL_WRITE_STORE"

// WriteStore writes the store that write makes in a folder as an archive, if JETPULL_WRITE_STORE names one. Else it skips the test. It is run in the
// checkout of a build, for a fixture with which later builds test that they read its stores.
func WriteStore(tb testing.TB, write func(dir string)) {
	tb.Helper()
	path := os.Getenv(writeStore)
	if path == "" {
		tb.Skip(writeStore + " names no archive to write")
	}
	dir := tb.TempDir()
	write(dir)
	out, err := os.Create(path)
	require.NoError(tb, err)
	zip := gzip.NewWriter(out)
	archive := tar.NewWriter(zip)
	require.NoError(tb, archive.AddFS(os.DirFS(dir)))
	require.NoError(tb, errors.Join(archive.Close(), zip.Close(), out.Close()))
}

// ExtractStore writes the files of such an archive to a folder.
func ExtractStore(tb testing.TB, path, dir string) {
	tb.Helper()
	in, err := os.Open(path)
	require.NoError(tb, err)
	defer func() { require.NoError(tb, in.Close()) }()
	zip, err := gzip.NewReader(in)
	require.NoError(tb, err)
	for archive := tar.NewReader(zip); ; {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(tb, err)
		name, err := filepath.Localize(strings.TrimSuffix(entry.Name, "/"))
		require.NoError(tb, err)
		if name = filepath.Join(dir, name); entry.FileInfo().IsDir() {
			require.NoError(tb, os.MkdirAll(name, 0o750))
			continue
		}
		require.NoError(tb, os.MkdirAll(filepath.Dir(name), 0o750))
		data, err := io.ReadAll(archive)
		require.NoError(tb, err)
		require.NoError(tb, os.WriteFile(name, data, 0o600))
	}
}
