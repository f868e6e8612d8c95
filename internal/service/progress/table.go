package progress

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Table writes rows below a header, in columns. A column is flush left, or flush right if its header begins with ">", which is not shown. A cell with
// unprintable characters, such as a newline or an escape sequence, is quoted, because its author must not be able to control the terminal.
func Table(out io.Writer, header []string, rows [][]string) error {
	widths := make([]int, len(header))
	right := make([]bool, len(header))
	head := make([]string, len(header))
	line := make([]string, len(header))
	for i, h := range header {
		head[i], right[i] = strings.CutPrefix(h, ">")
		head[i] = printable(head[i])
		widths[i] = utf8.RuneCountInString(head[i])
	}
	shown := [][]string{head, line}
	for _, row := range rows {
		if len(row) != len(header) {
			return fmt.Errorf("table: a row has %d cells, the header %d: %q", len(row), len(header), row)
		}
		row = slices.Clone(row)
		for i, cell := range row {
			row[i] = printable(cell)
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
		shown = append(shown, row)
	}
	for i, w := range widths {
		line[i] = strings.Repeat("─", w)
	}
	for _, row := range shown {
		if _, err := fmt.Fprintln(out, tableLine(row, widths, right)); err != nil {
			return err
		}
	}
	return nil
}

func printable(cell string) string {
	if strings.ContainsRune(cell, '\t') {
		return strconv.Quote(cell)
	}
	return Readable(cell)
}

func tableLine(row []string, widths []int, right []bool) string {
	var b strings.Builder
	for i, cell := range row {
		if i > 0 {
			b.WriteString("  ")
		}
		pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if right[i] {
			b.WriteString(pad + cell)
		} else {
			b.WriteString(cell + pad)
		}
	}
	return strings.TrimRight(b.String(), " ")
}
