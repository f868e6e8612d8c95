package service

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// OpenLog opens a JSON log, in the file or, if that is empty, on errOut. The level fatal is error. At SIGHUP the file is
// opened again, as logrotate wants it.
func OpenLog(filename, level string, errOut io.Writer) (log *slog.Logger, closeLog func() error, err error) {
	least := slog.LevelError
	if level != "fatal" {
		if err := least.UnmarshalText([]byte(level)); err != nil {
			return nil, nil, fmt.Errorf("[log] log-level: %w", err)
		}
	}
	w, closeLog := errOut, func() error { return nil }
	if filename != "" {
		file := &logFile{path: filename}
		if err := file.open(); err != nil {
			return nil, nil, fmt.Errorf("[log] filename: %w", err)
		}
		stop := file.reopenOnHangup(errOut)
		w, closeLog = file, func() error { stop(); return file.close() }
	}
	return NewLog(w, least), closeLog, nil
}

// NewLog returns a JSON log in which durations can be read: "1m30s", not nanoseconds.
func NewLog(w io.Writer, least slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: least, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}))
}

// logFile is a file that can be opened again under its name, after logrotate has
// renamed it. Its methods may be called by several goroutines.
type logFile struct {
	path string

	mu   sync.Mutex
	file *os.File
}

// open opens the file anew. If that fails, the one that was open stays.
func (l *logFile) open() error {
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	l.mu.Lock()
	old := l.file
	l.file = file
	l.mu.Unlock()
	if old != nil {
		return old.Close()
	}
	return nil
}

func (l *logFile) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Write(b)
}

func (l *logFile) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}

// reopenOnHangup opens the file anew at each SIGHUP, until the returned function is
// called.
func (l *logFile) reopenOnHangup(errOut io.Writer) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	var running sync.WaitGroup
	running.Go(func() {
		for range hangups {
			if err := l.open(); err != nil {
				// The log itself may be what is broken.
				_, _ = fmt.Fprintf(errOut, "SIGHUP: the log goes on in the file that was open: %v\n", err)
			}
		}
	})
	return func() {
		signal.Stop(hangups)
		close(hangups)
		running.Wait()
	}
}
