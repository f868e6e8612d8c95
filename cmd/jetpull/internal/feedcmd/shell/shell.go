// Package shell processes the items of a feed with shell commands.
package shell

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jetpull/jetpull/cmd/jetpull/internal/child"
	"github.com/jetpull/jetpull/feed"
)

const (
	// maxResponse is how much a command may print, and maxStderr how much of its stderr an error shows.
	maxResponse = 1 << 20
	maxStderr   = 1 << 10
)

// Processor runs a shell command for each attempt.
type Processor struct {
	Command string
	Timeout time.Duration
	Stderr  io.Writer // shared by all commands
}

// program finds the name of what a command runs first, where it is written without what has a meaning to a shell.
var program = regexp.MustCompile(`^\s*([\w./+-]+)(\s|$)`)

// Check refuses a command whose program is not there: it would fail for every item.
func Check(ctx context.Context, command string) error {
	found := program.FindStringSubmatch(command)
	if found == nil {
		return nil // only the shell knows
	}
	name := found[1]
	_, err := exec.LookPath(name)
	if err != nil && !strings.Contains(name, "/") && exec.CommandContext(ctx, "sh", "-c", `command -v "$1"`, "sh", name).Run() == nil {
		return nil // it is part of the shell, such as cd or if
	}
	return err
}

// Process implements [feed.Processor].
func (p *Processor) Process(ctx context.Context, it feed.Item) (feed.Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Timeout, fmt.Errorf("the command took over %v", p.Timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", p.Command)
	cmd.Stdin = bytes.NewReader(it.Data)
	cmd.Env = append(os.Environ(),
		"FEED_ITEM="+it.ID, "FEED_PARTITION="+it.Partition, "FEED_GATE="+strconv.Itoa(it.Gate), "FEED_ATTEMPT="+strconv.Itoa(it.Attempt),
		"IDEMPOTENCY_KEY="+it.IdempotencyKey())
	stdout, tail := &bounded{most: maxResponse + 1}, &bounded{most: maxStderr}
	cmd.Stdout, cmd.Stderr = stdout, io.MultiWriter(tail, p.Stderr)
	err := child.Run(cmd, false)
	if err != nil && ctx.Err() != nil {
		return feed.Response{}, context.Cause(ctx)
	}
	if err != nil {
		return feed.Response{}, cmp.Or(said(stdout.b), failure(err, tail.b))
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

// said is the error that a command printed as JSON before it failed, or nil.
func said(text []byte) error {
	var body struct{ Error *json.RawMessage }
	_ = json.Unmarshal(text, &body) // an output that is not JSON says nothing
	if body.Error == nil {
		return nil
	}
	_, err := feed.ParseResponse(text)
	return err
}

// failure is the error of a command, with the beginning of what it wrote to stderr.
func failure(err error, stderr []byte) error {
	if text := strings.TrimSpace(string(stderr)); text != "" {
		err = &failed{err, text}
	}
	if child.IsDataErr(err) {
		return feed.Permanent(err)
	}
	return err
}

// failed is the error of a command that wrote to stderr. The log has only the exit code: Processor.Stderr, which the user reads beside the
// log, has shown the text already.
type failed struct {
	exit   error
	stderr string
}

// Error is the exit code and the text.
func (e *failed) Error() string { return e.exit.Error() + ": " + e.stderr }

// Unwrap returns the exit code.
func (e *failed) Unwrap() error { return e.exit }

// LogValue implements [slog.LogValuer].
func (e *failed) LogValue() slog.Value { return slog.StringValue(e.exit.Error()) }

// bounded keeps the beginning of what is written to it.
type bounded struct {
	most int
	b    []byte
}

// Write keeps the output up to its limit, and discards the rest: a command whose output is not read would hang.
func (w *bounded) Write(p []byte) (int, error) {
	w.b = append(w.b, p[:min(len(p), w.most-len(w.b))]...)
	return len(p), nil
}
