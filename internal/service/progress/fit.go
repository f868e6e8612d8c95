package progress

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Width is how many columns the terminal that out is has; 0: out is none.
func Width(out io.Writer) int {
	width, _ := size(out)
	return width
}

// Fit cuts lines that are drawn in place to the size of the terminal out. A wrapped line takes two rows, and lines beyond the
// height scroll the first ones away, so the next drawing would begin in the wrong place.
func Fit(out io.Writer, lines string) string {
	width, height := size(out)
	if width < 1 {
		return lines
	}
	return clip(lines, width, height)
}

// size is that of the terminal that out is; 0: it is none, or its size is not known.
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
	rows := max(1, height-1) // the cursor is behind the last line
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
