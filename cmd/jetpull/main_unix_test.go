//go:build unix

package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// TestSecondSignalEndsAtOnce interrupts twice while a command runs that would go on: the
// keyboard's interrupt does not reach it, because it has a process group of its own.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	needShell(t)
	f := newFixture(t, jetstream.ConsumerConfig{})
	f.publish(t, "one")
	alive := filepath.Join(t.TempDir(), "alive")
	require.NoError(t, syscall.Mkfifo(alive, 0o600))
	cmd := asCommand("consume", "S", "c", "--nats", f.url, "--drain-timeout", "10m", "--",
		"sh", "-c", `exec 3>"$ALIVE"; trap "" TERM INT; echo started; sleep 600 & wait`)
	cmd.Env = append(cmd.Env, "ALIVE="+alive)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var said buffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	pipe, err := os.OpenFile(alive, os.O_RDONLY, 0)
	require.NoError(t, err)
	defer pipe.Close()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "started\n", line)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.Eventually(t, func() bool {
		return strings.Contains(said.String(), "Stopping: 1 message in progress, with up to 10m0s to end; interrupt again to end at once\n")
	}, 10*time.Second, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, pipe.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = io.Copy(io.Discard, pipe)
	require.NoError(t, err, "the command is alive")
	var exit *exec.ExitError
	require.True(t, errors.As(cmd.Wait(), &exit))
	require.Equal(t, cli.ExitInterrupted, exit.ExitCode())
}

// A reader such as head that closes standard output ends a command without an error text.
func TestClosedOutputEndsQuietly(t *testing.T) {
	db := newDB(t)
	require.Zero(t, jetpullFeed(t, db, "1\n2\n", "add", "p").code)
	for _, args := range [][]string{
		{"feed", "ls", "--json", "--db", db},
		{"feed", "ls", "p", "--db", db},
		{"feed", "show", "p", "--db", db},
		{"licenses"},
		{"version"},
	} {
		read, write, err := os.Pipe()
		require.NoError(t, err)
		require.NoError(t, read.Close())
		cmd := asCommand(args...)
		var said strings.Builder
		cmd.Stdout, cmd.Stderr = write, &said
		err = cmd.Run()
		require.NoError(t, write.Close())
		exit, ok := errors.AsType[*exec.ExitError](err)
		require.True(t, ok, "%v: %v", args, err)
		require.Equal(t, cli.ExitClosed, exit.ExitCode(), args)
		require.Empty(t, said.String(), args)
	}
}
