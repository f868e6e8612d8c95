package natsembed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats-server/v2/server"
)

// serverLog forwards the server's log to slog, and keeps the lines that say why a start
// failed.
type serverLog struct {
	to *slog.Logger

	mu      sync.Mutex
	died    bool
	problem error // the last one, or that of which the server died
}

var _ server.Logger = (*serverLog)(nil)

func newServerLog(to *slog.Logger) *serverLog {
	if to == nil {
		to = slog.New(slog.DiscardHandler)
	}
	return &serverLog{to: to.With("from", "nats-server"), problem: errors.New("the server logged no reason")}
}

// problem is a line of the server's log. It wraps the errors among the line's arguments.
type problem struct {
	text   string
	causes []error
}

func newProblem(text string, args []any) *problem {
	p := &problem{text: text}
	for _, arg := range args {
		if err, ok := arg.(error); ok {
			p.causes = append(p.causes, err)
		}
	}
	return p
}

func (p *problem) Error() string { return p.text }

func (p *problem) Unwrap() []error { return p.causes }

// state reports whether the server died, and the last problem that it logged.
func (l *serverLog) state() (died bool, problem error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.died, l.problem
}

func (l *serverLog) note(fatal bool, format string, args []any) string {
	text := fmt.Sprintf(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.died {
		l.died, l.problem = fatal, newProblem(text, args)
	}
	return text
}

// Fatalf is called when the server cannot start. Start returns the line as an error, so it is logged at level debug only.
func (l *serverLog) Fatalf(format string, args ...any) {
	l.write(slog.LevelDebug, l.note(true, format, args))
}

func (l *serverLog) Errorf(format string, args ...any) {
	l.write(slog.LevelError, l.note(false, format, args))
}

func (l *serverLog) Warnf(format string, args ...any) {
	l.write(slog.LevelWarn, fmt.Sprintf(format, args...))
}

func (l *serverLog) Noticef(format string, args ...any) {
	l.write(slog.LevelDebug, fmt.Sprintf(format, args...))
}

// Debugf is never called: debugging is off.
func (l *serverLog) Debugf(string, ...any) {}

// Tracef is never called: tracing is off.
func (l *serverLog) Tracef(string, ...any) {}

func (l *serverLog) write(level slog.Level, text string) {
	l.to.Log(context.Background(), level, "embedded server", "text", text)
}
