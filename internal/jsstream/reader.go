// Package jsstream creates, reads and follows JetStream streams. It never reports a message as missing that may exist.
//
// A read has three results: the message, [stored.ErrNotFound] if the stream does not have it, and [stored.ErrUnavailable] if that is not known now.
// If a replica may be behind, a [Reader] asks the leader. [Follow] delivers the stored messages in order, and [Progress] records the position that it
// has reached.
package jsstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/jetpull/jetpull/internal/stored"
	"github.com/jetpull/jetpull/internal/watch"
)

// Reader reads single messages from streams.
type Reader struct {
	js       jetstream.JetStream
	await    func(ctx context.Context) error
	replicas int
}

// NewReader returns a reader of streams with that number of replicas. It calls await before each request. await returns nil when there is a
// connection, or the reason not to send the request.
func NewReader(js jetstream.JetStream, replicas int, await func(ctx context.Context) error) *Reader {
	return &Reader{js: js, await: await, replicas: replicas}
}

// Last reads the last message of a subject. If there are replicas, it asks only the leader, because others may be behind.
func (r *Reader) Last(ctx context.Context, stream jetstream.Stream, subject string) (*jetstream.RawStreamMsg, error) {
	if r.replicas > 1 {
		return r.AskLeader(ctx, stream.CachedInfo().Config.Name, subject)
	}
	if err := r.await(ctx); err != nil {
		return nil, err
	}
	raw, err := Last(ctx, r.js, stream, subject)
	return raw, ReadError(err, "nothing is stored on "+subject)
}

// AskLeader reads the last message of a subject from the leader of a stream.
func (r *Reader) AskLeader(ctx context.Context, stream, subject string) (*jetstream.RawStreamMsg, error) {
	raw, err := r.fromLeader(ctx, stream, leaderRequest{Last: subject})
	return raw, ReadError(err, "nothing is stored on "+subject)
}

// ReadError converts an error of a read, such as one of [Last]: to [stored.ErrNotFound] with the text what if there is no such message, and otherwise
// to [stored.ErrUnavailable].
func ReadError(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return fmt.Errorf("%w: %s", stored.ErrNotFound, what)
	case errors.Is(err, stored.ErrUnavailable):
		return err
	}
	return fmt.Errorf("%w: %w", stored.ErrUnavailable, err)
}

// applyTime limits the wait until a leader has applied a message that a replica has already applied.
const applyTime = 2 * time.Second

// At reads the message at a sequence. It has three results: the message, [stored.ErrNotFound] if it was deleted, and [stored.ErrUnavailable] if that
// is not known now. Callers may discard data only after [stored.ErrNotFound].
//
// Any replica may answer with the message, because a message never changes. A server without the message proves nothing. A replica can be behind the
// leader. It can also be ahead, because a leader counts the copies before it applies a message itself.
func (r *Reader) At(ctx context.Context, stream jetstream.Stream, seq uint64) (*jetstream.RawStreamMsg, error) {
	if err := r.await(ctx); err != nil {
		return nil, err
	}
	raw, err := At(ctx, r.js, stream, seq)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return r.AtLeader(ctx, stream.CachedInfo().Config.Name, seq)
	}
	return raw, ReadError(err, "")
}

// AtLeader is like [Reader.At], but asks only the leader. Every server applies a stream in the order of its sequences. So a message was deleted if
// one answer shows both that a server has applied its sequence and that it does not have the message.
func (r *Reader) AtLeader(ctx context.Context, stream string, seq uint64) (*jetstream.RawStreamMsg, error) {
	gone := fmt.Errorf("%w: message %d of stream %s was deleted", stored.ErrNotFound, seq, stream)
	for begin := time.Now(); ; {
		raw, err := r.fromLeader(ctx, stream, leaderRequest{Seq: seq, Next: ">"})
		switch {
		case err == nil && raw.Sequence == seq:
			return raw, nil
		case err == nil:
			return nil, gone
		case !errors.Is(err, jetstream.ErrMsgNotFound):
			return nil, ReadError(err, "")
		}
		deleted, err := r.deletedAtEnd(ctx, stream, []uint64{seq})
		if err != nil {
			return nil, ReadError(err, "")
		}
		if len(deleted) > 0 {
			return nil, gone
		}
		if time.Since(begin) >= applyTime {
			return nil, fmt.Errorf("%w: the leader of stream %s has not applied message %d yet", stored.ErrUnavailable, stream, seq)
		}
		if err := watch.Sleep(ctx, RetryPause); err != nil {
			return nil, ReadError(err, "")
		}
	}
}

// Gone returns, in ascending order, the sequences whose messages were deleted according to the leader. It stops at the first message that is stored,
// so that each request except the last finds at least one deleted message.
func (r *Reader) Gone(ctx context.Context, stream string, seqs []uint64) (gone []uint64, err error) {
	seqs = slices.Compact(slices.Sorted(slices.Values(seqs)))
	for len(seqs) > 0 {
		raw, err := r.fromLeader(ctx, stream, leaderRequest{Seq: seqs[0], Next: ">"})
		switch {
		case errors.Is(err, jetstream.ErrMsgNotFound):
			atEnd, err := r.deletedAtEnd(ctx, stream, seqs)
			return append(gone, atEnd...), ReadError(err, "")
		case err != nil:
			return gone, ReadError(err, "")
		}
		n, there := slices.BinarySearch(seqs, raw.Sequence)
		gone = append(gone, seqs[:n]...)
		if there {
			return gone, nil
		}
		seqs = seqs[n:]
	}
	return gone, nil
}

// deletedAtEnd returns the sequences whose messages were deleted according to one answer of the leader. After them, nothing is stored. The list of
// deleted messages can be long, so it is read only if a sequence is within the stream.
func (r *Reader) deletedAtEnd(ctx context.Context, name string, seqs []uint64) ([]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, AttemptTimeout)
	defer cancel()
	stream, err := r.js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("state of stream %s: %w", name, err)
	}
	now := stream.CachedInfo()
	// If there is one copy, no other can be ahead of it.
	alone := now.Cluster == nil || len(now.Cluster.Replicas) == 0
	within := func(seq uint64) bool { return now.State.FirstSeq <= seq && seq <= now.State.LastSeq }
	if slices.ContainsFunc(seqs, within) {
		if now, err = stream.Info(ctx, jetstream.WithDeletedDetails(true)); err != nil {
			return nil, fmt.Errorf("deleted messages of stream %s: %w", name, err)
		}
	}
	return slices.DeleteFunc(slices.Clone(seqs), func(seq uint64) bool {
		deleted := now.State.FirstSeq > seq || now.State.LastSeq < seq && alone || slices.Contains(now.State.Deleted, seq)
		return !deleted
	}), nil
}

// fromLeader reads from the leader. It retries while there may be none: then no server answers, or only with that error.
func (r *Reader) fromLeader(ctx context.Context, stream string, request leaderRequest) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, CommitTimeout)
	defer cancel()
	var last error // the reason, besides the timeout
	for {
		if err := r.await(ctx); err != nil {
			return nil, err
		}
		attempt, done := context.WithTimeout(ctx, AttemptTimeout)
		raw, err := ask(attempt, r.js, stream, request)
		done()
		if err == nil || !passes(err) {
			return raw, err
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if watch.Sleep(ctx, RetryPause) != nil {
			return nil, last
		}
	}
}

// passes reports whether a retry may succeed soon, because a leader is being elected or a server is restarting. Any other error would be repeated.
func passes(err error) bool {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.Code == http.StatusServiceUnavailable
	}
	for _, passing := range []error{
		nats.ErrNoResponders, nats.ErrTimeout, context.DeadlineExceeded,
		nats.ErrConnectionReconnecting, nats.ErrDisconnected, nats.ErrReconnectBufExceeded,
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}
