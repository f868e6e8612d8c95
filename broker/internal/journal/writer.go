package journal

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/broker/internal/domain"
	"github.com/jetpull/jetpull/internal/jsstream"
)

// Writing says how what is written to the streams gets to the disk.
type Writing struct {
	// Shared says that the server is not this process's.
	Shared bool
	// SyncDir is the store folder of the embedded server, if writes are to be synced
	// here before they are answered. Empty leaves it to the server.
	SyncDir string
	Disk    Disk
	// Envelope is a header that no two messages share, but one that is sent twice.
	Envelope string
	Log      *slog.Logger
}

// Writer writes to one stream. Concurrent writes go out side by side, and
// share a sync where the broker does the syncing.
type Writer struct {
	nc   *nats.Conn
	link *Link
	name string // of the stream, for errors
	// Hasty says that a write is given up soon while there is no connection:
	// whoever asked for it can ask again. Else it waits as for an answer.
	Hasty bool
	Writing
	Sync *Group
	stop chan struct{}
	full atomic.Pointer[refusal] // of the last write, if it was for want of room
	// Last reads the last message of a subject.
	Last func(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error)
}

// NewWriter writes to the stream of that name.
func NewWriter(nc *nats.Conn, link *Link, name string, w Writing) *Writer {
	c := &Writer{nc: nc, link: link, name: name, stop: make(chan struct{}), Writing: w}
	if w.SyncDir != "" {
		c.Sync = NewGroup(w.SyncDir, name, w.Disk, w.Log)
	}
	return c
}

// close waits for the sync in progress. Writes that are not durable yet fail.
func (c *Writer) close() {
	close(c.stop)
	if c.Sync != nil {
		c.Sync.Close()
	}
}

// Commit stores one message, if the last sequence of its subject is the
// expected one, and returns its sequence. When it returns domain.ErrConflict or
// another refusal of the server, nothing was stored; after another
// domain.ErrUnavailable or the end of ctx that is not known.
func (c *Writer) Commit(ctx context.Context, msg *nats.Msg, expect uint64) (uint64, error) {
	if err := errors.Join(c.Failure(), c.stuck()); err != nil {
		return 0, err
	}
	if msg.Header == nil {
		msg.Header = make(nats.Header, 1)
	}
	msg.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(expect, 10)}
	deadline := time.Now().Add(jsstream.CommitTimeout)
	lost := false // an answer may have been lost
	for {
		if err := c.connected(ctx, deadline); err != nil {
			if lost {
				return 0, fmt.Errorf("%w, it is not known whether the message was stored", err)
			}
			return 0, fmt.Errorf("%w, nothing was sent", err)
		}
		ack, err := c.request(ctx, msg)
		switch {
		case err == nil:
			c.acknowledged(ack.Seq)
			return ack.Seq, nil
		case errors.Is(err, domain.ErrConflict):
			if lost {
				return c.settleLost(ctx, msg)
			}
			return 0, err
		case errors.Is(err, errRefused), ctx.Err() != nil, time.Now().After(deadline):
			return 0, err
		}
		if err := c.stuck(); err != nil {
			return 0, err
		}
		lost = lost || !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, errUnderWay)
		select {
		case <-c.stop:
			return 0, errStopped
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(jsstream.RetryPause):
		}
	}
}

// Try stores one message over what its subject has, if the server takes it at once.
func (c *Writer) Try(ctx context.Context, msg *nats.Msg) error {
	if err := c.stuck(); err != nil {
		return err
	}
	if _, err := c.request(ctx, msg); err != nil {
		return cmp.Or(c.stuck(), err)
	}
	return nil
}

// connected returns when there is a connection to write on.
func (c *Writer) connected(ctx context.Context, deadline time.Time) error {
	o := c.link.current.Load()
	if o == nil {
		return nil
	}
	if soon := o.since.Add(outageGrace); c.Hasty && soon.Before(deadline) {
		deadline = soon
	}
	return o.wait(ctx, c.stop, deadline)
}

// settleLost finds out whether a conflict is with this very write, whose answer
// was lost: no two writes are the same, they have times and tokens in them.
func (c *Writer) settleLost(ctx context.Context, msg *nats.Msg) (uint64, error) {
	stored, err := c.Last(ctx, msg.Subject)
	if errors.Is(err, domain.ErrNotFound) {
		return 0, fmt.Errorf("%w: stream %s: what was stored on %s is gone again, it is not known whether it was this message", domain.ErrUnavailable, c.name, msg.Subject)
	}
	if err != nil {
		return 0, err
	}
	if bytes.Equal(stored.Data, msg.Data) && stored.Header.Get(c.Envelope) == msg.Header.Get(c.Envelope) {
		c.acknowledged(stored.Sequence)
		return stored.Sequence, nil
	}
	return 0, domain.ErrConflict
}

// Durable returns once all that was committed before the call is on disk, as
// far as that is up to the broker.
func (c *Writer) Durable(ctx context.Context) error {
	if c.Sync == nil {
		return nil
	}
	if err := c.Sync.Wait(ctx); err != nil {
		return c.unsynced(err)
	}
	return nil
}

// DurableAt is durable for one message that is known to be stored, by
// whomever: it does not wait if the last sync had it, and has the next remember
// that it does.
func (c *Writer) DurableAt(ctx context.Context, seq uint64) error {
	if c.Sync == nil || c.Sync.Has(seq) {
		return nil
	}
	c.Sync.NoteAck(seq)
	return c.Durable(ctx)
}

// Failure is why nothing that is written can be said to be on disk any more, or
// nil. What would change the stream asks for it first: a change that is never
// confirmed is better not made.
func (c *Writer) Failure() error {
	if c.Sync == nil {
		return nil
	}
	if err := c.Sync.Failure(); err != nil {
		return c.unsynced(err)
	}
	return nil
}

func (c *Writer) unsynced(err error) error {
	return fmt.Errorf("%w: sync stream %s: %w", domain.ErrUnavailable, c.name, err)
}

func (c *Writer) acknowledged(seq uint64) {
	if c.Sync != nil {
		c.Sync.NoteAck(seq)
	}
}

// errStopped says that a store was closed before a write was made.
var errStopped = fmt.Errorf("%w: the broker is shutting down", domain.ErrUnavailable)

// errUnderWay says that the leader is making the copies of another write to the
// subject, maybe of an earlier attempt at this one. Which of them is stored, if any,
// is known when it has a majority, or another is the leader.
var errUnderWay = errors.New("another write to the subject is under way")

// errRefused says that the server did not take a message, and why is with it.
var errRefused = errors.New("message refused")

type pubAck struct {
	Error *jetstream.APIError `json:"error"`
	Seq   uint64              `json:"seq"`
}

func (c *Writer) request(ctx context.Context, msg *nats.Msg) (pubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, jsstream.AttemptTimeout)
	defer cancel()
	reply, err := c.nc.RequestMsgWithContext(ctx, msg)
	if err != nil {
		return pubAck{}, fmt.Errorf("%w: stream %s: %w", domain.ErrUnavailable, c.name, err)
	}
	var ack pubAck
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return pubAck{}, fmt.Errorf("%w: stream %s answered %q: %w", domain.ErrUnavailable, c.name, reply.Data, err)
	}
	if ack.Error != nil {
		return pubAck{}, c.refused(ack.Error)
	}
	if c.full.Load() != nil {
		c.full.Store(nil)
	}
	return ack, nil
}

// refused tells what an error means that the server answered with.
func (c *Writer) refused(api *jetstream.APIError) error {
	switch api.ErrorCode {
	case jetstream.JSErrCodeStreamWrongLastSequence:
		return domain.ErrConflict
	case jetstream.JSErrCodeStreamWrongLastSequenceConstant:
		return fmt.Errorf("%w: stream %s: %w: %w", domain.ErrUnavailable, c.name, errUnderWay, api)
	case jetstream.JSErrCodeStreamMessageExceedsMaximum:
		return fmt.Errorf("%w: stream %s: %w: %w", domain.ErrTooLarge, c.name, errRefused, api)
	}
	err := fmt.Errorf("%w: stream %s: %w: %w", domain.ErrUnavailable, c.name, errRefused, api)
	if api.ErrorCode == storageExceeded || api.ErrorCode == insufficientResources || noSpace(api.Description) {
		err = fmt.Errorf("%w: stream %s: %w: %w", domain.ErrStoreFull, c.name, errRefused, api)
		c.full.Store(&refusal{time.Now(), err, !c.Shared && noSpace(api.Description)})
	}
	return err
}

// noSpace tells whether the system had no room: on the disk, in a quota, or for a file of that size.
func noSpace(text string) bool {
	for _, system := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if strings.Contains(text, system.Error()) {
			return true
		}
	}
	return false
}

// The server's error codes for a store without room, beside what the system says.
const (
	insufficientResources = jetstream.ErrorCode(10023)
	storageExceeded       = jetstream.ErrorCode(10047)
)

// refusal is a write that the server had no room for.
type refusal struct {
	at  time.Time
	err error
	// stuck says that the server takes nothing until it is started again: it keeps a write error of the disk for good.
	stuck bool
}

// fullMemory is how long a refusal says how the store is, if nothing else is written.
const fullMemory = 5 * time.Second

// NoRoom is why the last write was refused, if that is not long ago.
func (c *Writer) NoRoom() error {
	if r := c.full.Load(); r != nil && (r.stuck || time.Since(r.at) < fullMemory) {
		return r.err
	}
	return nil
}

// Writers are those of all streams.
type Writers []*Writer

// Close has writes that are not durable yet fail.
func (w Writers) Close() {
	for _, c := range w {
		c.close()
	}
}

// first is the first error that one of them has.
func (w Writers) first(of func(*Writer) error) error {
	for _, c := range w {
		if err := of(c); err != nil {
			return err
		}
	}
	return nil
}

// Failure is why nothing that is written can be said to be on disk any more, or nil.
func (w Writers) Failure() error { return w.first((*Writer).Failure) }

// NoRoom is why a last write was refused, if that is not long ago.
func (w Writers) NoRoom() error { return w.first((*Writer).NoRoom) }

// ServerSaid takes a line of the embedded server's log. A write that the system had no room for is answered with nothing, and so are all
// that follow (nats-server 2.15.2): the log is where it says so.
func (w Writers) ServerSaid(text string) {
	if !noSpace(text) {
		return
	}
	for _, c := range w {
		if strings.Contains(text, "["+c.name+"]") || strings.Contains(text, "> "+c.name+"'") {
			c.full.Store(&refusal{time.Now(), fmt.Errorf("%w: stream %s: %s", domain.ErrStoreFull, c.name, text), true})
		}
	}
}

// stuck is why the server takes no writes to the stream until it is started again, or nil.
func (c *Writer) stuck() error {
	if r := c.full.Load(); r != nil && r.stuck {
		return r.err
	}
	return nil
}

// Stuck tells whether the embedded server takes no writes any more, because there was no room for one: it has to be started again
// when there is.
func (w Writers) Stuck() bool { return w.first((*Writer).stuck) != nil }

// Restarted is called when the server was started again.
func (w Writers) Restarted() {
	for _, c := range w {
		c.full.Store(nil)
	}
}
