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

// Payload is a payload in JSON: in Data if it is valid UTF-8, which includes an empty payload, or else in DataBase64.
type Payload struct {
	Data       *string `json:"data,omitempty"`
	DataBase64 *string `json:"data_base64,omitempty"`
}

// PayloadOf returns data as a Payload.
func PayloadOf(data []byte) Payload {
	if utf8.Valid(data) {
		return Payload{Data: new(string(data))}
	}
	return Payload{DataBase64: new(base64.StdEncoding.EncodeToString(data))}
}

// WriteJSON writes a value on one line. It escapes terminal control characters.
func WriteJSON(out io.Writer, v any) error {
	line, err := httpserve.Encode(v)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, progress.Escape(string(line)))
	return err
}

// JSON reports whether the flag --json of a command is given. It returns false for a command without the flag.
func JSON(cmd *cobra.Command) bool {
	on, _ := cmd.Flags().GetBool("json")
	return on
}

// Answer prints the outcome of a command: with --json value, or else a text.
func Answer(cmd *cobra.Command, value any, format string, args ...any) error {
	if JSON(cmd) {
		return WriteJSON(cmd.OutOrStdout(), value)
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format, args...)
	return err
}

// Notice writes a text for the user to stderr, without control characters. It ignores errors, because it could not report them.
func Notice(errOut io.Writer, format string, args ...any) {
	_, _ = io.WriteString(errOut, progress.Escape(fmt.Sprintf(format, args...)))
}

// otherFlags maps options of the library to the flags that set them, if their names differ.
var otherFlags = map[string]string{"n": "--count", "MaxWait": "--wait", "FillBatch": "--fill"}

// flagOf returns the flag that sets an option of the library, such as --min-pending for MinPending.
func flagOf(option string) string {
	return cmp.Or(otherFlags[option], "--"+strings.ToLower(wordEnd.ReplaceAllString(option, "$1-$2")))
}

// Plain returns the text of an error for users. It drops the library's name, which the command prints already, and replaces the library's
// options by the flags that set them.
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

// Watch calls look at once and then after each interval, until look returns an error or the command is interrupted, which is not an error. On a
// terminal, the output of look replaces the previous output, unless it is empty or JSON.
func Watch(cmd *cobra.Command, interval time.Duration, look func() error) error {
	out, rows := cmd.OutOrStdout(), 0
	inPlace := !JSON(cmd) && progress.IsTerminal(out)
	for ctx := cmd.Context(); ctx.Err() == nil; _ = watch.Sleep(ctx, interval) {
		var text bytes.Buffer
		cmd.SetOut(&text)
		err := look()
		if picture := text.String(); err == nil && picture != "" {
			if inPlace {
				picture = progress.Fit(out, picture)
				picture, rows = over(rows, picture), strings.Count(picture, "\n")
			}
			_, err = io.WriteString(out, picture)
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// over returns a picture with the control sequences that make it replace the previous picture, whose rows are above the cursor.
func over(rows int, picture string) string {
	up := ""
	if rows > 0 {
		up = fmt.Sprintf("\x1b[%dA", rows)
	}
	return up + strings.ReplaceAll(picture, "\n", "\x1b[K\n") + "\x1b[J"
}

// Log returns a log of warnings and errors, as text or as JSON. In JSON, durations are in seconds.
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

// ArgumentOrInput returns args[n], or the content of standard input if there are fewer arguments.
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

// Input returns a command's standard input. When the command is interrupted, reads return [ErrInterrupted]. On a terminal, Input prints that the
// command reads standard input.
func Input(cmd *cobra.Command) io.Reader {
	in := cmd.InOrStdin()
	if progress.IsTerminal(in) {
		Notice(cmd.ErrOrStderr(), "Reading standard input; end it with Ctrl-D\n")
	}
	read, write := io.Pipe()
	context.AfterFunc(cmd.Context(), func() { _ = write.CloseWithError(ErrInterrupted) })
	go func() { // a read that has begun ends when the process ends, at the latest
		_, err := io.Copy(write, in)
		_ = write.CloseWithError(err)
	}()
	return read
}

const (
	// partOfList is the maximum number of rows of a table. A long list is printed as several tables, because it may not fit into memory.
	partOfList = 1000
	// widest is the maximum number of characters of a field in a list, unless the column specifies another.
	widest = 80
)

// List prints objects: with --json each on a line, or else as a table of some of their JSON fields. A column is the name of a field, or a path with
// dots to a nested field. The prefix ">" marks a column of numbers, and the suffix ":N" shows only the first N characters.
func List[V any](cmd *cobra.Command, columns []string, objects iter.Seq2[V, error]) error {
	return ListOr(cmd, columns, objects, "nothing found")
}

// ListOr is like List. If there are no objects, it prints the text none, except with --json.
func ListOr[V any](cmd *cobra.Command, columns []string, objects iter.Seq2[V, error], none string) error {
	out, asJSON, n := cmd.OutOrStdout(), JSON(cmd), 0
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

// All returns the values of a slice as a sequence for [List].
func All[V any](values []V) iter.Seq2[V, error] {
	return func(yield func(V, error) bool) {
		for _, v := range values {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// Map applies f to each value of a sequence. It passes errors on.
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

// Show prints an object: with --json on one line, or else with one field per line.
func Show(cmd *cobra.Command, object any) error {
	out := cmd.OutOrStdout()
	if JSON(cmd) {
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

// at returns the field at a path, or nil.
func at(fields map[string]json.RawMessage, path string) json.RawMessage {
	first, rest, nested := strings.Cut(path, ".")
	if !nested {
		return fields[first]
	}
	var inner map[string]json.RawMessage
	_ = json.Unmarshal(fields[first], &inner) // a value that is not an object has no fields
	return at(inner, rest)
}

// title returns a field's name in words.
func title(field string) string {
	field = strings.ToLower(strings.ReplaceAll(wordEnd.ReplaceAllString(field, "$1 $2"), "_", " "))
	return strings.TrimSuffix(strings.TrimSuffix(field, " id"), " at")
}

var wordEnd = regexp.MustCompile(`([a-z])([A-Z])`)

// cell formats a value as text. A time is in the local time zone, and an object is JSON.
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
