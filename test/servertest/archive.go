package servertest

import (
	"archive/zip"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// writeStore is the environment variable that names the archive to write.
const writeStore = "JETPULL_WRITE_STORE"

// WriteStore calls write to create a store in a folder, and writes the store to the archive that JETPULL_WRITE_STORE names. Without the variable, it
// skips the test. It is run in the checkout of a build, for a fixture with which later builds test that they can read its stores.
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
	archive := zip.NewWriter(out)
	require.NoError(tb, archive.AddFS(os.DirFS(dir)))
	require.NoError(tb, errors.Join(archive.Close(), out.Close()))
}

// ExtractStore extracts an archive of WriteStore into a folder.
func ExtractStore(tb testing.TB, path, dir string) {
	tb.Helper()
	archive, err := zip.OpenReader(path)
	require.NoError(tb, err)
	defer func() { require.NoError(tb, archive.Close()) }()
	require.NoError(tb, os.CopyFS(dir, archive))
}
