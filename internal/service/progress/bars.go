package progress

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	barsWidth = 30
	drawEvery = 65 * time.Millisecond
)

// Bars shows how far several runs are: a bar below the other on a terminal, and elsewhere now and then a log line for
// all. Its methods may be called from any number of goroutines.
type Bars struct {
	out      io.Writer
	terminal bool

	mu    sync.Mutex
	runs  []oneBar
	drawn bool // the bars are on the screen, above the cursor
	shown time.Time
}

type oneBar struct {
	title, note string
	done, total int64
}

// NewBars starts bars on out.
func NewBars(out io.Writer) *Bars {
	return &Bars{out: out, terminal: IsTerminal(out), shown: time.Now()}
}

// Add adds a bar for total steps, and returns its number for Set.
func (b *Bars) Add(title string, total int64) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.erase()
	b.runs = append(b.runs, oneBar{title: title, total: total})
	return len(b.runs) - 1
}

// Set notes how far a run is, and a word on it.
func (b *Bars) Set(bar int, done int64, note string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := &b.runs[bar]
	r.done, r.note = min(max(done, 0), r.total), note
	every := logEvery
	if b.terminal {
		every = drawEvery
	}
	if now := time.Now(); now.Sub(b.shown) >= every {
		b.shown = now
		b.show()
	}
}

// Say writes a line above the bars.
func (b *Bars) Say(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.erase()
	_, _ = fmt.Fprintf(b.out, format+"\n", args...)
	if b.terminal {
		b.show()
	}
}

// Done shows the end. The bars stay.
func (b *Bars) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.show()
	b.drawn = false
}

// erase takes the bars off the screen. The lock is held, as in what follows.
func (b *Bars) erase() {
	if b.drawn {
		_, _ = fmt.Fprintf(b.out, "\x1b[%dA\x1b[J", len(b.runs))
		b.drawn = false
	}
}

func (b *Bars) show() {
	if len(b.runs) == 0 {
		return
	}
	if !b.terminal {
		parts := make([]string, len(b.runs))
		for i, r := range b.runs {
			parts[i] = fmt.Sprintf("%s %s of %s", r.title, Count(r.done), Count(r.total))
			if r.note != "" {
				parts[i] += " (" + r.note + ")"
			}
		}
		_, _ = fmt.Fprintln(b.out, strings.Join(parts, ", "))
		return
	}
	b.erase()
	_, _ = io.WriteString(b.out, b.picture())
	b.drawn = true
}

// picture is the bars, a line each.
func (b *Bars) picture() string {
	width := 0
	for _, r := range b.runs {
		width = max(width, utf8.RuneCountInString(r.title))
	}
	var text strings.Builder
	for _, r := range b.runs {
		full := barsWidth
		if r.total > 0 {
			full = int(barsWidth * r.done / r.total)
		}
		fmt.Fprintf(&text, "%s%s %s%s %s of %s  %s\n", r.title, strings.Repeat(" ", width-utf8.RuneCountInString(r.title)),
			strings.Repeat("█", full), strings.Repeat("░", barsWidth-full), Count(r.done), Count(r.total), r.note)
	}
	return text.String()
}
