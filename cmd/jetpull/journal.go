package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/client"
)

// journal is Consume's logger. It tells the warnings, each of which stands for all
// problems of one kind.
type journal struct {
	work *work

	mu   sync.Mutex
	told map[string]bool // errors, by text
}

// toldMost bounds the errors that are known to have been told.
const toldMost = 100

// has reports whether a warning was about err: it comes by OnError too, for each pull.
func (j *journal) has(err error) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.told[err.Error()]
}

// note remembers the errors of a warning.
func (j *journal) note(r slog.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			if j.told == nil || len(j.told) == toldMost {
				j.told = map[string]bool{}
			}
			j.told[err.Error()] = true
		}
		return true
	})
}

// Enabled takes warnings; nothing that Consume logs is graver but a panic, which comes by OnError.
func (j *journal) Enabled(_ context.Context, level slog.Level) bool { return level == slog.LevelWarn }

// Handle tells a warning.
func (j *journal) Handle(_ context.Context, r slog.Record) error {
	if !final(r) && !ofMessage(r) {
		j.note(r)
		j.work.warn(sentence(r))
	}
	return nil
}

// WithAttrs and WithGroup belong to the interface; Consume has no use for them.
func (j *journal) WithAttrs([]slog.Attr) slog.Handler { return j }

// WithGroup is like WithAttrs.
func (j *journal) WithGroup(string) slog.Handler { return j }

// final reports whether the run ends with what r says.
func final(r slog.Record) (yes bool) {
	r.Attrs(func(a slog.Attr) bool {
		err, _ := a.Value.Any().(error)
		yes = errors.Is(err, jetpull.ErrConsumerDeleted)
		return !yes
	})
	return yes
}

// ofMessage reports whether r is about the error of one message, which OnError tells with its sequence.
func ofMessage(r slog.Record) bool {
	var failed, numbered bool
	r.Attrs(func(a slog.Attr) bool {
		_, isError := a.Value.Any().(error)
		failed, numbered = failed || isError, numbered || a.Key == "sequence"
		return true
	})
	return failed && numbered
}

// sentence is a record as a line for a reader: what has happened, and after that the
// error, and what else is known.
func sentence(r slog.Record) string {
	text, more := strings.TrimPrefix(r.Message, "jetpull: "), ""
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		if ok {
			text += ": " + client.Plain(err)
		} else {
			more += fmt.Sprintf(", %s %v", a.Key, a.Value)
		}
		return true
	})
	return text + more
}
