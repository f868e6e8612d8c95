// Package progress shows how far a bounded run is, as a bar on a terminal and
// as log lines elsewhere, and what came of it, as a table.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// logEvery is the least time between two log lines of a bar.
const logEvery = 2 * time.Second

// Bar shows how far one run is. Its methods may be called from any number of
// goroutines. The nil Bar shows nothing.
type Bar struct {
	out   io.Writer
	title string
	total int64
	begin time.Time

	mu       sync.Mutex
	done     int64
	bar      *progressbar.ProgressBar // nil where out is no terminal
	logged   time.Time
	finished bool
}

// New starts a bar for total steps on out.
func New(out io.Writer, title string, total int64) *Bar {
	now := time.Now()
	b := &Bar{out: out, title: title, total: total, begin: now, logged: now}
	if IsTerminal(out) {
		b.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(out),
			progressbar.OptionSetDescription(title),
			progressbar.OptionSetWidth(30),
			progressbar.OptionShowCount(),
			progressbar.OptionShowIts(),
			progressbar.OptionThrottle(65*time.Millisecond),
			progressbar.OptionClearOnFinish(),
		)
	}
	return b
}

// IsTerminal reports whether out is a terminal that can redraw a line.
func IsTerminal(out any) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// Add notes n more steps. The terminal is decoration: an error of it must not
// end the run.
func (b *Bar) Add(n int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done += int64(n)
	if b.bar != nil {
		_ = b.bar.Add(n)
		return
	}
	if now := time.Now(); now.Sub(b.logged) >= logEvery {
		b.logged = now
		b.log(now)
	}
}

// Done ends the bar and writes one line with the result. A second call does
// nothing.
func (b *Bar) Done() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.finished {
		return
	}
	b.finished = true
	if b.bar != nil {
		_ = b.bar.Clear()
		_ = b.bar.Exit()
	}
	b.log(time.Now())
}

// log writes how far the run is. The lock is held.
func (b *Bar) log(now time.Time) {
	line := fmt.Sprintf("%s: %s of %s", b.title, Count(b.done), Count(b.total))
	if b.done == b.total {
		line = fmt.Sprintf("%s: %s", b.title, Count(b.done))
	}
	if took := now.Sub(b.begin); took > 0 {
		line += fmt.Sprintf(" in %s, %s/s", Short(took), Count(Rate(b.done, took)))
	}
	_, _ = fmt.Fprintln(b.out, line)
}

// Over returns a writer to out that takes the bar off the screen for each
// write, so that lines on the same terminal are not torn. The bar comes back with
// the next step. Each write should be whole lines.
func (b *Bar) Over(out io.Writer) io.Writer {
	if b == nil || b.bar == nil || !IsTerminal(out) {
		return out
	}
	return over{b, out}
}

type over struct {
	bar *Bar
	out io.Writer
}

// Write takes the bar away and writes.
func (o over) Write(p []byte) (int, error) {
	o.bar.mu.Lock()
	defer o.bar.mu.Unlock()
	_ = o.bar.bar.Clear()
	return o.out.Write(p)
}
