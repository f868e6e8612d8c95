// Package stored has the errors of reads from a store. A caller may treat a record as deleted only after ErrNotFound, not after ErrUnavailable.
package stored

import "errors"

var (
	// ErrNotFound reports that the store does not have the record.
	ErrNotFound = errors.New("not found")
	// ErrConflict reports that the record has changed meanwhile.
	ErrConflict = errors.New("changed meanwhile")
	// ErrUnavailable reports that the store did not answer. It is unknown whether a record exists, or whether a change was made.
	ErrUnavailable = errors.New("the store is not available, try again")
	// ErrTooLarge reports that the record is larger than the store accepts.
	ErrTooLarge = errors.New("too large")
)
