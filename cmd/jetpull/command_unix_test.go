//go:build unix

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// TestConsumeLeavesNoCommandBehind has commands that do not listen to SIGTERM. They
// must be gone when consume has left: their message is handed back, and would be
// worked off beside them.
func TestConsumeLeavesNoCommandBehind(t *testing.T) {
	needShell(t)
	for name, script := range map[string]string{
		"deaf":            `exec 3>"$ALIVE"; trap "" TERM; echo started; sleep 600 & wait; sleep 600`,
		"deaf child":      `sh -c 'exec 3>"$ALIVE"; trap "" TERM; echo started; exec sleep 600' & wait`,
		"deaf and silent": `sh -c 'exec 3>"$ALIVE"; trap "" TERM; echo started; exec >/dev/null 2>&1; exec sleep 600' & wait`,
	} {
		t.Run(name, func(t *testing.T) {
			// Whoever lives has the pipe open for writing: it ends with the last.
			alive := filepath.Join(t.TempDir(), "alive")
			require.NoError(t, syscall.Mkfifo(alive, 0o600))
			t.Setenv("ALIVE", alive)
			f := newFixture(t, jetstream.ConsumerConfig{AckWait: time.Minute})
			f.publish(t, "one")
			out, errOut, stop := f.start(t, "consume", "S", "c", "--drain-timeout", "50ms", "--retry-delays", "0s", "--", "sh", "-c", script)
			pipe, err := os.OpenFile(alive, os.O_RDONLY, 0)
			require.NoError(t, err)
			defer pipe.Close()
			require.Eventually(t, func() bool { return out.String() == "started\n" }, 10*time.Second, 5*time.Millisecond)
			require.Equal(t, cli.ExitInterrupted, stop(), errOut.String())
			require.NoError(t, pipe.SetReadDeadline(time.Now().Add(2*time.Second)))
			_, err = io.Copy(io.Discard, pipe)
			require.NoError(t, err, "it is alive after consume has left")
			require.Contains(t, errOut.String(), "drain timeout: 1 handlers ran for more than 50ms")
			require.Contains(t, f.run(t, "fetch", "S", "c").out, "[1] s.a (delivery 2): one", "it was handed back")
		})
	}
}

// TestConsumeLetsCommandsEnd checks that commands get time to end after their signal.
func TestConsumeLetsCommandsEnd(t *testing.T) {
	needShell(t)
	f := newFixture(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	f.publish(t, "one")
	out, errOut, stop := f.start(t, "consume", "S", "c", "--drain-timeout", "0s", "--", "sh", "-c",
		`trap 'echo ended; exit 1' TERM; echo started; while :; do sleep 0.01; done`)
	require.Eventually(t, func() bool { return out.String() == "started\n" }, 10*time.Second, 5*time.Millisecond)
	require.Equal(t, cli.ExitInterrupted, stop(), errOut.String())
	require.Equal(t, "started\nended\n", out.String())
}

// A command that exits with 0 has done its work, also if what it has started in the background keeps its output open.
func TestCommandLeavesAProcessInTheBackground(t *testing.T) {
	t.Parallel()
	needShell(t)
	const script = `(sleep 600 & echo $! >> "$PIDS"); echo done; exit 0`
	pids := filepath.Join(t.TempDir(), "pids")
	t.Cleanup(func() { _ = exec.Command("sh", "-c", `kill $(cat "$1")`, "sh", pids).Run() })
	command := []string{"env", "PIDS=" + pids, "sh", "-c", script}
	f := newFixture(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	f.publish(t, "one")
	r := f.run(t, append([]string{"consume", "S", "c", "--count", "1", "-q", "--"}, command...)...)
	require.Equal(t, result{cli.ExitDone, "done\n", ""}, r)
	f.settled(t, 1)

	db := newDB(t)
	require.Zero(t, jetpullFeed(t, db, "1\n", "add", "p", "--seal").code)
	_, stop := watching(t, db, "--auto-close", "--exec", "PIDS="+pids+`; sleep 600 & echo $! >> "$PIDS"; exit 0`)
	awaitStatus(t, db, "p", "Complete")
	stop()
	require.NotContains(t, jetpullFeed(t, db, "", "ls", "p", "--json").out, "WaitDelay")
}
