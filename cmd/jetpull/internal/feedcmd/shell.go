package feedcmd

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
	// maxResponse limits the output of a command, and maxStderr the part of its stderr that an error shows, in bytes.
	maxResponse = 1 << 20
	maxStderr   = 1 << 10
)

// shell is a [feed.Processor] that runs a shell command for each attempt.
type shell struct {
	command string
	timeout time.Duration
	stderr  io.Writer // shared by all commands
}

// program matches the name of the first program of a command, if it contains no special characters of a shell.
var program = regexp.MustCompile(`^\s*([\w./+-]+)(\s|$)`)

// checkProgram returns an error if a command's program does not exist. It would fail for every item.
func checkProgram(ctx context.Context, command string) error {
	found := program.FindStringSubmatch(command)
	if found == nil {
		return nil // only the shell can find the program
	}
	name := found[1]
	_, err := exec.LookPath(name)
	if err != nil && !strings.Contains(name, "/") && exec.CommandContext(ctx, "sh", "-c", `command -v "$1"`, "sh", name).Run() == nil {
		return nil // a part of the shell, such as cd or if
	}
	return err
}

// Process implements [feed.Processor].
func (p *shell) Process(ctx context.Context, it feed.Item) (feed.Response, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("the command took over %v", p.timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", p.command)
	cmd.Stdin = bytes.NewReader(it.Data)
	cmd.Env = append(os.Environ(),
		"FEED_ITEM="+it.ID, "FEED_PARTITION="+it.Partition, "FEED_GATE="+strconv.Itoa(it.Gate), "FEED_ATTEMPT="+strconv.Itoa(it.Attempt),
		"IDEMPOTENCY_KEY="+it.IdempotencyKey())
	stdout, tail := &bounded{most: maxResponse + 1}, &bounded{most: maxStderr}
	cmd.Stdout, cmd.Stderr = stdout, io.MultiWriter(tail, p.stderr)
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

// said returns the error that a command printed as JSON before it failed, or nil.
func said(text []byte) error {
	var body struct{ Error *json.RawMessage }
	_ = json.Unmarshal(text, &body) // output that is not JSON contains no error
	if body.Error == nil {
		return nil
	}
	_, err := feed.ParseResponse(text)
	return err
}

// failure returns the error of a command, with the beginning of its stderr. EX_DATAERR makes it permanent.
func failure(err error, stderr []byte) error {
	if text := strings.TrimSpace(string(stderr)); text != "" {
		err = &failed{err, text}
	}
	if child.IsDataErr(err) {
		return feed.Permanent(err)
	}
	return err
}

// failed is the error of a command that wrote to stderr. It is logged as the exit code only, because shell.stderr, which the user reads beside
// the log, has shown the text already.
type failed struct {
	exit   error
	stderr string
}

// Error returns the exit code and the text.
func (e *failed) Error() string { return e.exit.Error() + ": " + e.stderr }

// Unwrap returns the exit code.
func (e *failed) Unwrap() error { return e.exit }

// LogValue implements [slog.LogValuer].
func (e *failed) LogValue() slog.Value { return slog.StringValue(e.exit.Error()) }

// bounded stores the first most bytes that are written to it.
type bounded struct {
	most int
	b    []byte
}

// Write stores output up to the limit, and discards the rest. If it did not accept the rest, the command would hang.
func (w *bounded) Write(p []byte) (int, error) {
	w.b = append(w.b, p[:min(len(p), w.most-len(w.b))]...)
	return len(p), nil
}
