package feed

import (
	"errors"
	"fmt"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// The errors of a [Store] and a [Watcher] wrap one of these, or the database's own.
var (
	// ErrNotFound says that there is no partition, or no item, with this ID.
	ErrNotFound = sqlstore.ErrNotFound
	// ErrClosed says that the partition takes no items, because it is sealed or Complete.
	ErrClosed = sqlstore.ErrClosed
	// ErrGatePassed says that the partition is past this gate already.
	ErrGatePassed = sqlstore.ErrGatePassed
	// ErrDuplicate says that there is a partition, or an item in it, with this ID already.
	ErrDuplicate = sqlstore.ErrDuplicate
	// ErrNotDone says that an item is not Complete that would have to be.
	ErrNotDone = sqlstore.ErrNotDone
	// ErrConflict says that a row is not in the state that the write was for, or that somebody else wrote it first.
	ErrConflict = sqlstore.ErrConflict
	// ErrInvalid says that a field or an option cannot be used; the error names it.
	ErrInvalid = sqlstore.ErrInvalid
	// ErrDrainTimeout says that handlers had not returned when DrainTimeout was over.
	ErrDrainTimeout = errors.New("drain timeout")
)

var invalid = sqlstore.Invalid

// wrapped says in which operation an error came; nil stays nil.
func wrapped(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("feed: %s: %w", fmt.Sprintf(format, args...), err)
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// Permanent is the result of a [Processor] whose item cannot succeed: it becomes Failed at once, whatever
// [MaxRetries] says. For nil it returns nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type retryAfterError struct {
	error
	after time.Duration
}

func (e *retryAfterError) Unwrap() error { return e.error }

// RetryAfter is the result of a [Processor] whose item is to be processed again after d instead of [Backoff]'s
// delay, at once if d is 0 or less, and after a year at the latest. It counts as an attempt. For a nil error it
// returns nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, d}
}
