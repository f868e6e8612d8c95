package natstest

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program that a test has started ends with the test, even if the test is killed.
func TestEndWithParent(t *testing.T) {
	const asParent = "JETPULL_TEST_PARENT"
	if os.Getenv(asParent) != "" {
		program := exec.Command("sh", "-c", "echo started; exec sleep 600")
		program.Stdout = os.Stdout
		EndWithParent(program, syscall.SIGKILL)
		require.NoError(t, program.Run())
		return
	}
	parent := exec.Command(os.Args[0], "-test.run", "^TestEndWithParent$")
	parent.Env = append(os.Environ(), asParent+"=1")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	_, err = io.ReadFull(out, make([]byte, len("started\n")))
	require.NoError(t, err)
	require.NoError(t, parent.Process.Kill())
	_, err = io.Copy(io.Discard, out) // ends when the program has ended, which has the pipe open
	require.NoError(t, err)
	require.Error(t, parent.Wait())
}
