// Package perform runs a program for each message, or programs that each handle many messages.
package perform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/child"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/pulling"
)

// Command runs a program for each message.
type Command struct {
	Argv           []string
	Stdout, Stderr *pulling.Printer // get the programs' output in whole lines
}

// Handle runs the program for m. The program's exit code determines the handler's result.
func (c *Command) Handle(ctx context.Context, m *jetpull.Msg) error {
	env, err := messageEnv(m)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Stdin = bytes.NewReader(m.Data())
	cmd.Env = append(os.Environ(), env...)
	stdout, stderr := &lines{to: c.Stdout}, &lines{to: c.Stderr}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err = child.Run(cmd, false)
	if err := errors.Join(stdout.flush(), stderr.flush()); err != nil {
		return err
	}
	if err != nil {
		err = fmt.Errorf("command %s: %w", c.Argv[0], err)
	}
	if child.IsDataErr(err) {
		return jetpull.Terminate("the command exited with 65 (EX_DATAERR)", err)
	}
	return err
}

// messageEnv returns the environment variables that describe a message.
func messageEnv(m jetstream.Msg) ([]string, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, err
	}
	headers, err := json.Marshal(m.Headers())
	if err != nil {
		return nil, err
	}
	if m.Headers() == nil {
		headers = []byte("{}")
	}
	env := []string{
		"JETPULL_STREAM=" + meta.Stream,
		"JETPULL_CONSUMER=" + meta.Consumer,
		"JETPULL_DOMAIN=" + meta.Domain,
		"JETPULL_SUBJECT=" + m.Subject(),
		"JETPULL_STREAM_SEQ=" + strconv.FormatUint(meta.Sequence.Stream, 10),
		"JETPULL_CONSUMER_SEQ=" + strconv.FormatUint(meta.Sequence.Consumer, 10),
		"JETPULL_DELIVERED=" + strconv.FormatUint(meta.NumDelivered, 10),
		"JETPULL_PENDING=" + strconv.FormatUint(meta.NumPending, 10),
		"JETPULL_TIME=" + meta.Timestamp.UTC().Format(time.RFC3339Nano),
		"JETPULL_HEADERS=" + string(headers),
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers())) {
		env = append(env, "JETPULL_HEADER_"+notInName.ReplaceAllString(strings.ToUpper(name), "_")+"="+m.Headers()[name][0])
	}
	// An environment variable cannot contain a zero byte: exec would return an error.
	return slices.DeleteFunc(env, func(v string) bool { return strings.Contains(v, "\x00") }), nil
}

// notInName matches characters that a shell does not allow in the name of a variable.
var notInName = regexp.MustCompile(`[^A-Z0-9]`)

// maxLine limits how much of an unfinished line is buffered, in bytes.
const maxLine = 64 << 10

// lines passes on a command's output in whole lines, so that lines of several commands do not mix.
type lines struct {
	to   *pulling.Printer
	part []byte
}

// Write buffers the text after the last line end.
func (l *lines) Write(b []byte) (int, error) {
	l.part = append(l.part, b...)
	end := bytes.LastIndexByte(l.part, '\n') + 1
	if end == 0 && len(l.part) < maxLine {
		return len(b), nil
	}
	if end == 0 {
		end = len(l.part)
	}
	if _, err := l.to.Write(l.part[:end]); err != nil {
		return 0, err
	}
	l.part = append(l.part[:0], l.part[end:]...)
	return len(b), nil
}

// flush writes the buffered text and a line end.
func (l *lines) flush() error {
	if len(l.part) == 0 {
		return nil
	}
	l.part = append(l.part, '\n')
	defer func() { l.part = nil }()
	_, err := l.to.Write(l.part)
	return err
}

// Result is the result of an attempt to handle a message, as --json prints it.
type Result struct {
	StreamSeq uint64   `json:"stream_seq"`
	Subject   string   `json:"subject"`
	Delivered uint64   `json:"delivered"`
	Outcome   string   `json:"outcome"`         // acknowledged, failed, or a [jetpull.EventOutcome]
	Delay     *float64 `json:"delay,omitempty"` // before a retry, in seconds
	Exit      *int     `json:"exit,omitempty"`  // the exit code of the command
	Seconds   float64  `json:"seconds"`
	Error     string   `json:"error,omitempty"`
}

// Results writes a line of JSON for each attempt. Only the library knows the outcome of a failed attempt, because it depends on earlier attempts
// and on the options.
type Results struct {
	Out     *pulling.Printer
	Exits   bool // each attempt is a process with an exit code
	AckNone bool

	open sync.Map // the Result of each failed *jetpull.Msg, until its outcome is known
}

// Of returns a handler that calls handle and writes the result.
func (r *Results) Of(handle jetpull.Handler) jetpull.Handler {
	return func(ctx context.Context, m *jetpull.Msg) error {
		begin := time.Now()
		err := handle(ctx, m)
		result := Result{StreamSeq: m.Sequence(), Subject: m.Subject(), Delivered: m.Delivered(), Seconds: time.Since(begin).Seconds()}
		if exit, failed := errors.AsType[*exec.ExitError](err); r.Exits && failed && exit.ExitCode() >= 0 {
			result.Exit = new(exit.ExitCode())
		} else if r.Exits && err == nil {
			result.Exit = new(0)
		}
		switch {
		case errors.Is(err, pulling.ErrOutput):
			return err
		case err == nil:
			result.Outcome = "acknowledged"
			return cli.WriteJSON(r.Out, result)
		}
		result.Outcome, result.Error = string(jetpull.HandedBack), cli.Plain(err) // without an event of the library, the run has ended
		if r.AckNone {
			result.Outcome = "failed" // it is not redelivered
			return errors.Join(cli.WriteJSON(r.Out, result), err)
		}
		r.open.Store(m, result)
		return err
	}
}

// Event writes the result of a failed attempt. If the write fails, the next message ends the run.
func (r *Results) Event(e jetpull.Event) {
	failed, ok := r.open.LoadAndDelete(e.Msg)
	result, _ := failed.(Result)
	if !ok { // the message was given up before its handler began
		result = Result{StreamSeq: e.Msg.Sequence(), Subject: e.Msg.Subject(), Delivered: e.Msg.Delivered(), Error: cli.Plain(e.Err)}
	}
	if result.Outcome = string(e.Outcome); e.Outcome == jetpull.Retried {
		result.Delay = new(e.After.Seconds())
	}
	_ = cli.WriteJSON(r.Out, result)
}

// Rest writes the results of attempts that the end of the run interrupted. Their messages were handed back.
func (r *Results) Rest() error {
	for _, result := range r.open.Range {
		if err := cli.WriteJSON(r.Out, result); err != nil {
			return err
		}
	}
	return nil
}
