package natstest

import (
	"fmt"
	"strings"
	"sync"
)

// logLines is how many lines of a server's log are kept.
const logLines = 200

// serverLog keeps the last warnings and errors of a server, so that a test
// that fails can show them and one that passes is quiet.
type serverLog struct {
	mu    sync.Mutex
	lines []string
	died  bool
}

func (l *serverLog) add(level, format string, args []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == logLines {
		l.lines = append(l.lines[:0], l.lines[1:]...)
	}
	l.lines = append(l.lines, level+" "+fmt.Sprintf(format, args...))
}

// String is the kept lines.
func (l *serverLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// Noticef drops the line.
func (l *serverLog) Noticef(string, ...any) {}

// Debugf drops the line.
func (l *serverLog) Debugf(string, ...any) {}

// Tracef drops the line.
func (l *serverLog) Tracef(string, ...any) {}

// Warnf keeps the line.
func (l *serverLog) Warnf(format string, args ...any) { l.add("warning", format, args) }

// Errorf keeps the line.
func (l *serverLog) Errorf(format string, args ...any) { l.add("error", format, args) }

// Fatalf keeps the line. The server goes on, but will not be ready.
func (l *serverLog) Fatalf(format string, args ...any) {
	l.add("fatal", format, args)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.died = true
}

// fatal says whether the server has logged why it cannot run.
func (l *serverLog) fatal() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.died
}
