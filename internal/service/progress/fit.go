package progress

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Width returns the number of columns of the terminal out, or 0 if out is not a terminal.
func Width(out io.Writer) int {
	width, _ := size(out)
	return width
}

// Fit truncates lines that are drawn in place to the size of the terminal out. A wrapped line takes two rows, and lines beyond the height scroll the
// first ones away. In both cases the next drawing would start in the wrong place.
func Fit(out io.Writer, lines string) string {
	width, height := size(out)
	if width < 1 {
		return lines
	}
	return clip(lines, width, height)
}

// size returns the size of the terminal out, or 0 if out is not a terminal or the size is unknown.
func size(out io.Writer) (width, height int) {
	f, ok := out.(*os.File)
	if !ok {
		return 0, 0
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

func clip(lines string, width, height int) string {
	var b strings.Builder
	rows := max(1, height-1) // the cursor is in the row below the last line
	for line := range strings.Lines(lines) {
		if rows--; rows < 0 {
			break
		}
		if r := []rune(strings.TrimSuffix(line, "\n")); len(r) > width {
			line = string(r[:width-1]) + "…\n"
		}
		b.WriteString(line)
	}
	return b.String()
}
