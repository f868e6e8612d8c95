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

// OpenLog opens a JSON log in a file, or on errOut if filename is empty. The level fatal means error. On SIGHUP, the file is reopened, for logrotate.
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

// NewLog returns a JSON log with readable durations, such as "1m30s", instead of nanoseconds.
func NewLog(w io.Writer, least slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: least, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}))
}

// logFile is a file that can be reopened under its name after logrotate has renamed it. It is safe for concurrent use.
type logFile struct {
	path string

	mu   sync.Mutex
	file *os.File
}

// open reopens the file. If that fails, the file that was open stays open.
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

// reopenOnHangup reopens the file on each SIGHUP, until stop is called.
func (l *logFile) reopenOnHangup(errOut io.Writer) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	var running sync.WaitGroup
	running.Go(func() {
		for range hangups {
			if err := l.open(); err != nil {
				// The log itself may be broken.
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
