//go:build unix

package natsembed_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/natsembed"
)

// A process without a free file descriptor makes the temporary folder, and cannot lock it.
func TestAFailedLockLeavesNoFolder(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: before.Max}))
	_, err := natsembed.Start(t.Context(), natsembed.Options{Port: natsembed.NoPort})
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before))
	require.ErrorContains(t, err, "lock the store")
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)
}
