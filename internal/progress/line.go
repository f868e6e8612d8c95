package progress

import (
	"fmt"
	"io"
	"sync"
)

// Line is a line of text on a terminal that is replaced again and again. Its methods may be called from any number of
// goroutines. The nil Line shows nothing.
type Line struct {
	out   io.Writer
	width func() int // of the terminal; 0: not known

	mu   sync.Mutex
	text string
}

// NewLine returns a Line on out; nil where that is no terminal.
func NewLine(out io.Writer) *Line {
	if !IsTerminal(out) {
		return nil
	}
	return &Line{out: out, width: func() int { columns, _ := size(out); return columns }}
}

// Set shows the first of the parts, and of the others those that fit the terminal beside it, in order.
func (l *Line) Set(parts ...string) {
	if l == nil {
		return
	}
	text := fit(parts, l.width())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = text
	_, _ = fmt.Fprintf(l.out, "\r\x1b[K%s", text)
}

// Clear takes the line away.
func (l *Line) Clear() { l.Set() }

// fit leaves out parts that would have the terminal wrap the line: it could not be replaced then.
func fit(parts []string, width int) (text string) {
	for _, part := range parts {
		longer := part
		if text != "" {
			longer = text + ", " + part
		}
		if r := []rune(longer); width <= 0 || len(r) < width {
			text = longer
		} else if text == "" {
			text = string(r[:max(0, width-2)]) + "…"
		}
	}
	return text
}

// Over returns a writer to out that takes the line away for each write, and shows it again. Each write should be whole lines.
func (l *Line) Over(out io.Writer) io.Writer {
	if l == nil || !IsTerminal(out) {
		return out
	}
	return lineOver{l, out}
}

type lineOver struct {
	line *Line
	out  io.Writer
}

// Write takes the line away, writes, and shows it again.
func (o lineOver) Write(p []byte) (int, error) {
	o.line.mu.Lock()
	defer o.line.mu.Unlock()
	_, _ = io.WriteString(o.line.out, "\r\x1b[K")
	n, err := o.out.Write(p)
	_, _ = io.WriteString(o.line.out, o.line.text)
	return n, err
}
