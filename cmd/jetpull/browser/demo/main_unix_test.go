//go:build unix

package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// asDemo makes the test binary be the demo.
const asDemo = "TEST_AS_DEMO"

func TestMain(m *testing.M) {
	if os.Getenv(asDemo) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// standIn is a go command whose build makes a program that runs the demo of this test, on any free port.
const standIn = `#!/bin/sh
[ "$1" = build ] || exit 1
printf '#!/bin/sh\nexec "%s" -listen 127.0.0.1:0\n' "$TEST_BINARY" >"$3"
chmod +x "$3"
`

// An interrupt from the keyboard, which goes to make and to the demo, is how the demo ends. Neither reports an error.
func TestMakeDemoEndsByInterrupt(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip(err)
	}
	binary, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	stub := filepath.Join(dir, "go")
	require.NoError(t, os.WriteFile(stub, []byte(standIn), 0o700))
	cmd := exec.Command("make", "-C", "../../../..", "demo-console", "GO="+stub, "BIN="+dir)
	cmd.Env = append(os.Environ(), asDemo+"=1", "TEST_BINARY="+binary, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	read, write, err := os.Pipe()
	require.NoError(t, err)
	defer read.Close()
	cmd.Stdout, cmd.Stderr = write, write
	require.NoError(t, cmd.Start())
	require.NoError(t, write.Close())
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }()
	output := bufio.NewReader(read)
	for line := ""; !strings.HasPrefix(line, "Open http://"); {
		line, err = output.ReadString('\n')
		require.NoError(t, err, line)
	}
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
	rest, err := io.ReadAll(output)
	require.NoError(t, err)
	_ = cmd.Wait() // make ends itself by the signal
	require.NotContains(t, string(rest), "***")
	left, err := filepath.Glob(filepath.Join(dir, "jetpull-demo-*"))
	require.NoError(t, err)
	require.Empty(t, left, "its data is deleted")
}
