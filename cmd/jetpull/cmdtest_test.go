package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// buffer is what a command writes to while the test reads.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write adds to what has been written.
func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is all that has been written.
func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// listen starts a command that runs a system until stop is called, with a store of its own, and returns the system's URL. Stop
// returns the command's result.
func listen(t *testing.T, cmd *cobra.Command, args ...string) (url string, stop func() error) {
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

// commandsOf returns the commands of a section of a page, or of all of it if the heading is empty, in their order: the indented lines, joined
// if they end with a backslash.
func commandsOf(path, heading string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	section := string(text)
	if heading != "" {
		_, rest, ok := strings.Cut(section, "\n## "+heading+"\n")
		if !ok {
			return nil, fmt.Errorf("%s has no section %q", path, heading)
		}
		section, _, _ = strings.Cut(rest, "\n## ")
	}
	var commands []string
	more := false
	for line := range strings.Lines(section) {
		code, ok := strings.CutPrefix(line, "    ")
		if !ok {
			continue
		}
		if more {
			commands[len(commands)-1] += code
		} else {
			commands = append(commands, code)
		}
		more = strings.HasSuffix(strings.TrimSpace(code), `\`)
	}
	return commands, nil
}
