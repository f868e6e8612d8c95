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
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/child"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/pulling"
)

// Command runs a program for each message.
type Command struct {
	Argv           []string
	Stdout, Stderr *pulling.Printer // what the programs write, by whole lines
}

// Handle runs the program for m. Its exit code becomes the result for the library.
func (c *Command) Handle(ctx context.Context, m *jetpull.Msg) error {
	err := c.run(ctx, m)
	if child.IsDataErr(err) {
		return jetpull.Terminate("the command exited with 65 (EX_DATAERR)", err)
	}
	return err
}

func (c *Command) run(ctx context.Context, m *jetpull.Msg) error {
	env, err := messageEnv(m)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Stdin = bytes.NewReader(m.Data())
	cmd.Env = append(os.Environ(), env...)
	stdout, stderr := &lines{to: c.Stdout}, &lines{to: c.Stderr}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err = child.Run(cmd)
	if err := errors.Join(stdout.flush(), stderr.flush()); err != nil {
		return err
	}
	if err != nil {
		return fmt.Errorf("command %s: %w", c.Argv[0], err)
	}
	return nil
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
		env = append(env, "JETPULL_HEADER_"+envName(name)+"="+m.Headers()[name][0])
	}
	// No environment can hold a zero byte, and exec would refuse all of it.
	return slices.DeleteFunc(env, func(v string) bool { return strings.Contains(v, "\x00") }), nil
}

var notInName = regexp.MustCompile(`[^A-Z0-9]`)

// envName is a header's name as a shell can use it: upper case letters, digits
// and underscores.
func envName(header string) string {
	return notInName.ReplaceAllString(strings.ToUpper(header), "_")
}

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
