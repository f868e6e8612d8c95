// Package cmdtest is what the tests of jetpull's commands have in common: commands that listen, their output, and the
// commands of a README.
package cmdtest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// Buffer is what a command writes to while the test reads.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write adds to what has been written.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is all that has been written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Listen starts a command that runs a system until stop is called, with a store of its own, and returns the system's URL. Stop
// returns the command's result.
func Listen(t *testing.T, cmd *cobra.Command, args ...string) (url string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	cmd.SetArgs(append([]string{"--listen", "127.0.0.1:0", "--store-dir", t.TempDir(), "--log-level", "error"}, args...))
	cmd.SetOut(in)
	result := make(chan error, 1)
	go func() {
		err := cmd.ExecuteContext(ctx)
		_ = in.CloseWithError(io.EOF)
		result <- err
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s ended: %v", cmd.Name(), <-result)
	}
	url, ok := strings.CutPrefix(strings.TrimSpace(line), cmd.Name()+": listening on ")
	require.True(t, ok, line)
	return url, func() error {
		cancel()
		select {
		case err := <-result:
			return err
		case <-time.After(30 * time.Second):
			return context.DeadlineExceeded
		}
	}
}
