package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/brokercmd"
)

// A listener beyond loopback needs a flag, and then goes on to the store.
func TestOpen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	run := func(args ...string) error {
		cmd := brokercmd.New()
		cmd.SetArgs(append(args, "--listen", ":0", "--store-dir", file))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		return cmd.ExecuteContext(t.Context())
	}
	require.ErrorContains(t, run(), "[http] listener: :0 can be reached from other machines")
	require.ErrorContains(t, run("--open"), "[nats] store-dir "+file)
}
