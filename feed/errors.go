package feed

import (
	"errors"
	"fmt"
	"time"

	"github.com/jetpull/jetpull/feed/internal/sqlstore"
)

// The errors of a [Store] and a [Watcher] wrap one of these, or the database's own.
var (
	// ErrNotFound says that no partition or item has this ID.
	ErrNotFound = sqlstore.ErrNotFound
	// ErrClosed says that the partition accepts no items, because it is sealed or Complete.
	ErrClosed = sqlstore.ErrClosed
	// ErrGatePassed says that the partition has passed this gate.
	ErrGatePassed = sqlstore.ErrGatePassed
	// ErrDuplicate says that a partition, or an item of the partition, already has this ID.
	ErrDuplicate = sqlstore.ErrDuplicate
	// ErrNotDone says that an item is not Complete, and the operation needs it to be.
	ErrNotDone = sqlstore.ErrNotDone
	// ErrConflict says that a row is not in the state that the write expected, or that another program wrote it first.
	ErrConflict = sqlstore.ErrConflict
	// ErrInvalid says that a field or an option cannot be used; the error names it.
	ErrInvalid = sqlstore.ErrInvalid
	// ErrDrainTimeout says that handlers still ran when [DrainTimeout] was over.
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

// Permanent returns an error for a [Processor] whose item cannot succeed. The item is Failed at once, whatever [MaxRetries] is. If err is nil,
// it returns nil.
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

// RetryAfter returns an error for a [Processor] whose item is to be processed again after d instead of the delay of [Backoff]. A d of 0 or less
// means at once, and the maximum is a year. It counts as a failed attempt. If err is nil, it returns nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, d}
}
