package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"iter"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/jetpull/jetpull/internal/service/httpserve"
	"github.com/jetpull/jetpull/internal/service/progress"
)

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
