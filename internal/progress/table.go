package progress

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table writes rows under a header, in columns. Columns are flush left, and flush
// right where the header begins with ">", which is not shown.
func Table(out io.Writer, header []string, rows [][]string) error {
	widths := make([]int, len(header))
	right := make([]bool, len(header))
	head := make([]string, len(header))
	line := make([]string, len(header))
	for i, h := range header {
		head[i], right[i] = strings.CutPrefix(h, ">")
		widths[i] = utf8.RuneCountInString(head[i])
	}
	for _, row := range rows {
		if len(row) != len(header) {
			return fmt.Errorf("table: a row has %d cells, the header %d: %q", len(row), len(header), row)
		}
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for i, w := range widths {
		line[i] = strings.Repeat("─", w)
	}
	for _, row := range append([][]string{head, line}, rows...) {
		if _, err := fmt.Fprintln(out, tableLine(row, widths, right)); err != nil {
			return err
		}
	}
	return nil
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
