// Package stored has the errors of a read from a store. A caller may treat a record as deleted only after ErrNotFound, not
// after ErrUnavailable.
package stored

import "errors"

var (
	// ErrNotFound says that the store has no such thing.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that what was to be changed has changed meanwhile.
	ErrConflict = errors.New("changed meanwhile")
	// ErrUnavailable says that the store did not answer: it is not known whether something is there, or whether a change was
	// made.
	ErrUnavailable = errors.New("the store is not available, try again")
	// ErrTooLarge says that the store takes nothing as large.
	ErrTooLarge = errors.New("too large")
)
