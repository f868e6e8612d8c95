package main

import (
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress shows how far the run is.
type Progress interface {
	Turn(name, contender string, round int) // one contender's turn begins
	Done()
}

// newProgress returns a bar when out is a terminal, and otherwise a line per case and round.
func newProgress(out *os.File, turns int) Progress {
	if !term.IsTerminal(int(out.Fd())) {
		return &logProgress{log: log.New(out, "", log.Ltime)}
	}
	return &barProgress{bar: progressbar.NewOptions(turns,
		progressbar.OptionSetWriter(out),
		progressbar.OptionSetWidth(30),
		progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)}
}

type barProgress struct{ bar *progressbar.ProgressBar }

// The bar is decoration: an error of the terminal must not end a measurement.
func (p *barProgress) Turn(name, contender string, _ int) {
	p.bar.Describe(fmt.Sprintf("%-16s %-32s", name, contender))
	_ = p.bar.Add(1)
}

func (p *barProgress) Done() { _ = p.bar.Finish() }

type logProgress struct {
	log  *log.Logger
	last string
}

func (p *logProgress) Turn(name, _ string, round int) {
	line := fmt.Sprintf("%s: round %d", name, round)
	if round == 0 {
		line = fmt.Sprintf("%s: warm-up", name)
	}
	if line != p.last {
		p.log.Print(line)
		p.last = line
	}
}

func (p *logProgress) Done() {}

// silent shows nothing; for tests.
func silent() Progress { return &logProgress{log: log.New(io.Discard, "", 0)} }
