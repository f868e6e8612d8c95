package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/jsstream"
)

// Writer writes to one stream. It sends concurrent writes in parallel. If the broker does the syncing, they share a sync.
type Writer struct {
	js   jetstream.JetStream
	link *Link
	name string // of the stream, for errors
	// FailFast makes a write without a connection fail soon, because the caller can repeat it. Otherwise the write waits for a connection as long as
	// for an answer.
	FailFast bool
	// Disk syncs writes to disk before they are answered. Nil leaves that to the server.
	Disk jsstream.Disk
	// Replaced returns why a stored write could not be found again, or nil. A nil Replaced means that there is no such reason.
	Replaced func() error
	stop     chan struct{}
	full     atomic.Pointer[refusal] // the last write, if there was no space for it
	// Last reads the last message of a subject.
	Last func(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error)
}

// NewWriter returns a writer to the stream with that name.
func NewWriter(js jetstream.JetStream, link *Link, name string) *Writer {
	return &Writer{js: js, link: link, name: name, stop: make(chan struct{})}
}

// close ends all waits. Later writes fail.
func (c *Writer) close() { close(c.stop) }

// Commit stores one message if the last sequence of its subject is expect, and returns its sequence. If Commit returns domain.ErrConflict or another
// refusal of the server, nothing was stored. After any other domain.ErrUnavailable, or the end of ctx, the message may have been stored.
func (c *Writer) Commit(ctx context.Context, msg *nats.Msg, expect uint64) (uint64, error) {
	if err := c.Failure(); err != nil {
		return 0, err
	}
	deadline := time.Now().Add(jsstream.CommitTimeout)
	lost := false // an answer may have been lost
	for {
		if err := c.link.wait(ctx, c.stop, deadline, c.FailFast); err != nil {
			if lost {
				return 0, fmt.Errorf("%w, it is not known whether the message was stored", err)
			}
			return 0, fmt.Errorf("%w, nothing was sent", err)
		}
		seq, err := c.send(ctx, msg, jetstream.WithExpectLastSequencePerSubject(expect))
		_, answered := errors.AsType[*jetstream.APIError](err)
		switch {
		case err == nil:
			return seq, nil
		case jsstream.UnderWay(err):
			err = fmt.Errorf("%w: stream %s: another write to %s is under way", domain.ErrUnavailable, c.name, msg.Subject)
		case errors.Is(err, domain.ErrConflict) && lost:
			return c.settleLost(ctx, msg)
		case answered, errors.Is(err, domain.ErrTooLarge):
			return 0, err
		case !errors.Is(err, jetstream.ErrNoStreamResponse):
			lost = true
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return 0, err
		}
		select {
		case <-c.stop:
			return 0, errStopped
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(jsstream.RetryPause):
		}
	}
}

// settleLost finds out whether this write itself caused a conflict, because its first answer was lost. No two writes are equal, because they contain
// times and tokens.
func (c *Writer) settleLost(ctx context.Context, msg *nats.Msg) (uint64, error) {
	stored, err := c.Last(ctx, msg.Subject)
	if errors.Is(err, domain.ErrNotFound) {
		return 0, fmt.Errorf("%w: stream %s: what was stored on %s is gone again, it is not known whether it was this message", domain.ErrUnavailable,
			c.name, msg.Subject)
	}
	if err != nil {
		return 0, err
	}
	if bytes.Equal(stored.Data, msg.Data) && stored.Header.Get(headerEnvelope) == msg.Header.Get(headerEnvelope) {
		return stored.Sequence, nil
	}
	return 0, domain.ErrConflict
}

// DurableAt returns when a stored message, written by any process, is on disk, as far as the broker controls that. If seq is 0, it returns when
// everything committed before the call is on disk. It returns at once if an earlier sync covered the message.
func (c *Writer) DurableAt(ctx context.Context, seq uint64) error {
	if c.Disk == nil {
		return nil
	}
	select {
	case <-c.stop:
		return errStopped
	default:
		return jsstream.DurableAt(ctx, c.Disk, c.name, seq)
	}
}

// Failure returns why writes can no longer be confirmed as on disk, or nil. Callers check it before they change the stream, because they must not
// make a change that can never be confirmed.
func (c *Writer) Failure() error {
	if c.Replaced != nil {
		if err := c.Replaced(); err != nil {
			return err
		}
	}
	return jsstream.SyncFailure(c.Disk, c.name)
}

// errStopped reports that the store was closed before a write was made.
var errStopped = fmt.Errorf("%w: the broker is shutting down", domain.ErrUnavailable)

// send stores a message, and remembers whether there was space for it. If it returns domain.ErrUnavailable without a [jetstream.APIError], the
// message may have been stored.
func (c *Writer) send(ctx context.Context, msg *nats.Msg, opts ...jetstream.PublishOpt) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, jsstream.AttemptTimeout)
	defer cancel()
	seq, err := jsstream.Write(ctx, c.js, msg, append(opts, jetstream.WithRetryAttempts(0))...)
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		if api.ErrorCode == storageExceeded || api.ErrorCode == insufficientResources || NoSpace(api.Description) {
			err = fmt.Errorf("%w: stream %s: %w", domain.ErrStoreFull, c.name, api)
			c.full.Store(&refusal{time.Now(), err})
		}
	} else if err == nil && c.full.Load() != nil {
		c.full.Store(nil)
	}
	return seq, err
}

// NoSpace reports whether a text says that the system had no space: on the disk, in a quota, or for a file of that size.
func NoSpace(text string) bool {
	for _, system := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if strings.Contains(text, system.Error()) {
			return true
		}
	}
	return false
}

// The server's error codes for a full store. It also uses the texts of the system.
const (
	insufficientResources = jetstream.ErrorCode(10023)
	storageExceeded       = jetstream.ErrorCode(10047)
)

// refusal is a write that failed for lack of space.
type refusal struct {
	at  time.Time
	err error
}

// fullMemory is how long a refusal counts as the state of the store if no other write follows.
const fullMemory = 5 * time.Second

// NoSpace returns why the last write was refused for lack of space, if it was refused recently, or nil.
func (c *Writer) NoSpace() error {
	if r := c.full.Load(); r != nil && time.Since(r.at) < fullMemory {
		return r.err
	}
	return nil
}
