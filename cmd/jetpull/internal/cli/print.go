package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"regexp"
	"slices"
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
	n, err := list(cmd.OutOrStdout(), asJSON, columns, objects)
	if err == nil && n == 0 && !asJSON {
		Notice(cmd.ErrOrStderr(), "%s\n", none)
	}
	return err
}

// list returns how many objects it has printed.
func list[V any](out io.Writer, asJSON bool, columns []string, objects iter.Seq2[V, error]) (n int, err error) {
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
			return n, err
		}
		n++
		if asJSON {
			if err := WriteJSON(out, object); err != nil {
				return n, err
			}
			continue
		}
		fields, err := fieldsOf(object)
		if err != nil {
			return n, err
		}
		row := make([]string, len(paths))
		for i, path := range paths {
			if at := slices.IndexFunc(fields, func(f field) bool { return f.path == path }); at >= 0 {
				row[i] = first(widths[i], cell(fields[at].value))
			}
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

// Show prints an object, which its JSON describes: as JSON, or a field on a line, without those that are empty. A list of objects in it
// is a table below.
func Show(out io.Writer, asJSON bool, object any) error {
	if asJSON {
		return WriteJSON(out, object)
	}
	fields, err := fieldsOf(object)
	if err != nil {
		return err
	}
	var rows [][]string
	var lists []field
	for _, f := range fields {
		var items []json.RawMessage
		switch {
		case f.value[0] == '{': // its own fields follow
		case bytes.HasPrefix(f.value, []byte("[{")):
			lists = append(lists, f)
		case json.Unmarshal(f.value, &items) == nil:
			for _, item := range items {
				rows = append(rows, []string{f.name, cell(item)})
			}
		case cell(f.value) != "":
			rows = append(rows, []string{f.name, cell(f.value)})
		}
	}
	if err := progress.Table(out, []string{"field", "value"}, rows); err != nil {
		return err
	}
	for _, f := range lists {
		if err := below(out, f); err != nil {
			return err
		}
	}
	return nil
}

// below prints a list of objects, with a column for each field that one of them has, except those that are objects.
func below(out io.Writer, f field) error {
	var items []json.RawMessage
	if err := json.Unmarshal(f.value, &items); err != nil {
		return err
	}
	var columns []string
	for _, item := range items {
		fields, err := fieldsOf(item)
		if err != nil {
			return err
		}
		for _, f := range fields {
			if !strings.Contains(f.path, ".") && f.value[0] != '{' && !slices.Contains(columns, f.path) {
				columns = append(columns, f.path)
			}
		}
	}
	if _, err := fmt.Fprintf(out, "\n%s\n", progress.Readable(f.name)); err != nil {
		return err
	}
	_, err := list(out, false, columns, All(items))
	return err
}

// field is a field of an object, or of an object in it.
type field struct {
	path, name string // with dots, and in words
	value      json.RawMessage
}

// fieldsOf are the fields of what JSON describes as an object, in their order, those of an object in it behind it.
func fieldsOf(object any) ([]field, error) {
	text, err := httpserve.Encode(object)
	if err != nil {
		return nil, err
	}
	return flatten(text, "", "")
}

func flatten(object json.RawMessage, path, name string) (all []field, err error) {
	in := json.NewDecoder(bytes.NewReader(object))
	if begin, err := in.Token(); err != nil || begin != json.Delim('{') {
		return nil, fmt.Errorf("%.100q is no object", object)
	}
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return nil, err
		}
		f := field{path: path + fmt.Sprint(key), name: name + title(fmt.Sprint(key))}
		if err := in.Decode(&f.value); err != nil {
			return nil, err
		}
		all = append(all, f)
		if f.value[0] == '{' {
			inner, err := flatten(f.value, f.path+".", f.name+" ")
			if err != nil {
				return nil, err
			}
			all = append(all, inner...)
		}
	}
	return all, nil
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
