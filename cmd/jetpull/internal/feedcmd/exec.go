package feedcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/child"
	"github.com/jetpull/jetpull/feed"
)

const (
	// exDataErr is the exit code of sysexits.h for input that is wrong and stays wrong.
	exDataErr = 65
	// maxResponse is how much a command may print, and maxStderr how much of its stderr an error shows.
	maxResponse = 1 << 20
	maxStderr   = 1 << 10
)

// execProcessor runs a shell command for each attempt.
type execProcessor struct {
	command string
	timeout time.Duration
	stderr  io.Writer // shared by all commands
}

// Process implements [feed.Processor].
func (p *execProcessor) Process(ctx context.Context, it feed.Item) (feed.Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("the command took over %v", p.timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", p.command)
	cmd.Stdin = bytes.NewReader(it.Data)
	cmd.Env = append(os.Environ(),
		"FEED_ITEM="+it.ID, "FEED_PARTITION="+it.Partition, "FEED_GATE="+strconv.Itoa(it.Gate), "FEED_ATTEMPT="+strconv.Itoa(it.Attempt),
		"IDEMPOTENCY_KEY="+it.IdempotencyKey())
	stdout, tail := &bounded{most: maxResponse + 1}, &bounded{most: maxStderr}
	cmd.Stdout, cmd.Stderr = stdout, io.MultiWriter(tail, p.stderr)
	err := child.Run(cmd)
	if err != nil && ctx.Err() != nil {
		return feed.Response{}, context.Cause(ctx)
	}
	if err != nil {
		return feed.Response{}, failure(err, tail.b)
	}
	switch text := bytes.TrimSpace(stdout.b); {
	case len(text) > maxResponse:
		return feed.Response{}, fmt.Errorf("the command printed over %d bytes", maxResponse)
	case len(text) == 0:
		return feed.Response{Done: true}, nil
	default:
		return feed.ParseResponse(text)
	}
}

// failure is the error of a command, with the beginning of what it wrote to stderr.
func failure(err error, stderr []byte) error {
	if text := strings.TrimSpace(string(stderr)); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if ok && exit.ExitCode() == exDataErr {
		return feed.Permanent(err)
	}
	return err
}

// bounded keeps the beginning of what is written to it.
type bounded struct {
	most int
	b    []byte
}

// Write keeps what there is room for, and takes the rest, too: a command whose output nobody reads would hang.
func (w *bounded) Write(p []byte) (int, error) {
	w.b = append(w.b, p[:min(len(p), w.most-len(w.b))]...)
	return len(p), nil
}

// locked is a writer for several goroutines.
type locked struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
