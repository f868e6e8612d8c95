package brokercmd

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/broker"
)

func TestStrayVariables(t *testing.T) {
	require.Equal(t,
		[]string{"environment variable JETPULL_BROKER_HTTP_LISTEN is not known and has no effect"},
		strayVariables([]string{"HOME=/", "JETPULL_BROKER_HTTP_LISTEN=x", "JETPULL_BROKER_HTTP_LISTENER=y", "JETPULL_BROKER_LOG_MAX_BACKUPS=3"}))
}

// A listener beyond loopback needs a flag, and then goes on to the store.
func TestOpen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	run := func(args ...string) error {
		cmd := New()
		cmd.SetArgs(append(args, "--listen", ":0", "--store-dir", file))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		return cmd.ExecuteContext(t.Context())
	}
	require.ErrorContains(t, run(), "[http] listener: :0 can be reached from other machines")
	require.ErrorContains(t, run("--open"), "[nats] store-dir "+file)
}

// After SIGHUP the log goes on in a new file of the same name, as logrotate wants it.
func TestHangupOpensTheLogAgain(t *testing.T) {
	cfg := broker.DefaultConfig()
	cfg.Log.Filename = filepath.Join(t.TempDir(), "broker.log")
	log, stop, err := openLog(cfg, io.Discard)
	require.NoError(t, err)
	log.Info("before")
	require.NoError(t, os.Rename(cfg.Log.Filename, cfg.Log.Filename+".1"))
	log.Info("between")
	self, err := os.FindProcess(os.Getpid())
	require.NoError(t, err)
	require.NoError(t, self.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool {
		log.Info("after")
		now, err := os.ReadFile(cfg.Log.Filename)
		return err == nil && len(now) > 0
	}, 20*time.Second, time.Millisecond)
	require.NoError(t, stop())
	old, err := os.ReadFile(cfg.Log.Filename + ".1")
	require.NoError(t, err)
	require.Contains(t, string(old), "before")
	require.Contains(t, string(old), "between")
}
