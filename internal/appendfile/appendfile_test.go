package appendfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func TestAppend(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, Append(path, 0o640, text("a\nb\n")))
	require.NoError(t, Append(path, 0o640, text("c\n")))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode())

	// A crash, or a full disk, has cut a line off.
	require.NoError(t, os.Truncate(path, 5))
	require.NoError(t, Append(path, 0o640, text("c\n")))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "a\nb\nc\nc\n", string(data))

	broken := errors.New("broken")
	require.ErrorIs(t, Append(path, 0o640, func(w io.Writer) error {
		_, err := w.Write(make([]byte, 100_000)) // more than the buffer
		return errors.Join(err, broken)
	}), broken)
	data, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "a\nb\nc\nc\n", string(data))

	require.Error(t, Append(filepath.Join(path, "below"), 0o640, text("x")))
}
