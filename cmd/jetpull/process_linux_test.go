package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// The command of a message ends with jetpull, also when that is killed: its message is delivered again, and would be handled twice at a time.
func TestCommandEndsWithAKilledJetpull(t *testing.T) {
	needShell(t)
	f := newFixture(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	f.publish(t, "one")
	alive := filepath.Join(t.TempDir(), "alive") // ends with the last process that has it open for writing
	require.NoError(t, syscall.Mkfifo(alive, 0o600))
	cmd := asCommand("consume", "S", "c", "--nats", f.url, "--",
		"sh", "-c", `exec 3>"$ALIVE"; trap "" TERM INT; echo started; exec sleep 600`)
	cmd.Env = append(cmd.Env, "ALIVE="+alive)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	pipe, err := os.OpenFile(alive, os.O_RDONLY, 0)
	require.NoError(t, err)
	defer pipe.Close()
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "started\n", line)
	require.NoError(t, cmd.Process.Kill())
	require.NoError(t, pipe.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = io.Copy(io.Discard, pipe)
	require.NoError(t, err, "the command is alive")
	require.Error(t, cmd.Wait())
}

// A reader such as head leaves what is in the pipe. The messages there count as printed, and there are few.
func TestReaderThatEndsLeavesFewMessages(t *testing.T) {
	f := newFixture(t, jetstream.ConsumerConfig{AckWait: time.Minute})
	const messages, size = 3000, 50
	for range messages {
		_, err := f.js.PublishMsgAsync(&nats.Msg{Subject: "s.a", Data: bytes.Repeat([]byte{'x'}, size-1)})
		require.NoError(t, err)
	}
	<-f.js.PublishAsyncComplete()
	for _, args := range [][]string{{"consume", "S", "c", "--raw", "-q"}, {"fetch", "S", "c", "--count", "500", "--raw"}} {
		before := f.info(t)
		read, write, err := os.Pipe()
		require.NoError(t, err)
		cmd := asCommand(append(args, "--nats", f.url)...)
		var said buffer
		cmd.Stdout, cmd.Stderr = write, &said
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		require.NoError(t, write.Close())
		_, err = io.ReadFull(read, make([]byte, size))
		require.NoError(t, err)
		require.NoError(t, read.Close())
		exit, ok := errors.AsType[*exec.ExitError](cmd.Wait())
		require.True(t, ok)
		require.Equal(t, cli.ExitClosed, exit.ExitCode())
		require.Empty(t, said.String())
		require.LessOrEqual(t, f.info(t).AckFloor.Stream-before.AckFloor.Stream, uint64(1+4096/size+1))
	}
	r := f.run(t, "consume", "S", "c", "--count", "2000", "--raw", "-q")
	require.Equal(t, cli.ExitDone, r.code, r.err) // long before AckWait
}

// A help or a script that could not be written is an error.
func TestOutputThatIsFull(t *testing.T) {
	for _, args := range [][]string{
		{"--help"},
		{"help", "consume"},
		{"dlq"},
		{"consume", "--help"},
		{"completion", "bash"},
		{"--version"},
		{"version"},
	} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		cmd := asCommand(args...)
		var said buffer
		cmd.Stdout, cmd.Stderr = full, &said
		exit, ok := errors.AsType[*exec.ExitError](cmd.Run())
		require.True(t, ok, args)
		require.Equal(t, cli.ExitError, exit.ExitCode(), "%v: %s", args, said.String())
		require.Contains(t, said.String(), "no space left on device")
		require.NoError(t, full.Close())
	}
}
