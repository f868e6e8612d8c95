package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"regexp"
	"strconv"
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
	var picture bytes.Buffer
	out := cmd.OutOrStdout()
	inPlace := !asJSON && progress.IsTerminal(out)
	if inPlace {
		cmd.SetOut(&picture)
	}
	for ctx := cmd.Context(); ctx.Err() == nil; _ = watch.Sleep(ctx, interval) {
		show, err := look()
		if err == nil && show != nil {
			if err = show(); err == nil && inPlace {
				_, err = io.WriteString(out, s.over(progress.Fit(out, picture.String())))
				picture.Reset()
			}
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

const (
	// partOfList is how many rows a table has. A list can be longer than memory, so a long one is several tables.
	partOfList = 1000
	// widest is how many characters of a field a list shows, unless the column says how many.
	widest = 80
)

// List prints objects, which their JSON describes: each on a line as JSON, or a table of some fields. A column is the name of a field,
// or a path with dots to one in it. ">" before it is that of a number, and ":N" after it shows the first N characters.
func List[V any](cmd *cobra.Command, asJSON bool, columns []string, objects iter.Seq2[V, error]) error {
	return ListOr(cmd, asJSON, columns, objects, "nothing found")
}

// ListOr is List with a text of its own for a reader, where there are no objects.
func ListOr[V any](cmd *cobra.Command, asJSON bool, columns []string, objects iter.Seq2[V, error], none string) error {
	out, n := cmd.OutOrStdout(), 0
	header, paths, widths := make([]string, len(columns)), make([]string, len(columns)), make([]int, len(columns))
	for i, column := range columns {
		name, width, cut := strings.Cut(column, ":")
		if widths[i] = widest; cut {
			widths[i], _ = strconv.Atoi(width) // a literal
		}
		paths[i] = strings.TrimPrefix(name, ">")
		header[i] = name[:len(name)-len(paths[i])] + title(paths[i][strings.LastIndexByte(paths[i], '.')+1:])
	}
	var rows [][]string
	for object, err := range objects {
		if err != nil {
			return err
		}
		n++
		if asJSON {
			if err := WriteJSON(out, object); err != nil {
				return err
			}
			continue
		}
		text, err := httpserve.Encode(object)
		var fields map[string]json.RawMessage
		if err := cmp.Or(err, json.Unmarshal(text, &fields)); err != nil {
			return err
		}
		row := make([]string, len(paths))
		for i, path := range paths {
			row[i] = first(widths[i], cell(at(fields, path)))
		}
		if rows = append(rows, row); len(rows) == partOfList {
			if err := progress.Table(out, header, rows); err != nil {
				return err
			}
			rows = nil
		}
	}
	switch {
	case n == 0 && !asJSON:
		Notice(cmd.ErrOrStderr(), "%s\n", none)
	case len(rows) > 0:
		return progress.Table(out, header, rows)
	}
	return nil
}

// All are the values of a slice, for [List].
func All[V any](values []V) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		for _, v := range values {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// Map has each value of a sequence as f shows it. An error is passed on.
func Map[V, W any](values iter.Seq2[V, error], f func(V) W) iter.Seq2[W, error] {
	return func(yield func(W, error) bool) {
		for v, err := range values {
			var w W
			if err == nil {
				w = f(v)
			}
			if !yield(w, err) {
				return
			}
		}
	}
}

// Show prints an object as JSON: on one line, or a field on a line for a reader.
func Show(out io.Writer, asJSON bool, object any) error {
	if asJSON {
		return WriteJSON(out, object)
	}
	line, err := httpserve.Encode(object)
	var text bytes.Buffer
	if err == nil {
		err = json.Indent(&text, line, "", "  ")
	}
	if err == nil {
		_, err = io.WriteString(out, progress.Escape(text.String()))
	}
	return err
}

// at is the field at a path, nil if there is none.
func at(fields map[string]json.RawMessage, path string) json.RawMessage {
	first, rest, nested := strings.Cut(path, ".")
	if !nested {
		return fields[first]
	}
	var inner map[string]json.RawMessage
	_ = json.Unmarshal(fields[first], &inner) // a value that is no object has no fields
	return at(inner, rest)
}

// title is a field's name in words.
func title(field string) string {
	field = strings.ToLower(strings.ReplaceAll(wordEnd.ReplaceAllString(field, "$1 $2"), "_", " "))
	return strings.TrimSuffix(strings.TrimSuffix(field, " id"), " at")
}

var wordEnd = regexp.MustCompile(`([a-z])([A-Z])`)

// cell is a value as text: a time is local, and what has fields of its own is JSON.
func cell(value json.RawMessage) string {
	var text *string
	if json.Unmarshal(value, &text) != nil || len(value) == 0 {
		return string(value)
	}
	if text == nil {
		return ""
	}
	at, err := time.Parse(time.RFC3339, *text)
	switch {
	case err != nil:
		return *text
	case at.IsZero():
		return ""
	}
	return at.Local().Format(time.DateTime)
}

func first(n int, text string) string {
	if utf8.RuneCountInString(text) > n {
		return string([]rune(text)[:n-1]) + "…"
	}
	return text
}
