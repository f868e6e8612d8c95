package engine

import (
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/jetpull/jetpull/internal/watch"
)

// listenAgain is the pause before the next try to listen.
const listenAgain = time.Second

// Wake reports that a partition has changed, or any if it is "". It may be called at any time, and does not block.
func (e *Engine) Wake(partition string) {
	select {
	case e.wakes <- partition:
	default:
		e.missed.Store(true)
	}
}

// woken handles a wake-up, and those that came with it.
func (e *Engine) woken(partition string) {
	e.look(partition)
	for range len(e.wakes) {
		e.look(<-e.wakes)
	}
	if e.missed.Swap(false) {
		e.look("")
	}
}

// look finds what has changed in a partition, or in all if it is "": in one that is held by another pass, because a
// retried item is before those that were fetched already, and for a lease otherwise.
func (e *Engine) look(partition string) {
	if partition == "" {
		e.timers.sweep = time.Time{}
	}
	h := e.held[partition]
	if h == nil {
		e.timers.hint(time.Now())
		return
	}
	h.redo = true
	e.consider(h)
}

// listen has the database report what other processes change, again where the connection broke.
func (e *Engine) listen() {
	for {
		err := e.tables.Listen(e.db, e.Wake)
		if err == nil || e.db.Err() != nil {
			return
		}
		e.Log.Warn("feed: no wake-ups by LISTEN", "error", oneLine(err), "again", listenAgain)
		_ = watch.Sleep(e.db, e.Jitter(listenAgain)) // Listen returns at its end
	}
}

// logged is the value of an error of a handler in a log: its own, or its first line.
func logged(err error) slog.Value {
	var own slog.LogValuer
	if errors.As(err, &own) {
		return own.LogValue()
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return slog.StringValue(line)
}

// oneLine is an error without line breaks, for a log. The error of a PostgreSQL that does not answer has a line for each address.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
