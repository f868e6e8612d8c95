package domain

import (
	"errors"
	"fmt"

	"github.com/jetpull/jetpull/internal/stored"
)

// The errors of the domain. Those in the HTTP contract have the text that a client sees.
var (
	// ErrNotFound says that a channel, producer, consumer, message or job does
	// not exist.
	ErrNotFound = stored.ErrNotFound
	// ErrConflict says that the object has changed since it was read.
	ErrConflict = stored.ErrConflict
	// ErrDuplicateMessage says that the channel has a message with this ID.
	ErrDuplicateMessage = errors.New("duplicate message id for channel")
	// ErrDuplicateScheduled says that the channel already has a message with the ID of the message to schedule, scheduled or not.
	ErrDuplicateScheduled = errors.New("duplicate scheduled message id for channel")
	// ErrInvalidTransition says that the state machine has no such transition.
	ErrInvalidTransition = errors.New("invalid transition request")
	// ErrTimeoutWithInvalidState says that a timeout was given for a state that has none.
	ErrTimeoutWithInvalidState = errors.New("timeout provided with invalid state")
	// ErrClaimLost says that the claim has ended: it expired, was completed, or another worker has the job.
	ErrClaimLost = errors.New("claim lost: it has ended or another worker holds the job")
	// ErrRetriesLeft says that a job is not dead, or still has retries.
	ErrRetriesLeft = errors.New("job is not dead or retry not exhausted")
	// ErrScheduleTooSoon says that the scheduled time is nearer than the minimum.
	ErrScheduleTooSoon = errors.New("scheduled time is too near")
	// ErrUnavailable says that the store did not answer. It is not known whether the change was made.
	ErrUnavailable = stored.ErrUnavailable
	// ErrInvalid says that an argument is invalid.
	ErrInvalid = errors.New("invalid")
	// ErrWaiting says that a channel that is to be deleted has consumers, or scheduled messages that are not broadcast yet.
	ErrWaiting = errors.New("the channel is in use")
	// ErrTooLarge says that a message or an object of the registry is larger than the store accepts.
	ErrTooLarge = stored.ErrTooLarge
)

// ErrStoreFull says that there is no space for another message. Jobs can still be claimed, delivered and deleted, which frees
// space.
var ErrStoreFull = fmt.Errorf("%w: the store is full", ErrUnavailable)
