package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/internal/progress"
	"github.com/jetpull/jetpull/internal/watch"
)

// WriteJSON writes one value on one line, with nothing that a terminal obeys.
func WriteJSON(out io.Writer, v any) error {
	line, err := encode(v)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, progress.Escape(string(line)))
	return err
}

// encode is a value as a line of JSON.
func encode(v any) ([]byte, error) {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return line.Bytes(), err
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

// Every calls f at once and then after each interval, until it returns an error or ctx ends, which is none.
func Every(ctx context.Context, interval time.Duration, f func() error) error {
	for ctx.Err() == nil {
		if err := f(); err != nil && ctx.Err() == nil {
			return err
		}
		_ = watch.Sleep(ctx, interval)
	}
	return nil
}

// Log is a log of warnings and errors, as text or as JSON.
func Log(errOut io.Writer, asJSON bool) *slog.Logger {
	opts := &slog.HandlerOptions{Level: slog.LevelWarn}
	if asJSON {
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

// Redraw has what show writes to the command's standard output take the place of what a terminal shows. Elsewhere, and as JSON, it is
// written as it is.
func Redraw(cmd *cobra.Command, asJSON bool, show func() error) error {
	out := cmd.OutOrStdout()
	if asJSON || !progress.IsTerminal(out) {
		return show()
	}
	var screen bytes.Buffer
	cmd.SetOut(&screen)
	err := show()
	cmd.SetOut(out)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, "\x1b[H\x1b[2J"+progress.Fit(out, screen.String()))
	return err
}
