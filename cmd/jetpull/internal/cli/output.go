package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/progress"
	"github.com/jetpull/jetpull/internal/watch"
)

// Payload is a payload in JSON: Data if it is text, which includes an empty one, or else DataBase64.
type Payload struct {
	Data       *string `json:"data,omitempty"`
	DataBase64 *string `json:"data_base64,omitempty"`
}

// PayloadOf is a payload as JSON shows it.
func PayloadOf(data []byte) Payload {
	if utf8.Valid(data) {
		return Payload{Data: new(string(data))}
	}
	return Payload{DataBase64: new(base64.StdEncoding.EncodeToString(data))}
}

// WriteJSON writes one value on one line, with nothing that a terminal obeys.
func WriteJSON(out io.Writer, v any) error {
	line, err := httpserve.Encode(v)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, progress.Escape(string(line)))
	return err
}

// Answer prints what came of a command: a value as JSON, or a text.
func Answer(cmd *cobra.Command, asJSON bool, value any, format string, args ...any) error {
	if asJSON {
		return WriteJSON(cmd.OutOrStdout(), value)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format, args...)
	return err
}

// Notice writes a text for the user to stderr, without control characters. It ignores errors, which it could not report.
func Notice(errOut io.Writer, format string, args ...any) {
	_, _ = io.WriteString(errOut, progress.Escape(fmt.Sprintf(format, args...)))
}

// otherFlags are the flags by the options of the library that they set, where the names differ.
var otherFlags = map[string]string{"n": "--count", "MaxWait": "--wait", "FillBatch": "--fill"}

// flagOf is the flag that sets an option of the library, such as --min-pending for MinPending.
func flagOf(option string) string {
	return cmp.Or(otherFlags[option], "--"+strings.ToLower(wordEnd.ReplaceAllString(option, "$1-$2")))
}

// Plain is an error for a reader: the library begins each of its errors with its
// name, which the command has said already, and speaks of its options, where the
// reader knows flags.
func Plain(err error) string {
	if wrong, ok := errors.AsType[*jetpull.OptionError](err); ok {
		return flagOf(wrong.Option) + ": " + wrong.Problem
	}
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "jetpull: "), ": jetpull: ", ": ")
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		text = strings.ReplaceAll(text, api.Error(), api.Description)
	}
	return text
}

// Watch calls look at once and then after each interval, until it returns an error or the command is interrupted, which is no error. Then it calls
// show, unless that is nil. On a terminal, the output of show takes the place of the output before.
func Watch(cmd *cobra.Command, asJSON bool, interval time.Duration, look func() (show func() error, err error)) error {
	var s screen
	for ctx := cmd.Context(); ctx.Err() == nil; _ = watch.Sleep(ctx, interval) {
		show, err := look()
		if err == nil && show != nil {
			err = s.draw(cmd, asJSON, show)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// Log is a log of warnings and errors, as text or as JSON. There, a duration is in seconds.
func Log(errOut io.Writer, asJSON bool) *slog.Logger {
	opts := &slog.HandlerOptions{Level: slog.LevelWarn}
	if asJSON {
		opts.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindDuration {
				a.Value = slog.Float64Value(a.Value.Duration().Seconds())
			}
			return a
		}
		return slog.New(slog.NewJSONHandler(errOut, opts))
	}
	return slog.New(slog.NewTextHandler(errOut, opts))
}

// Warn reports a problem that does not end the command.
func Warn(errOut io.Writer, asJSON bool, text string) {
	if asJSON {
		_ = WriteJSON(errOut, map[string]string{"problem": text})
		return
	}
	Notice(errOut, "jetpull: %s\n", text)
}

// screen is a view that is drawn again and again, in place on a terminal.
type screen struct {
	rows int // of the last drawing, above the cursor
}

// draw has what show writes to the command's standard output take the place of the last drawing. Elsewhere, and as JSON, it is written as it is.
func (s *screen) draw(cmd *cobra.Command, asJSON bool, show func() error) error {
	out := cmd.OutOrStdout()
	if asJSON || !progress.IsTerminal(out) {
		return show()
	}
	var picture bytes.Buffer
	cmd.SetOut(&picture)
	err := show()
	cmd.SetOut(out)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, s.over(progress.Fit(out, picture.String())))
	return err
}

// over is a picture, with what a terminal obeys so that it takes the place of the last one.
func (s *screen) over(picture string) string {
	text := ""
	if s.rows > 0 {
		text = fmt.Sprintf("\x1b[%dA", s.rows)
	}
	s.rows = strings.Count(picture, "\n")
	return text + strings.ReplaceAll(picture, "\n", "\x1b[K\n") + "\x1b[J"
}

// ArgumentOrInput is args[n], or standard input if there are fewer.
func ArgumentOrInput(cmd *cobra.Command, args []string, n int) ([]byte, error) {
	if len(args) > n {
		return []byte(args[n]), nil
	}
	text, err := io.ReadAll(Input(cmd))
	if err != nil {
		return nil, fmt.Errorf("read standard input: %w", err)
	}
	return text, nil
}

// Input is a command's standard input, whose reads end with [ErrInterrupted] when the command is interrupted. It says on a terminal that the
// command waits for what the user types.
func Input(cmd *cobra.Command) io.Reader {
	in := cmd.InOrStdin()
	if progress.IsTerminal(in) {
		Notice(cmd.ErrOrStderr(), "Reading standard input; end it with Ctrl-D\n")
	}
	read, write := io.Pipe()
	context.AfterFunc(cmd.Context(), func() { _ = write.CloseWithError(ErrInterrupted) })
	go func() { // a read that has begun ends with the process at the latest
		_, err := io.Copy(write, in)
		_ = write.CloseWithError(err)
	}()
	return read
}
