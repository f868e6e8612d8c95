package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

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

const (
	// partOfList is how many rows a table has. A list can be longer than memory, so a long one is several tables.
	partOfList = 1000
	// widest is how many characters of a field a list shows, unless the column says how many.
	widest = 80
)

// List prints objects, which their JSON describes: each on a line as JSON, or a table of some fields. A column is the name of a field,
// or a path with dots to one in it. ">" before it is that of a number, and ":N" after it shows the first N characters.
func List[V any](cmd *cobra.Command, asJSON bool, columns []string, objects iter.Seq2[V, error]) error {
	return ListOr(cmd, asJSON, columns, objects, "there are none")
}

// ListOr is List with a text of its own for a reader, where there are no objects.
func ListOr[V any](cmd *cobra.Command, asJSON bool, columns []string, objects iter.Seq2[V, error], none string) error {
	n, err := list(cmd.OutOrStdout(), asJSON, columns, objects)
	if err == nil && n == 0 && !asJSON {
		Notice(cmd.ErrOrStderr(), "%s\n", none)
	}
	return err
}

// list returns how many objects it has printed.
func list[V any](out io.Writer, asJSON bool, columns []string, objects iter.Seq2[V, error]) (n int, err error) {
	header, names, widths := make([]string, len(columns)), make([]string, len(columns)), make([]int, len(columns))
	for i, column := range columns {
		name, width, cut := strings.Cut(column, ":")
		if widths[i] = widest; cut {
			widths[i], _ = strconv.Atoi(width) // a literal
		}
		name, number := strings.CutPrefix(name, ">")
		names[i], header[i] = name, title(name[strings.LastIndexByte(name, '.')+1:])
		if number {
			header[i] = ">" + header[i]
		}
	}
	var rows [][]string
	for object, err := range objects {
		if err != nil {
			return n, err
		}
		n++
		if asJSON {
			if err := WriteJSON(out, object); err != nil {
				return n, err
			}
			continue
		}
		text, err := encode(object)
		if err != nil {
			return n, err
		}
		row := make([]string, len(names))
		for i, name := range names {
			row[i] = first(widths[i], cell(field(text, name)))
		}
		if rows = append(rows, row); len(rows) == partOfList {
			if err := progress.Table(out, header, rows); err != nil {
				return n, err
			}
			rows = nil
		}
	}
	if len(rows) == 0 {
		return n, nil
	}
	return n, progress.Table(out, header, rows)
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

// Show prints an object, which its JSON describes: as JSON, or a field on a line, without those that are empty. A list of objects in it
// is a table below.
func Show(out io.Writer, asJSON bool, object any) error {
	if asJSON {
		return WriteJSON(out, object)
	}
	text, err := encode(object)
	if err != nil {
		return err
	}
	var rows [][]string
	var lists []named
	if err := flatten(text, "", &rows, &lists); err != nil {
		return err
	}
	if err := progress.Table(out, []string{"field", "value"}, rows); err != nil {
		return err
	}
	for _, l := range lists {
		if _, err := fmt.Fprintf(out, "\n%s\n", progress.Readable(l.name)); err != nil {
			return err
		}
		var items []json.RawMessage
		if err := json.Unmarshal(l.value, &items); err != nil {
			return err
		}
		var columns []string
		for _, item := range items {
			fields, err := fieldsOf(item)
			if err != nil {
				return err
			}
			for _, f := range fields {
				if !slices.Contains(columns, f.name) {
					columns = append(columns, f.name)
				}
			}
		}
		if _, err := list(out, false, columns, All(items)); err != nil {
			return err
		}
	}
	return nil
}

// named is a field of an object.
type named struct {
	name  string
	value json.RawMessage
}

// flatten makes rows of the fields of an object and of the objects in it. Lists of objects are returned as they are.
func flatten(object json.RawMessage, before string, rows *[][]string, lists *[]named) error {
	fields, err := fieldsOf(object)
	if err != nil {
		return err
	}
	for _, f := range fields {
		name := before + title(f.name)
		switch {
		case bytes.HasPrefix(f.value, []byte("{")):
			if err := flatten(f.value, name+" ", rows, lists); err != nil {
				return err
			}
		case bytes.HasPrefix(f.value, []byte("[{")):
			*lists = append(*lists, named{name, f.value})
		case bytes.HasPrefix(f.value, []byte("[")):
			var items []json.RawMessage
			if err := json.Unmarshal(f.value, &items); err != nil {
				return err
			}
			for _, item := range items {
				*rows = append(*rows, []string{name, cell(item)})
			}
		default:
			if text := cell(f.value); text != "" {
				*rows = append(*rows, []string{name, text})
			}
		}
	}
	return nil
}

// fieldsOf are the fields of an object, in their order.
func fieldsOf(object json.RawMessage) (fields []named, err error) {
	in := json.NewDecoder(bytes.NewReader(object))
	if begin, err := in.Token(); err != nil || begin != json.Delim('{') {
		return nil, fmt.Errorf("%.100q is no object", object)
	}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			return nil, err
		}
		f := named{name: fmt.Sprint(name)}
		if err := in.Decode(&f.value); err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// field is the value at a path, nil if there is none.
func field(object json.RawMessage, path string) json.RawMessage {
	for name := range strings.SplitSeq(path, ".") {
		var fields map[string]json.RawMessage
		if json.Unmarshal(object, &fields) != nil {
			return nil
		}
		object = fields[name]
	}
	return object
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

// first are the first n characters of a text.
func first(n int, text string) string {
	if utf8.RuneCountInString(text) > n {
		return string([]rune(text)[:n-1]) + "…"
	}
	return text
}
