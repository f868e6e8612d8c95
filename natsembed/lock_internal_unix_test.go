//go:build unix

package natsembed

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that is just being started has a copy of each open file, until it runs its program.
func TestUnlockedInSpiteOfACopy(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockDir(dir)
	require.NoError(t, err)
	fd, err := syscall.Dup(int(lock.Fd()))
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Close(fd)) }()
	_, err = lockDir(dir)
	require.ErrorContains(t, err, "another process uses the store")
	unlockDir(lock)
	lock, err = lockDir(dir)
	require.NoError(t, err)
	unlockDir(lock)
}
