// Package journal prints the log of Consume for the user of a command.
package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/jetpull/jetpull"
	"github.com/jetpull/jetpull/cmd/jetpull/internal/cli"
)

// Journal is a handler of Consume's log. It reports the warnings, each of which stands for all
// problems of one kind.
type Journal struct {
	Warn func(text string)

	mu       sync.Mutex
	reported map[string]bool // errors, by text
}

// mostReported bounds the errors that are known to have been reported.
const mostReported = 100

// Has reports whether a warning was about err, which Consume passes to OnError too, for each pull.
func (j *Journal) Has(err error) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.reported[err.Error()]
}

func (j *Journal) note(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.reported == nil || len(j.reported) == mostReported {
		j.reported = map[string]bool{}
	}
	j.reported[err.Error()] = true
}

// Enabled takes warnings; nothing that Consume logs is graver but a panic, which OnError gets.
func (j *Journal) Enabled(_ context.Context, level slog.Level) bool { return level == slog.LevelWarn }

// Handle reports a warning, unless the run ends with its error, or it is about one message: OnError gets that, with the sequence.
func (j *Journal) Handle(_ context.Context, r slog.Record) error {
	text, numbered, err := sentence(r)
	if errors.Is(err, jetpull.ErrConsumerDeleted) || err != nil && numbered {
		return nil
	}
	if err != nil {
		j.note(err)
	}
	j.Warn(text)
	return nil
}

// WithAttrs and WithGroup belong to the interface; Consume has no use for them.
func (j *Journal) WithAttrs([]slog.Attr) slog.Handler { return j }

// WithGroup is like WithAttrs.
func (j *Journal) WithGroup(string) slog.Handler { return j }

// sentence is a record as a line for a reader: what has happened, and after that the error, and what else is known. A numbered
// record is about the message with a sequence.
func sentence(r slog.Record) (text string, numbered bool, problem error) {
	text, more := strings.TrimPrefix(r.Message, "jetpull: "), ""
	r.Attrs(func(a slog.Attr) bool {
		numbered = numbered || a.Key == "sequence"
		if err, ok := a.Value.Any().(error); ok {
			problem = err
			text += ": " + cli.Plain(err)
		} else {
			more += fmt.Sprintf(", %s %v", a.Key, a.Value)
		}
		return true
	})
	return text + more, numbered, problem
}
