// Package progress shows the progress of a bounded run, as a bar on a terminal and as log lines elsewhere, and its result, as a table.
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

// unknown is the total of a bar whose total is not known.
const unknown = -1

// narrow is the minimum width for a bar with its rate and its times. A line that wraps cannot be drawn in place.
const narrow = 100

// logEvery is the minimum interval between two log lines of a bar.
const logEvery = 2 * time.Second

// Bar shows the progress of one run. It is safe for concurrent use. A nil Bar shows nothing.
type Bar struct {
	out   io.Writer
	title string
	total int64 // 0 if it is not known
	begin time.Time

	mu       sync.Mutex
	done     int64
	bar      *progressbar.ProgressBar // nil if out is not a terminal
	logged   time.Time
	finished bool
}

// New starts a bar for total steps on out. The run may take more steps. A total of 0 means that it is not known.
func New(out io.Writer, title string, total int64) *Bar {
	now := time.Now()
	b := &Bar{out: out, title: title, total: total, begin: now, logged: now}
	if IsTerminal(out) {
		if total == 0 {
			total = unknown
		}
		options := []progressbar.Option{
			progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(title), progressbar.OptionSetWidth(30), progressbar.OptionShowCount(),
			progressbar.OptionThrottle(65 * time.Millisecond), progressbar.OptionClearOnFinish(),
		}
		if Width(out) >= narrow {
			options = append(options, progressbar.OptionShowIts())
		} else {
			options = append(options, progressbar.OptionSetWidth(5), progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false))
		}
		b.bar = progressbar.NewOptions64(total, options...)
	}
	return b
}

// IsTerminal reports whether out is a terminal that can redraw a line.
func IsTerminal(out any) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// Add counts n more steps. The terminal is decoration, so its errors do not end the run.
func (b *Bar) Add(n int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done += int64(n)
	if b.total > 0 && b.done >= b.total {
		// A full bar would not change any more.
		b.total = 0
		if b.bar != nil {
			b.bar.ChangeMax64(unknown)
		}
	}
	if b.bar != nil {
		_ = b.bar.Add(n)
		return
	}
	if now := time.Now(); now.Sub(b.logged) >= logEvery {
		b.logged = now
		b.log(now)
	}
}

// Done ends the bar and writes one line with the result. A second call has no effect.
func (b *Bar) Done() {
	if b != nil && b.end() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.log(time.Now())
	}
}

// Clear ends the bar like Done, but writes nothing, for callers that write their own result.
func (b *Bar) Clear() {
	if b != nil {
		b.end()
	}
}

func (b *Bar) end() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.finished {
		return false
	}
	b.finished = true
	if b.bar != nil {
		_ = b.bar.Clear()
		_ = b.bar.Exit()
	}
	return true
}

// log writes the progress of the run. The lock is held.
func (b *Bar) log(now time.Time) {
	line := fmt.Sprintf("%s: %s of %s", b.title, Count(b.done), Count(b.total))
	if b.total == 0 {
		line = fmt.Sprintf("%s: %s", b.title, Count(b.done))
	}
	if took := now.Sub(b.begin); took > 0 {
		line += fmt.Sprintf(" in %s, %s/s", Short(took), Count(Rate(b.done, took)))
	}
	_, _ = fmt.Fprintln(b.out, line)
}

// Over returns a writer to out that clears the bar before each write, so that lines on the same terminal are not torn. The next step draws the bar
// again. Each write should consist of whole lines.
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

func (o over) Write(p []byte) (int, error) {
	o.bar.mu.Lock()
	defer o.bar.mu.Unlock()
	_ = o.bar.bar.Clear()
	return o.out.Write(p)
}
