// Package perform runs a program for each message.
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
	Stdout, Stderr *pulling.Printer // what the programs write, by whole lines
}

// Handle runs the program for m. Its exit code becomes the result for the library.
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

// messageEnv is what a command finds in its environment.
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
	// No environment can hold a zero byte, and exec would refuse all of it.
	return slices.DeleteFunc(env, func(v string) bool { return strings.Contains(v, "\x00") }), nil
}

// notInName is what a shell cannot use in the name of a variable.
var notInName = regexp.MustCompile(`[^A-Z0-9]`)

// maxLine bounds what is kept of a line that does not end.
const maxLine = 64 << 10

// lines passes on what one command writes in whole lines, so that those of
// several commands do not mix.
type lines struct {
	to   *pulling.Printer
	part []byte
}

// Write keeps what comes after the last line end.
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

// flush writes what is left, and ends the line.
func (l *lines) flush() error {
	if len(l.part) == 0 {
		return nil
	}
	l.part = append(l.part, '\n')
	defer func() { l.part = nil }()
	_, err := l.to.Write(l.part)
	return err
}

// Result is what came of one attempt to handle a message, as --json prints it.
type Result struct {
	StreamSeq uint64   `json:"stream_seq"`
	Subject   string   `json:"subject"`
	Delivered uint64   `json:"delivered"`
	Outcome   string   `json:"outcome"`         // acknowledged, failed, or a [jetpull.EventOutcome]
	Delay     *float64 `json:"delay,omitempty"` // in seconds, of a message that is retried
	Exit      *int     `json:"exit,omitempty"`  // the exit code of the command
	Seconds   float64  `json:"seconds"`
	Error     string   `json:"error,omitempty"`
}

// Results writes a line of JSON for each attempt. Of one that has failed, only the library knows the outcome: it depends on the attempts before
// and on the options.
type Results struct {
	Out     *pulling.Printer
	Exits   bool // an attempt is a process, and ends with an exit code
	AckNone bool

	open sync.Map // a Result for each *jetpull.Msg that failed, until its outcome is known
}

// Of is a handler whose results are written.
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
		result.Outcome, result.Error = string(jetpull.HandedBack), cli.Plain(err) // unless the library reports an event: the run is over
		if r.AckNone {
			result.Outcome = "failed" // it is not delivered again
			return errors.Join(cli.WriteJSON(r.Out, result), err)
		}
		r.open.Store(m, result)
		return err
	}
}

// Event writes the result of an attempt that has failed. An output that takes no more ends the run with the next message.
func (r *Results) Event(e jetpull.Event) {
	failed, ok := r.open.LoadAndDelete(e.Msg)
	result, _ := failed.(Result)
	if !ok { // it was given up before its handler began
		result = Result{StreamSeq: e.Msg.Sequence(), Subject: e.Msg.Subject(), Delivered: e.Msg.Delivered(), Error: cli.Plain(e.Err)}
	}
	if result.Outcome = string(e.Outcome); e.Outcome == jetpull.Retried {
		result.Delay = new(e.After.Seconds())
	}
	_ = cli.WriteJSON(r.Out, result)
}

// Rest writes the results of attempts that the end of the run has cut off, whose messages were handed back.
func (r *Results) Rest() error {
	for _, result := range r.open.Range {
		if err := cli.WriteJSON(r.Out, result); err != nil {
			return err
		}
	}
	return nil
}
